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
from convgrad.plan.passes import dense_view, plan, plans, tables, view_of
from convgrad.plan.stencils.spatial import SpatialStencilPlan, nest_of, unsupported
from convgrad.plan.stencils.spatial_schedule import ALONG, PART, TABLES, TASK
from convgrad.spec.ordered import evaluate_in_order
from convgrad.spec.problem import Problem
from tests.engines.guarded import run_guarded
from tests.engines.test_pairs import taken, with_pairs
from tests.support.engine_helpers import HOST, Array, empty, lying, made, run_plan
from tests.support.forward_problems import MIXED, PROBLEMS, plans_of, posed, recut
from tests.support.hash_problems import operands_of, shape_of, values
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
AWAY = (  # planes of padding; planes between those of dst
    "FWD_D f32 NCX g6mb2ic6id3ih5iw9oc6od5oh5ow9kd1kh3kw3pd1ph1pw1",
    "BWD_D f32 NCX g6mb2ic6id5ih5iw9oc6od3oh5ow9kd1kh3kw3sd2ph1pw1",
)
VOLUMES = (  # planes of padding, strides of two and data gradients of them, dilation
    "FWD_D f32 NCX:OIX g3mb2ic3id5ih6iw18oc3od5oh6ow18kd3kh3kw3pd1ph1pw1",
    "FWD_D bf16 NCX:OIX mb2ic2id2ih4iw40oc16od6oh4ow40kd3kh3kw3pd3ph1pw1",
    "BWD_D bf16 NCX:OIX g2mb1ic2id5ih7iw33oc2od3oh4ow17kd3kh3kw3sd2sh2sw2pd1ph1pw1",
    "FWD_D f16 NCX:OIX g2mb1ic4id7ih5iw34oc10od2oh3ow34kd2kh3kw3sd2sh2sw1dd2ph1pw1",
    "BWD_D f32 NCX:OIX g3mb2ic6id6ih3iw9oc3od4oh3ow9kd3kh1kw3pw1",
)
PAIRED = (  # odd and even channels; neighbours and every second position; lines of one vector; groups; three axes
    "FWD_D bf16 NCX:OIX mb2ic3ih5iw37oc16oh5ow37kh3kw3ph1pw1",
    "FWD_D bf16 NCX:OIX mb2ic4ih6iw71oc8oh3ow36kh3kw4sh2sw2ph1pw2",
    "FWD_D bf16 NCX:OIX g3mb1ic15ih4iw15oc12oh4ow15kh2kw3ph1pw1",
    "BWD_D bf16 NCX:OIX g2mb2ic10ih4iw40oc8oh2ow20kh2kw3sh2sw2pw1",
    "BWD_D bf16 NCX:OIX g3mb2ic6id3ih3iw20oc9od3oh3ow20kd3kh1kw3pd1ph0pw1",
)
SMALL = (("groups along rows", "dst"), ("depthwise", "dst"), ("depthwise", "src"))


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


@pytest.mark.parametrize("line", OTHERS)
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


@pytest.mark.skipif(not HOST, reason="no generated kernels run here")
@tiers("line, first", AWAY, range(3), every=4)
def test_positions_that_meet_no_input_are_zeros(line: str, first: int) -> None:
    """Where an outer axis has one tap, which some positions meet and others do not, no plan sums for the others."""
    one, operands = made(line)
    out = empty(one)
    found = plans(one, view_of(one, [each.strides for each in operands], out.strides), Machine(ISAS[HOST[-1]]), 1)
    expected = evaluate_in_order(one, operands)
    assert (expected == 0).any()
    assert len(found) > 1
    for each in found:
        assert not isinstance(each, SpatialStencilPlan)
    for each in found[first::3]:
        assert_same_bits(run_plan(each, one, operands, empty(one)), expected, f"{line} {each}")


@pytest.mark.skipif(not HOST, reason="no generated kernels run here")
@tiers("number, name, role", [(n, *case) for n, case in enumerate(SMALL)], every=2)
def test_planes_give_the_bits_of_the_order(number: int, name: str, role: str) -> None:
    """Old values and bias too, among guard pages: nothing beside a plane is read."""
    one = posed(PROBLEMS[name], role, number % 4 == 3, MIXED[4 * number % 9], "NCX OIX", number % 3 == 2, bias=True)
    assert_stencils(one, number, slice(number % 2, None, 2))


def assert_stencils(
    one: Problem, number: int, some: slice, infinite: bool = False, operands: list[Array] | None = None
) -> None:
    """Assert that stencils of a problem, or all if ``some`` has none, give the bits of the order in all divisions.

    If operands are given, those of pairs only. If ``infinite`` is true, the first or the last weight is inf or NaN: its
    products with padding must not be computed.
    """
    bits = np.random.PCG64(number)
    given = operands or operands_of(one, bits)
    if infinite:
        weights = given[list(one.operands).index("weights")]
        weights[(number % 2 - 1,) * weights.ndim] = (np.nan, np.inf)[number // 2 % 2]
    old = lying(values(shape_of(one, one.output), one.output_format, bits), one.layouts[-1])
    expected = np.ascontiguousarray(evaluate_in_order(one, given, old))
    paired = [with_pairs(("fused", "flushed")[number % 2]), *(isa for isa in isas.host_isas() if isa.pairs)]
    plain = [ISAS[HOST[number % len(HOST)]]] if operands is None else []
    for isa in (*plain, paired[number // 2 % len(paired)]):
        view, found = plans_of(one, given, old, isa)
        if isa.pairs and (one.operand_format is not BF16 or min(nest_of(view).k, nest_of(view).n) == 1):
            continue
        chosen = [each for each in found if isinstance(each, SpatialStencilPlan) and each.in_pairs == bool(isa.pairs)]
        assert chosen, "the problem has spatial stencils"
        for at, each in enumerate(cut for one_way in chosen[some] or chosen for cut in recut(one_way, view)):
            out = lying(np.array(old), one.layouts[-1])
            run_guarded(each, one, given, out, at % 2 == 0)
            assert_same_bits(np.ascontiguousarray(out), expected, (number, str(each)))


def geometries() -> list[str]:
    """Geometries with all strides, dilations and paddings that spatial stencils have, and widths around the lanes."""
    rng = np.random.default_rng(11)
    lines = list[str]()
    while len(lines) < 48:
        groups, src, dst = int(rng.integers(1, 6)), int(rng.choice([1, 1, 2, 3])), int(rng.choice([1, 1, 2, 5, 8]))
        if groups == 1:  # output channels are divided into groups of eight
            src, dst = (src, 16) if len(lines) % 2 == 0 else (16, dst)
        words = [f"g{groups}mb{rng.integers(1, 4)}ic{groups * src}oc{groups * dst}"]
        for axis in "hw"[len(lines) % 3 == 0 :]:
            kernel, stride, dilation = (int(rng.choice(some)) for some in ([1, 2, 3, 4, 5], [1, 1, 2], [0, 0, 1, 2]))
            stride = min(stride, kernel)  # positions that no tap meets are not contiguous for the kernel
            extent, pads = int(rng.choice([1, 7, 8, 15, 16, 17, 31, 32, 33, 64, 66])), rng.integers(0, kernel + 2, 2)
            out = (extent + int(pads.sum()) - (kernel - 1) * (dilation + 1) - 1) // stride + 1
            words.append(f"i{axis}{extent}o{axis}{out}k{axis}{kernel}s{axis}{stride}d{axis}{dilation}p{axis}{pads[0]}")
            if out < 1:
                break
        else:
            direction, fmt = ("FWD_D", "BWD_D")[len(lines) % 2], ("f32", "bf16", "f32", "f16")[len(lines) // 2 % 4]
            lines.append(f"{direction} {fmt} NCX:OIX {''.join(words)}")
    return lines


@pytest.mark.skipif(not HOST, reason="no generated kernels run here")
@tiers("number, line", list(enumerate(geometries())), every=13)
def test_bits_of_strides_dilations_and_pads(number: int, line: str) -> None:
    assert_stencils(replace(problem(line), accumulate=number % 4 == 1), number, slice(None), number // 8 % 2 == 1)


@pytest.mark.every(8)
@pytest.mark.skipif(not HOST, reason="no generated kernels run here")
@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("fmt", ["f32", "bf16"])
def test_lines_that_end_with_a_vector(number: int, fmt: str) -> None:
    """The last vector of each line needs one input of padding."""
    line = f"FWD_D {fmt} NCX:OIX g3mb1ic3oc3ih5iw64oh5ow64kh3kw3ph1pw1"
    assert_stencils(problem(line), number, slice(None), number % 2 == 1)


@pytest.mark.skipif(not HOST, reason="no generated kernels run here")
@tiers("case, first", list(enumerate(2 * PAIRED)), range(9), every=53)
def test_bits_of_pairs(case: tuple[int, str], first: int) -> None:
    """In the second half, a weight is infinite or NaN, so that no pair is taken."""
    number, line = case
    one, operands = made(line)
    found = plans_of(one, operands, empty(one), with_pairs("flushed"))[1]
    each = next(each for each in found if isinstance(each, SpatialStencilPlan) and each.in_pairs)
    _, (pairs, single) = taken(each, one, operands, MIN_EXPONENT_SUM)
    assert pairs > 0 == single
    assert_stencils(one, number, slice(first, None, 9), number >= len(PAIRED), operands)


@pytest.mark.every(4)
@pytest.mark.skipif(not HOST, reason="no generated kernels run here")
@pytest.mark.parametrize("line", PAIRED)
def test_no_pair_where_one_number_is_denormal(line: str) -> None:
    """The first or the last number of the data or of the weights; the instruction would flush it to zero."""
    one, operands = made(line)
    one = replace(one, output_format=F32)
    _, found = plans_of(one, operands, empty(one), with_pairs("flushed"))
    each = next(each for each in found if isinstance(each, SpatialStencilPlan) and each.in_pairs)
    for where, place in product((0, 1), (0, -1)):
        for at, array in enumerate(operands):
            array[...] = at != where
        operands[where].view(np.uint16)[(place,) * operands[where].ndim] = 0x0001
        expected = np.ascontiguousarray(evaluate_in_order(one, operands, empty(one)))
        assert expected.any()
        assert_same_bits(run_plan(each, one, operands, empty(one)), expected, (where, place, str(each)))


@pytest.mark.skipif(not HOST, reason="no generated kernels run here")
@tiers("number, line", list(enumerate(4 * VOLUMES)), every=5)
def test_bits_of_taps_along_three_axes(number: int, line: str) -> None:
    """In every second problem, weights are infinite."""
    one = replace(problem(line), accumulate=number % 4 == 3)
    assert_stencils(one, number, slice(None), number % 2 == 1)
