"""<conv(src, weights), diff_dst> = <src, diff_src> = <weights, diff_weights>, exactly, on integers, by the engine."""

from __future__ import annotations

import numpy as np
import pytest

from convgrad import engines
from convgrad.formats import FORMATS
from convgrad.plan.machine import ISAS
from convgrad.spec.geometry import Conv
from convgrad.spec.problem import Problem
from tests.engines.guarded_problems import DATA_NAMES, conv_of
from tests.engines.runs import refuse_numpy
from tests.support.engine_helpers import HOST, Array, empty, lying, run_plan
from tests.support.forward_problems import LIES, OPERATORS, TYPES, plans_of, posed, recut, unlike
from tests.support.tiers import tiers

SHARED = 12  # seeds that share types, layouts and an instruction set are so many apart, and share kernels
QUICK = [seed for seed in range(180) if seed % SHARED in (0, 2, 7, 9)]  # all types, both words, both instruction sets
LONG = range(1000, 3000)
WORDS = (("dst", False), ("src", False)), (("src", True), ("dst", True))  # forward and data gradient, as operators

pytestmark = pytest.mark.skipif(not HOST, reason="no generated kernels run here")


@pytest.fixture(autouse=True)
def only_the_generated_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_numpy(monkeypatch)


def inner(a: Array, b: Array) -> int:
    """Return a sum of products of integers, which 64 bits hold."""
    return int(np.sum(a.astype(np.int64) * b.astype(np.int64)))


def weight_gradient(conv: Conv, transposed: bool, like: Problem) -> Problem:
    """Return the problem of the weight gradient of a convolution, of the layouts of another role."""
    data, weights = like.layouts[0], like.layouts[like.operands.index("weights")]
    name = "ConvTransposeBackwardWeights" if transposed else "ConvolutionBackwardWeights"
    return Problem(
        name, "weights", conv, ("src", "dst"), "weights", (data, data, weights), like.operand_format, FORMATS["f32"]
    )


def gathered(problem: Problem, operands: list[Array], seed: int) -> Array:
    """Run a forward or a data gradient as chosen, or by a plan of a kernel of its own that is cut anyhow."""
    out = empty(problem)
    if seed % 5 == 0:
        assert engines.execute(problem, operands, out, 2).engine == "generated"
        return out
    view, found = plans_of(problem, operands, out, ISAS[HOST[seed // 6 % len(HOST)]])
    kinds = unlike(found, 0)
    plan = kinds[seed // SHARED % len(kinds)]
    cuts = (plan, *recut(plan, view))
    return run_plan(cuts[seed // SHARED % len(cuts)], problem, operands, out)


def assert_adjoint(seed: int) -> None:
    rng, types = np.random.default_rng([93, seed]), (TYPES[seed % 3], "f32")
    transposed, lies = seed % 4 > 1, LIES[seed // 3 % 2]
    conv = conv_of(DATA_NAMES[seed * 7 % len(DATA_NAMES)], rng)
    forward, gradient = (posed(conv, *words, types=types, lies=lies) for words in WORDS[transposed])
    by_weights = weight_gradient(conv, transposed, forward)
    layouts = {"src": forward.layouts[0], "dst": forward.layouts[0], "weights": by_weights.layouts[-1]}
    shapes = {"src": conv.src_shape, "dst": conv.dst_shape, "weights": conv.weights_shape}
    given = {
        tensor: lying(rng.integers(-4, 5, shape).astype(forward.operand_format.dtype), layouts[tensor])
        for tensor, shape in shapes.items()
    }
    found = {}
    for problem in (forward, gradient):
        result = gathered(problem, [given[tensor] for tensor in problem.operands], seed)
        found[problem.solves_for] = inner(result, given[problem.solves_for])
    diff_weights = empty(by_weights)
    assert engines.execute(by_weights, [given["src"], given["dst"]], diff_weights, 2).engine == "generated"
    found["weights"] = inner(diff_weights, given["weights"])
    assert len(set(found.values())) == 1, (conv, types, lies, transposed, found)


@tiers("seed", QUICK, every=29)
def test_adjoint(seed: int) -> None:
    assert_adjoint(seed)


@pytest.mark.long
@pytest.mark.parametrize("first", LONG[::100])
def test_2000_are_adjoint(first: int) -> None:
    for seed in sorted(range(first, first + 100), key=lambda seed: seed % SHARED):
        assert_adjoint(seed)


def test_both_words_are_run() -> None:
    assert {OPERATORS[word] for words in WORDS for word in words} == set(OPERATORS.values())
