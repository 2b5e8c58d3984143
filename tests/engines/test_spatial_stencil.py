"""Small groups whose positions lie together: the bits of the order, which problems have such plans, their tables."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from convgrad.engines.llvm import isas
from convgrad.formats import BF16, F32
from convgrad.notation import problem
from convgrad.plan.machine import ISAS, Machine
from convgrad.plan.pairs import MIN_EXPONENT_SUM
from convgrad.plan.passes import dense_view, plan, plans, tables
from convgrad.plan.stencils.spatial import SpatialStencilPlan, unsupported
from convgrad.plan.stencils.spatial_schedule import ALONG, PART, TABLES, TASK
from convgrad.spec.geometry import Axis, Conv
from convgrad.spec.ordered import evaluate_in_order
from convgrad.spec.problem import Problem
from tests.engines.guarded import Placed, run_guarded
from tests.engines.plan_rows import AWAY
from tests.engines.test_pairs import taken, with_pairs
from tests.support.engine_helpers import HOST, Array, empty, lying, made, run_plan
from tests.support.forward_problems import MIXED, plans_of, posed, recut, sums_of
from tests.support.hash_problems import shape_of, values
from tests.support.helpers import assert_same_bits
from tests.support.tiers import tiers

CHOSEN = (
    "FWD_D f32 NCX g32mb4ic256ih28oc256oh28kh3ph1",
    "BWD_D f32 NCX g32mb4ic128ih56oc128oh56kh3ph1",
    "FWD_D f32 NCX g16mb4ic96ih28oc160oh28kh3ph1",
    "BWD_D bf16 NCX g32mb4ic256ih28oc256oh28kh3ph1",
    "FWD_D f16 NCX g768mb4ic768iw4096oc768ow4096kw4pw1",
    "FWD_D f32 NCX g96mb4ic96ih112oc96oh56kh3sh2ph1",
    "BWD_D f32 NCX g96mb4ic96ih112oc96oh56kh3sh2ph1",
    "FWD_D f32 NCX mb64ic3ih32oc64oh32kh3ph1",
    "BWD_D f32 NCX mb4ic64ih128oc1oh128kh1ph0",
    "FWD_D f32 NCX g64mb2ic64id16oc64od16kd3pd1",
)
OTHERS = (  # positions are not contiguous; neighbours are three apart; 12 results; too many taps, of two and three axes
    "FWD_D f32 NXC g192mb4ic192ih28oc192oh28kh3ph1",
    "FWD_D f32 NCX g96mb4ic96ih112oc96oh38kh3sh3ph1",
    "BWD_D f32 NCX g96mb4ic96ih112oc96oh38kh3sh3ph1",
    "FWD_D f32 NCX mb4ic8ih56oc12oh56kh3ph1",
    "FWD_D f32 NCX g64mb4ic64ih28oc64oh28kh11ph5",
    "FWD_D f32 NCX g64mb2ic64id16oc64od16kd5pd2",
)
PAIRED = (  # odd and even channels; neighbours and every second position; lines of one vector; groups; three axes
    "FWD_D bf16 NCX:OIX mb2ic3ih5iw37oc16oh5ow37kh3kw3ph1pw1",
    "FWD_D bf16 NCX:OIX mb2ic4ih6iw71oc8oh3ow36kh3kw4sh2sw2ph1pw2",
    "FWD_D bf16 NCX:OIX g3mb1ic15ih4iw15oc12oh4ow15kh2kw3ph1pw1",
    "BWD_D bf16 NCX:OIX g2mb2ic10ih4iw40oc8oh2ow20kh2kw3sh2sw2pw1",
    "BWD_D bf16 NCX:OIX g3mb2ic6id3ih3iw20oc9od3oh3ow20kd3kh1kw3pd1ph0pw1",
)
OF_ONE_IMAGE = (  # four axes, the first of which has taps, or positions that meet no input
    Conv(1, 2, 4, 4, (Axis(3, 2, 2), Axis(2, 2, 1), Axis(3, 3, 3, pad_begin=1, pad_end=1), Axis(20, 19, 2))),
    Conv(1, 2, 4, 4, (Axis(2, 4, 1, pad_begin=1, pad_end=1), Axis(3, 2, 2), Axis(3, 2, 2), Axis(20, 19, 2))),
)


@pytest.mark.parametrize("line", CHOSEN)
def test_planes_are_taken(line: str) -> None:
    one = problem(line)
    for threads in (1, 2):
        view = dense_view(one)
        chosen = plan(one, view, Machine(ISAS["avx512"]), threads)
        assert isinstance(chosen, SpatialStencilPlan), threads
        made = tables(one, view, chosen)
        phases = sum(len(axis.phases) for axis in view.axes[-2:])
        rows = {"tasks": chosen.tasks, "parts": sum(len(axis.parts) for axis in view.axes[:-2]) + phases}
        assert {name: made.tables[name].shape for name in TABLES.columns} == {
            name: (rows[name], len(record.columns)) for name, record in (("tasks", TASK), ("parts", PART))
        }
        assert len([name for name in made.numbers if name.startswith("axis")]) == len(ALONG.columns) * len(view.axes)


@pytest.mark.parametrize("line", [*OTHERS, *AWAY])
def test_others_have_none(line: str) -> None:
    one = problem(line)
    found = plans(one, dense_view(one), Machine(ISAS["avx512"]), 1)
    assert not any(isinstance(each, SpatialStencilPlan) for each in found)


def test_lanes_count_positions_in_32_bits() -> None:
    """Where a line has more, its positions would wrap."""
    for extent, there in ((1 << 29, True), (1 << 30, False)):
        one = problem(f"FWD_D f32 NCX g2mb1ic2iw{extent}oc2ow{extent}kw3pw1")
        assert (unsupported(one, dense_view(one), ISAS["avx512"]) == "") == there
    padded = problem(f"FWD_D f32 NCX g16mb1ic16ih4iw64oc16oh4ow64kh1kw2dw{(1 << 32) - 1}pw{1 << 32}")
    assert "positions" in unsupported(padded, dense_view(padded), ISAS["avx512"])


def assert_pairs(one: Problem, number: int, some: slice, infinite: bool, given: list[Array]) -> None:
    """Assert that stencils of pairs, or all if ``some`` has none, give the bits of the order in all divisions.

    If ``infinite`` is true, the first or the last weight is inf or NaN: its products with padding must not be computed.
    """
    if infinite:
        weights = given[list(one.operands).index("weights")]
        weights[(number % 2 - 1,) * weights.ndim] = (np.nan, np.inf)[number // 2 % 2]
    old = lying(values(shape_of(one, one.output), one.output_format, np.random.PCG64(number)), one.layouts[-1])
    expected = np.ascontiguousarray(evaluate_in_order(one, given, old))
    paired = [with_pairs(("fused", "flushed")[number % 2]), *(isa for isa in isas.host_isas() if isa.pairs)]
    view, found = plans_of(one, given, old, paired[number // 2 % len(paired)])
    chosen = [each for each in found if isinstance(each, SpatialStencilPlan) and each.in_pairs]
    assert chosen, "the problem has spatial stencils"
    for at, each in enumerate(cut for one_way in chosen[some] or chosen for cut in recut(one_way, view)):
        out = lying(np.array(old), one.layouts[-1])
        run_guarded(each, one, given, out, at % 2 == 0)
        assert_same_bits(np.ascontiguousarray(out), expected, (number, str(each)))


@pytest.mark.skipif(not HOST, reason="no generated kernels run here")
@tiers("case, first", list(enumerate(2 * PAIRED)), range(19), every=101)
def test_bits_of_pairs(case: tuple[int, str], first: int) -> None:
    """In the second half, a weight is infinite or NaN, so that no pair is taken."""
    number, line = case
    one, operands = made(line)
    found = plans_of(one, operands, empty(one), with_pairs("flushed"))[1]
    each = next(each for each in found if isinstance(each, SpatialStencilPlan) and each.in_pairs)
    _, (pairs, single) = taken(each, one, operands, MIN_EXPONENT_SUM)
    assert pairs > 0 == single
    assert_pairs(one, number, slice(first, None, 19), number >= len(PAIRED), operands)


@pytest.mark.every(7)
@pytest.mark.skipif(not HOST, reason="no generated kernels run here")
@pytest.mark.parametrize("line", PAIRED)
def test_no_pair_where_one_number_is_denormal(line: str) -> None:
    """The first or the last number of the data or of the weights; the instruction would flush it to zero."""
    assert_no_pair(*made(line))


@pytest.mark.skipif(not HOST, reason="no generated kernels run here")
@pytest.mark.parametrize("conv", OF_ONE_IMAGE, ids=("taps", "padding"))
def test_planes_of_one_image(conv: Conv) -> None:
    """No plane is missed where pairs are allowed, and none is read that is not there."""
    one = replace(posed(conv, "dst", False, MIXED[0], "NCX OIX"), operand_format=BF16)
    placed = [
        Placed(array, array.strides, True) for array in (np.ones(shape_of(one, t), BF16.dtype) for t in one.operands)
    ]
    assert_no_pair(one, [each.array for each in placed])


def assert_no_pair(one: Problem, operands: list[Array]) -> None:
    one = replace(one, output_format=F32)
    _, found = plans_of(one, operands, empty(one), with_pairs("flushed"))
    each = min((each for each in found if isinstance(each, SpatialStencilPlan) and each.in_pairs), key=sums_of)
    for where, place in product((0, 1), (0, -1)):
        for at, array in enumerate(operands):
            array[...] = at != where
        operands[where].view(np.uint16)[(place,) * operands[where].ndim] = 0x0001
        expected = np.ascontiguousarray(evaluate_in_order(one, operands, empty(one)))
        assert expected.any()
        assert_same_bits(run_plan(each, one, operands, empty(one)), expected, (where, place, str(each)))
