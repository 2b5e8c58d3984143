"""Forwards and data gradients give the bits of the specified order: of any kind, layout, type, plan and cut."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import convgrad
from convgrad.notation import problem as problem_of
from convgrad.plan.gemm.spec import DENSE, TRANSPOSED, GemmPlan, GemmSpec
from convgrad.plan.kn2row.spec import KN2ROW
from convgrad.plan.machine import ISAS
from convgrad.plan.recipe import SPATIAL
from convgrad.plan.stencils.grouped import GROUPED_STENCIL
from convgrad.plan.stencils.spatial import SPATIAL_STENCIL
from convgrad.spec.geometry import Conv
from convgrad.spec.ordered import evaluate_in_order
from tests.engines.guarded import Placed, run_guarded
from tests.support.engine_helpers import HOST, empty, run_plan
from tests.support.forward_problems import (
    DEALT,
    LIES,
    MIXED,
    NUMBERED,
    OPERATORS,
    PROBLEMS,
    ROLES,
    AnyPlan,
    Small,
    along,
    dealt,
    plans_of,
    posed,
    recut,
    small,
)
from tests.support.hash_problems import operands_of, shape_of, values
from tests.support.helpers import assert_same_bits
from tests.support.tiers import tiers

THREADS = (1, 2, 3, 8)

pytestmark = pytest.mark.skipif(not HOST, reason="no generated kernels run here")


def assert_plan(one: Small, plan: AnyPlan, at_end: bool = True) -> None:
    """Assert the bits of one plan, whose scratch is NaN before and among guard pages."""
    out = one.fresh()
    run_guarded(plan, one.problem, one.operands, out, at_end)
    assert_same_bits(np.ascontiguousarray(out), np.ascontiguousarray(one.expected), (one.words, str(plan)))


@pytest.mark.usefixtures("eight_cores")
@tiers("name, role, threads", list(PROBLEMS), ROLES, THREADS, every=53)
def test_every_kind_of_problem(name: str, role: str, threads: int) -> None:
    """A plan of each for any number of threads, and that plan cut in other ways."""
    number = NUMBERED[name, role]
    one = small(name, role, number)
    plan = dealt(one, number, threads)
    if threads == 1:
        assert_plan(one, plan)
    for cut in (plan, *recut(plan, one.view(), threads)):
        if threads == 1:
            assert_plan(one, cut, at_end=False)
        else:
            got = run_plan(cut, one.problem, one.operands, one.fresh())
            assert_same_bits(got, np.ascontiguousarray(one.expected), (one.words, str(cut)))


@pytest.mark.long
@pytest.mark.parametrize(("number", "name", "role"), list(product(range(DEALT), PROBLEMS, ROLES)))
def test_every_plan(number: int, name: str, role: str) -> None:
    """Problems of one number share kernels."""
    one = small(name, role, number)
    for isa in HOST:
        for at, plan in enumerate(one.plans(ISAS[isa], l2_bytes=1 << 12 + number % 9)):
            assert_plan(one, plan)
            for cut in list(recut(plan, one.view()))[at % 12 :: 12]:
                assert_plan(one, cut, at_end=False)


FEW = [  # the number of a problem, role, layouts, results, taps
    (0, "dst", "NXC XIO", 1, 3),
    (1, "dst", "NCX OIX", 1, 1),
    (2, "dst", "NXC XIO", 25, 2),
    (3, "src", "NXC OIX", 5, 1),
]


@tiers(
    "few, types, accumulate, isa", FEW, (("f32", "f32"), ("bf16", "f32"), ("f16", "f16")), (False, True), HOST, every=9
)
def test_few_results_are_read_in_place(
    few: tuple[int, str, str, int, int], types: tuple[str, str], accumulate: bool, isa: str
) -> None:
    """Loads of fewer results than lanes are masked: nothing beside the weights is read."""
    number, role, lies, results, kernel = few
    count = min(results, 4 * ISAS[isa].lanes - 1)  # a panel has four vectors at most
    channels = (300, count) if role == "dst" else (count, 300)
    problem = posed(Conv(2, 1, *channels, (along(3, kernel),)), role, False, types, lies, accumulate, bias=True)
    bits = np.random.PCG64(number)
    operands = operands_of(problem, bits)
    old = values(shape_of(problem, problem.output), problem.output_format, bits)
    expected = evaluate_in_order(problem, operands, old)
    one = Small(f"{count} results", lies, np.asarray, problem, operands, old, expected)
    met = [plan for plan in one.plans(ISAS[isa]) if isinstance(plan, GemmPlan) and plan.spec.masked]
    assert met, isa
    for at_end in (True, False):
        placed = [Placed(array, array.strides, at_end).array for array in operands]
        assert_plan(replace(one, operands=placed), met[number % len(met)], at_end)


@tiers("types, stride, isa", (("f32", "f32"), ("bf16", "bf16"), ("f16", "f32")), (2, 3, 4, 5), HOST, every=13)
def test_positions_with_a_stride_are_transposed(types: tuple[str, str], stride: int, isa: str) -> None:
    """Up to a stride of four. No memory after the last position is read, nor before the first."""
    for number, positions in enumerate((2, 7, 15, 16, 17, 37)):
        problem = posed(
            Conv(2, 1, 19, 18, (along(positions, 1, stride),)), "dst", False, types, "NCX OIX", False, bias=True
        )
        bits = np.random.PCG64(number)
        operands = operands_of(problem, bits)
        one = Small(
            f"{positions} positions", "NCX OIX", np.asarray, problem, operands,
            values(shape_of(problem, problem.output), problem.output_format, bits),
            evaluate_in_order(problem, operands),
        )  # fmt: skip
        for at_end in (True, False):
            placed = [Placed(array, array.strides, at_end).array for array in operands]
            found = (plan for plan in one.plans(ISAS[isa]) if isinstance(plan, GemmPlan))
            plans = [plan for plan in found if plan.spec.a.contiguous == SPATIAL]
            assert {plan.spec.a.stride for plan in plans} == {stride if stride < 5 else 1}
            assert_plan(replace(one, operands=placed), plans[number % len(plans)], at_end)


@pytest.mark.long
def test_the_table_is_wide() -> None:
    """Every mixture of types, every layout and operator is met, old values too; and all that kernels tell apart."""
    met = [small(*case, number) for case, number in NUMBERED.items()]
    assert {(one.problem.operand_format.name, one.problem.output_format.name) for one in met} == set(MIXED)
    assert {one.lies for one in met} == set(LIES)
    assert {one.problem.operator for one in met} == set(OPERATORS.values())
    assert {one.problem.accumulate for one in met} == {True, False}
    plans = [dealt(one, number) for one, number in zip(met, NUMBERED.values(), strict=True)]
    assert {plan.spec.body for plan in plans} == {DENSE, TRANSPOSED, GROUPED_STENCIL, SPATIAL_STENCIL, KN2ROW}
    specs = [plan.spec for plan in plans if isinstance(plan.spec, GemmSpec)]
    for axes in zip(*((spec.a.contiguous, spec.b.contiguous, spec.out) for spec in specs), strict=True):
        assert len(set(axes)) >= 3
    for operands in ([spec.a for spec in specs], [spec.b for spec in specs]):
        assert {operand.in_place for operand in operands} == {True, False}
    for name in ("single_vector", "bias_per_row", "pairs"):
        assert {getattr(spec, name) for spec in specs} == {True, False}, name
    assert {str(spec.isa) for spec in specs} == set(HOST)


BIASED = ("FWD_B f32 NCX mb2ic40ih7oc24oh7kh1ph0", "FWD_B bf16 NCX mb1ic40ih11oc17oh11kh1ph0")


@tiers("line, isa", BIASED, HOST, every=3)
def test_each_row_has_its_own_bias(line: str, isa: str) -> None:
    """The transposed GEMM has a bias per row of a micro-tile; it differs between rows."""
    one = problem_of(line)
    bits = np.random.PCG64(len(line))
    operands = operands_of(one, bits)
    expected = np.ascontiguousarray(evaluate_in_order(one, operands))
    found = [plan for plan in plans_of(one, operands, empty(one), ISAS[isa])[1] if isinstance(plan, GemmPlan)]
    per_row = [plan for plan in found if plan.spec.bias_per_row]
    assert per_row
    for plan in per_row[::11]:
        got = run_plan(plan, one, operands, empty(one))
        assert_same_bits(np.ascontiguousarray(got), expected, str(plan))


@pytest.mark.parametrize("number", range(2))
def test_the_stride_of_one_channel_is_of_no_meaning(number: int) -> None:
    """Even where it is that of positions, so that the terms of neighbouring taps seem to follow one another."""
    one = posed(PROBLEMS["1 and 1 channels"], ROLES[number], False, ("f32", "f32"), "NCX OIX")
    size = shape_of(one, one.operands[0])[-1]
    apart = np.random.default_rng(number).integers(-4, 5, (3, size, 3)).astype(np.float32)
    data = np.lib.stride_tricks.as_strided(apart, (3, 1, size), (apart.strides[0], 12, 12))
    weights = np.arange(1, 5, dtype=np.float32).reshape(1, 1, 4)
    expected = np.ascontiguousarray(evaluate_in_order(one, [data, weights]))
    for plan in plans_of(one, [data, weights], empty(one), ISAS[HOST[0]])[1][number::3]:
        got = run_plan(plan, one, [data, weights], empty(one))
        assert_same_bits(np.ascontiguousarray(got), expected, str(plan))


@tiers("kind, channels, first", ["f32", "bf16", "f16"], [16, 17], range(12), every=29)
def test_weights_of_few_positions_are_read_in_place(kind: str, channels: int, first: int) -> None:
    """In every format, in the order that terms have, an odd one last; the last panel overlaps the one before."""
    one = problem_of(f"FWD_D {kind} NXC mb2ic{channels}ih3oc70oh1kh3ph0")
    rng = np.random.default_rng(channels)
    shapes = [shape_of(one, tensor) for tensor in one.operands]
    operands = [
        np.moveaxis(rng.standard_normal((shape[0], *shape[2:], shape[1])), -1, 1) if tensor == "src" else
        rng.standard_normal([*shape[2:], shape[1], shape[0]]).transpose(3, 2, 0, 1)
        for tensor, shape in zip(one.operands, shapes, strict=True)
    ]  # fmt: skip
    stored = [values.astype(one.operand_format.dtype, order="K") for values in operands]
    expected = np.ascontiguousarray(evaluate_in_order(one, stored))
    for isa in HOST:
        met = [plan for plan in plans_of(one, stored, empty(one), ISAS[isa])[1] if "B from weights (in" in str(plan)]
        assert met, isa
        for plan in met[first::12]:
            assert_same_bits(np.ascontiguousarray(run_plan(plan, one, stored, empty(one))), expected, str(plan))


@pytest.mark.parametrize(("stride", "dst"), list(product((2, 3, 5), (2, 4, 9))))
def test_an_absent_last_position_of_one_tap(stride: int, dst: int) -> None:
    """The last of the output positions is on the padding, directly behind the image, where the next image begins."""
    src = np.arange(1.0, 2 * (dst - 1) * stride * 16 + 1, dtype=np.float32).reshape(2, (dst - 1) * stride, 16)
    found = convgrad.convolution(src, np.eye(16, dtype=np.float32)[None], strides=(stride,), pads_end=(1,))
    assert found[:, :-1].tolist() == src[:, ::stride].tolist()
    assert not found[:, -1].any()
