"""NaN and infinity in forwards and data gradients: they reach what existing taps say, and change no other bit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from convgrad.spec.geometry import Axis, Conv
from convgrad.spec.ordered import evaluate_in_order
from tests.engines.guarded import run_guarded
from tests.support.engine_helpers import HOST, Array, run_plan
from tests.support.forward_problems import CASES, NUMBERED, PROBLEMS, ROLES, Small, dealt, recut, small
from tests.support.helpers import assert_same_bits
from tests.support.tiers import tiers

# NaNs with sign and payload.
SIGNALLING = {"f32": 0xFFA12345, "bf16": 0xFFA1, "f16": 0xFD23, "f8_e4m3": 0xFF, "f8_e5m2": 0xFD}
POISONS = 9  # of a problem
FEW = {case: number % 8 for case, number in NUMBERED.items()}  # all types, and few kernels

pytestmark = pytest.mark.skipif(not HOST, reason="no generated kernels run here")


def assert_bits(one: Small, expected: Array, number: int, words: object) -> None:
    """Assert the bits of the plan that a number deals, and of one cut of it."""
    plan = dealt(one, number)
    cuts = list(recut(plan, one.view()))
    for each in (plan, cuts[number % len(cuts)]):
        got = run_plan(each, one.problem, one.operands, one.fresh())
        assert_same_bits(got, np.ascontiguousarray(expected), (one.words, words, str(each)))


def poisoned(one: Small, rng: np.random.Generator) -> Iterator[str]:
    """Put NaN, inf, -inf somewhere in each array in turn, the value before among them: at first and last items too."""
    tensors = dict(zip((*one.problem.operands, "old"), (*one.operands, one.old), strict=True))
    if not one.problem.accumulate:
        del tensors["old"]
    for at in range(POISONS):
        name = list(tensors)[at % len(tensors)]
        array = tensors[name]
        index = tuple(int(rng.choice([0, n - 1, rng.integers(n)])) for n in array.shape)
        fmt = one.problem.output_format if name == "old" else one.problem.operand_format
        nan = np.array([SIGNALLING[fmt.name]], f"u{array.itemsize}").view(array.dtype)[0]
        before, array[index] = array[index], (nan, np.inf, -np.inf)[at // len(tensors) % 3]
        yield f"{array[index]} at {index} of {name}"
        array[index] = before


@tiers("name, role", list(PROBLEMS), ROLES, every=61)
def test_poison_reaches_existing_taps_only(name: str, role: str) -> None:
    number = FEW[name, role]
    one, reached = small(name, role, number), 0
    for words in poisoned(one, np.random.default_rng([91, number])):
        expected = evaluate_in_order(one.problem, one.operands, one.old)
        reached += not np.isfinite(expected.astype(np.float32)).all()
        assert_bits(one, expected, number, words)
    assert reached or name == "positions that meet nothing"


# -- what no tap meets -------------------------------------------------------------------------------------------------


def met_by(axis: Axis) -> tuple[Array, Array, Array]:
    """Tell which taps, source positions and destination positions of an axis meet any."""
    k, p = np.ogrid[: axis.kernel, : axis.dst]
    i = p * axis.stride + k * axis.dilation - axis.pad_begin
    exists = (i >= 0) & (i < axis.src)
    return exists.any(axis=1), np.isin(np.arange(axis.src), i[exists]), exists.any(axis=0)


def unmet(conv: Conv, tensor: str) -> Array:
    """Tell which taps or positions of a tensor, of all of them, meet nothing."""
    found = np.ones((), bool)
    for axis in conv.axes:
        found = np.logical_and.outer(found, met_by(axis)[("weights", "src", "dst").index(tensor)])
    return ~found


UNMET = [
    (name, role)
    for name, role in CASES
    if any(unmet(PROBLEMS[name], tensor).any() for tensor in ("weights", {"dst": "src", "src": "dst"}[role]))
]


@tiers("name, role", UNMET, every=11)
def test_what_no_tap_meets_is_never_multiplied(name: str, role: str) -> None:
    """All taps that never exist, and all positions that no tap meets, are NaN: results are as they were, finite."""
    number = FEW[name, role]
    one = small(name, role, number)
    for tensor, array in zip(one.problem.operands, one.operands, strict=True):
        if tensor != "bias":
            array[:, :, unmet(PROBLEMS[name], tensor)] = np.nan
    if one.problem.output_format.name == "f32":
        assert np.isfinite(one.expected).all()
    assert any(np.isnan(array.astype(np.float32)).any() for array in one.operands)
    assert_bits(one, one.expected, number, "NaN where nothing is met")


def test_there_are_problems_with_taps_and_positions_that_meet_nothing() -> None:
    assert {role for _, role in UNMET} == set(ROLES)
    taps = [name for name, _ in UNMET if unmet(PROBLEMS[name], "weights").any()]
    assert len(set(taps)) >= 3
    assert len({name for name, _ in UNMET} - set(taps)) >= 3


# -- sums beyond the largest number ------------------------------------------------------------------------------------

LARGE = ("dense", "17 blocks", "3 and 16 channels", "one tap, 600 channels", "dilated and strided", "groups")


@pytest.mark.every(2)
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("name", LARGE)
def test_sums_beyond_the_largest_number(name: str, role: str) -> None:
    """Operands are finite, some sums are not: infinity, or NaN where two meet, as the order has it."""
    number = 2 * (FEW[name, role] // 2)  # f32
    one = small(name, role, number)
    sometimes = np.finfo(np.float32).max / np.quantile(np.abs(one.expected), 0.7)
    for array in one.operands[:2]:
        array[...] *= np.sqrt(sometimes)
    expected = evaluate_in_order(one.problem, one.operands, one.old)
    assert np.isinf(expected).any()
    assert np.isfinite(expected).any()
    assert_bits(one, expected, number, "large")


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("role", ROLES)
def test_a_kernel_reads_nothing_that_is_not_its_own(role: str, value: float) -> None:
    """Scratch, out and what lies between strided elements are NaN, and operands zeros but for one: results say so."""
    one = small("dense", role, 4)
    for array in one.operands:
        array[...] = 0
    one.operands[0][0, 0, 1, 1], one.operands[1][...] = value, 1
    expected = evaluate_in_order(one.problem, one.operands, one.old)
    strange = ~np.isfinite(expected)
    assert 0 < strange.sum() < strange.size / 2
    out = one.fresh()
    run_guarded(dealt(one, 4), one.problem, one.operands, out, True)
    assert_same_bits(np.ascontiguousarray(out), np.ascontiguousarray(expected), one.words)
