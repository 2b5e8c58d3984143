"""Forwards and data gradients among pages that nobody may touch; run as a program, as ``guarded.py`` is.

``python -m tests.engines.guarded_forward SEED COUNT`` names each problem before it runs it, and ends with a line of
what it did.
"""

from __future__ import annotations

import faulthandler
import json
import sys
from collections import Counter
from math import prod

import numpy as np

from convgrad.engines.llvm import isas
from convgrad.plan.forward.recipe import ForwardPlan
from convgrad.spec import exact_result
from convgrad.spec.geometry import Conv
from convgrad.spec.layouts import axis_order, from_canonical
from convgrad.spec.problem import Problem
from tests.engines.guarded import Array, Placed, lying, run_guarded, values_of
from tests.support.classes import CLASSES, draw
from tests.support.forward_problems import LIES, MIXED, PROBLEMS, ROLES, plans_of, posed, recut, unlike
from tests.support.hash_problems import shape_of
from tests.support.helpers import assert_same_bits

NAMES = (*PROBLEMS, *CLASSES)
MULTIPLY_ADDS, ELEMENTS = 300_000, 20_000


def conv_of(name: str, rng: np.random.Generator) -> Conv:
    """Return a problem of the table, or a random one of a class."""
    if name in PROBLEMS:
        return PROBLEMS[name]
    drawn = draw(CLASSES[name], rng, MULTIPLY_ADDS, most_elements=ELEMENTS)
    return next(conv for conv in drawn if prod(conv.weights_shape) <= ELEMENTS)


def canonical(array: Array, layout: str) -> Array:
    """Return the canonical view of an array in a layout; a bias is as it lies."""
    return array if array.ndim == 1 else array.transpose(axis_order(layout, array.ndim))


def made(problem: Problem, rng: np.random.Generator) -> list[Array]:
    """Return operands of small integers, and last the value before, all in the problem's layouts."""
    arrays = []
    for tensor, layout in zip((*problem.operands, problem.output), problem.layouts, strict=True):
        shape = shape_of(problem, tensor)
        lies = shape if len(shape) == 1 else from_canonical(shape, layout)
        arrays.append(rng.integers(-4, 5, lies).astype(problem.operand_format.dtype))
    old = values_of(rng, arrays[-1].shape, problem.output_format.dtype, problem.accumulate)
    return [*arrays[:-1], old]


def run_one(rng: np.random.Generator, name: str, seed: int, done: Counter[str]) -> None:
    """Run a problem in both placements, each by a plan cut anyhow, and compare with the oracle."""
    role, lies = ROLES[int(rng.integers(2))], LIES[(seed + int(rng.integers(2))) % 4]
    types = MIXED[seed // 2 % len(MIXED)] if seed % 2 else MIXED[0]
    transposed, accumulate = bool(rng.integers(2)), bool(rng.random() < 0.25)
    problem = posed(conv_of(name, rng), role, transposed, types, lies, accumulate, bias=True)
    plain = made(problem, rng)
    views = [canonical(array, layout) for array, layout in zip(plain, problem.layouts, strict=True)]
    answer = exact_result.evaluate(problem, views[:-1], views[-1] if accumulate else None)
    assert answer.magnitude.max(initial=0) <= 2**24
    expected = answer.rounded(problem)
    strided = [bool(rng.random() < 0.25) for _ in plain]
    strides = [lying(rng, array, odd) for array, odd in zip(plain, strided, strict=True)]
    isa = isas.isa()
    assert isa is not None
    for at_end in (True, False):
        placed = [Placed(array, s, at_end) for array, s in zip(plain, strides, strict=True)]
        *operands, out = (canonical(p.array, layout) for p, layout in zip(placed, problem.layouts, strict=True))
        view, found = plans_of(problem, operands, out, isa, l2_bytes=1 << int(rng.integers(12, 21)))
        kinds = unlike(found, seed)
        plan = kinds[int(rng.integers(len(kinds)))]
        cuts = [plan, *recut(plan, view)]
        plan = cuts[int(rng.integers(10)) % len(cuts)]
        words = f"{name} {problem} strides {strides} guard {'behind' if at_end else 'before'} {plan.summary} {plan.cut}"
        print(words, flush=True)
        run_guarded(plan, problem, operands, out, at_end)
        assert_same_bits(np.ascontiguousarray(out), np.ascontiguousarray(expected), words)
        for now, before in zip(placed[:-1], plain[:-1], strict=True):
            assert now.array.tobytes() == before.tobytes(), f"an operand changed: {words}"
        assert all(p.intact() for p in placed), f"bytes around an array changed: {words}"
        done["placements"] += 1
        if isinstance(plan, ForwardPlan):
            done["in place"] += plan.spec.a_in_place
            done["lanes in place"] += plan.spec.b_in_place
            done["exchanged"] += plan.spec.transposed_gemm
        done[plan.spec.body] += 1
    done["problems"] += 1
    done["strided"] += any(strided)
    done["accumulated"] += accumulate
    done["with bias"] += "bias" in problem.operands
    done[problem.operator] += 1


def main(seed: int, count: int) -> None:
    faulthandler.enable()
    done: Counter[str] = Counter()
    for number in range(count):
        name = NAMES[(number + seed * count) % len(NAMES)]
        run_one(np.random.default_rng([72, seed, number]), name, seed, done)
    print(json.dumps(done))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
