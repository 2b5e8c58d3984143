"""The oracle against loops over the definition, any rank, and its terms and magnitudes."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from convgrad.functional.call import prepare
from convgrad.spec import exact_result
from convgrad.spec.geometry import Conv
from tests.support.helpers import operands_of, random_case


def brute_force(conv: Conv, role: str, given: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Value, magnitude and number of terms by one loop over every index there is."""
    shapes = {"dst": conv.dst_shape, "src": conv.src_shape, "weights": conv.weights_shape}
    value, magnitude, terms = (np.zeros(shapes[role]) for _ in range(3))
    per_group_in, per_group_out = conv.src_channels // conv.groups, conv.dst_channels // conv.groups
    grid = product(
        range(conv.batch),
        range(conv.dst_channels),
        range(per_group_in),
        product(*(range(a.dst) for a in conv.axes)),
        product(*(range(a.kernel) for a in conv.axes)),
    )
    for n, o, c, p, k in grid:
        i = tuple(x * a.stride + t * a.dilation - a.pad_begin for x, t, a in zip(p, k, conv.axes, strict=True))
        if not all(0 <= x < a.src for x, a in zip(i, conv.axes, strict=True)):
            continue
        at = {"src": (n, o // per_group_out * per_group_in + c, *i), "dst": (n, o, *p), "weights": (o, c, *k)}
        left, right = (float(given[t][at[t]]) for t in ("src", "dst", "weights") if t != role)
        value[at[role]] += left * right
        magnitude[at[role]] += abs(left * right)
        terms[at[role]] += 1
    return value, magnitude, terms


@pytest.mark.every(4)
@pytest.mark.parametrize("seed", range(40))
def test_by_loops_over_everything(seed: int) -> None:
    rng = np.random.default_rng([11, seed])
    while True:
        case = random_case(rng, axes=1 + seed % 3)
        if case.op.solves_for in ("bias_add", "bias"):
            continue
        prepared = prepare(case.op.name, operands_of(case, "integers", seed), case.attributes, case.dtype)
        conv = prepared.problem.geometry
        if isinstance(conv, Conv) and conv.multiply_adds < 20_000:
            break
    given = dict(zip(prepared.problem.operands, prepared.operands, strict=True))
    bias = given.pop("bias", None)
    value, magnitude, terms = brute_force(conv, prepared.problem.solves_for, given)
    if bias is not None:
        column = bias.astype(np.float64).reshape(1, -1, *[1] * len(conv.axes))
        value, magnitude = value + column, magnitude + np.abs(column)
    answer = exact_result.evaluate(prepared.problem, prepared.operands)
    assert np.array_equal(answer.value, value)
    assert np.array_equal(answer.magnitude, magnitude)
    assert np.array_equal(answer.terms, terms)


def test_accumulate_counts_the_old_value() -> None:
    prepared = prepare("BiasAddBackward", (np.array([[1.0, -2.0], [3.0, 4.0]], np.float32),), {}, accumulate=True)
    answer = exact_result.evaluate(prepared.problem, prepared.operands, old=np.array([10.0, -10.0], np.float32))
    assert answer.value.tolist() == [14.0, -8.0]
    assert answer.magnitude.tolist() == [14.0, 16.0]
    assert answer.terms.tolist() == [2, 2]


def test_progress_runs_to_the_end() -> None:
    shares: list[float] = []
    x, w = np.ones((1, 9, 1), np.float32), np.ones((5, 1, 1), np.float32)
    prepared = prepare("Convolution", (x, w), {"strides": [1], "dilations": [1]})
    exact_result.evaluate(prepared.problem, prepared.operands, progress=shares.append)
    assert shares == sorted(shares)
    assert shares[0] == 0
    assert shares[-1] == 0.9
