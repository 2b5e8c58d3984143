"""Operands that are read where they lie, and tasks that share a part of the weights: the specified bits every way."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from convgrad import engines
from convgrad.engines.llvm import jit
from convgrad.engines.llvm.driver import module_of
from convgrad.engines.llvm.execute import executable_of
from convgrad.formats import FORMATS
from convgrad.notation import problem
from convgrad.plan.machine import ISAS, Machine
from convgrad.plan.split_k.recipe import SplitKPlan
from convgrad.spec import exact_result
from convgrad.spec.geometry import Axis, Conv
from convgrad.spec.ordered import evaluate_in_order
from convgrad.spec.problem import Problem
from tests.engines.guarded import Placed, run_guarded
from tests.support.engine_helpers import HOST, Array, empty, made, plans_for, run_plan
from tests.support.helpers import assert_same_bits
from tests.support.tiers import tiers

PARTS = (1, 2, 3, 8)  # of the batch
LINES = [
    "BWD_W f32 NXC g32mb3ic32ih14oc32oh14kh3ph1",  # one block an image
    "BWD_W f32 NXC g17mb2ic17ih20oc17oh20kh3ph1",  # one group in the last panel; two blocks
    "BWD_W f32 NXC g31mb40ic31ih5oc31oh5kh3ph1",  # packed images, 10 a block
    "BWD_W bf16 NXC g40mb9ic40ih9oc40oh5kh3sh2ph1",  # taps that slide by two
    "BWD_W f16 NXC g33mb2ic33ih12oc33oh12kh5ph2",
    "BWD_W f32 NXC g16mb5ic16ih10oc16oh10kh7ph3",  # several tiles of taps
    "BWD_W f32 NXC g48mb2ic48ih13oc48oh13kh3ph2dh1",  # dilated: nothing slides
    "BWD_W f32 NXC g16mb8ic16ih20oc16oh8kh3sh2dh1ph0",  # stride and dilation: by one
    "BWD_W bf16 NXC g64mb7ic64ih19oc64oh7kh2sh3ph1",  # stride beyond the kernel
    "BWD_W f32 NXC g16mb2ic16iw700oc16ow700kw4pw2",  # rows cut every 256, segments every 64
    "BWD_W f32 NXC g24mb9ic24ih18oc24oh18kh1ph0",  # pointwise
    "BWD_W f32 NXC g20mb3ic20ih4oc20oh4kh9ph4",  # the kernel is larger than the image
    "BWD_W f32 NXC g33mb2ic33id4ih6iw5oc33od4oh6ow5kd3kh3kw3pd1ph1pw1",
    "BWD_W f32 NXC g16mb1ic16ih64oc16oh70kh3ph4",  # rows that see padding only
    "BWD_W f32 NXC g64mb64ic64ih5oc64oh1kh5sh36028797018963968ph0",  # the next position is nowhere in 2^64 bytes,
    "BWD_W f32 NXC g64mb9ic64ih5iw14oc64oh2ow14kh5kw3sh36028797018963968ph36028797018963968pw1",  # nor the first
]


DENSE = (  # few channels, whose other operand is read in place
    "BWD_W f32 NXC mb3ic1ih20oc32oh20kh5ph2",
    "BWD_W f32 NXC mb9ic3ih11oc64oh11kh3ph1",
    "BWD_W f32 NXC mb2ic3iw700oc16ow700kw7pw3",  # two blocks of a row
    "BWD_W f32 NXC mb5ic4ih23iw9oc48oh12ow9kh3kw3sh2ph1pw1",
    "BWD_W f32 NXC mb4ic2ih19iw40oc16oh19ow36kh3kw3dw1ph1pw0",
    "BWD_W f32 NXC g2mb3ic4ih9oc64oh9kh3ph1",
    "BWD_W f32 NXC mb4ic16ih20oc3oh20kh1ph0",  # one tap, one panel of rows
    "BWD_W f32 NXC mb4ic2ih20oc64oh20kh1ph0",
)


def strips_of(one: Problem, operands: list[Array], isa: str, l2_bytes: int = 1 << 20) -> list[SplitKPlan]:
    plans = plans_for(one, operands, empty(one), ISAS[isa], l2_bytes=l2_bytes)
    return [plan for plan in plans if plan.strategy == "depthwise"]


def dense_in_place(one: Problem, operands: list[Array], isa: str, l2_bytes: int) -> list[SplitKPlan]:
    plans = plans_for(one, operands, empty(one), ISAS[isa], l2_bytes=l2_bytes)
    return [plan for plan in plans if plan.spec.b.in_place and not plan.spec.groups_in_lanes]


def in_parts(plan: SplitKPlan, parts: int) -> SplitKPlan:
    """The plan on two threads, its batch in parts; its groups in two where there are so many panels."""
    others = (1 + parts % 2, 1, 1, 1) if plan.strategy == "depthwise" else plan.parts[:-1]
    return replace(plan, parts=(*others, parts), threads=2)


@tiers("line, isa", LINES, HOST, every=23)
def test_strips_give_the_specified_bits(line: str, isa: str) -> None:
    one, operands = made(line)
    expected = evaluate_in_order(one, operands)
    plans = strips_of(one, operands, isa)
    assert plans, "no depthwise kernel"
    for plan in plans[:3] + plans[3::4]:
        for parts in PARTS:
            got = run_plan(in_parts(plan, parts), one, operands, empty(one))
            assert_same_bits(got, expected, (line, parts, str(plan)))


@tiers("line, isa", [*LINES, *DENSE], HOST, every=13)
def test_no_byte_beside_is_touched(line: str, isa: str) -> None:
    """Guard pages beside operands, output, scratch and what tasks share; rows and images forwards and backwards."""
    one, operands = made(line)
    expected = evaluate_in_order(one, operands)
    for at_end, turn, l2_bytes in ((True, 1, 1 << 12), (False, 1, 1 << 20), (True, -1, 1 << 20), (False, -1, 1 << 12)):
        turns = [(turn, 1, *(turn for _ in a.shape[2:])) for a in operands]
        strides = [tuple(np.multiply(a.strides, by).tolist()) for a, by in zip(operands, turns, strict=True)]
        out_at = Placed(empty(one), empty(one).strides, at_end)
        given, out = [Placed(a, s, at_end).array for a, s in zip(operands, strides, strict=True)], out_at.array
        plans = (dense_in_place if line in DENSE else strips_of)(one, given, isa, l2_bytes)
        assert plans, "nothing is read in place"
        for plan, parts in product(plans[:6:2] if line in DENSE else plans[:6:5], (1, 3)):
            out[...] = np.nan
            cut = in_parts(plan, parts)
            run_guarded(cut, one, given, out, at_end)
            assert_same_bits(np.ascontiguousarray(out), expected, (line, at_end, turn, str(cut)))
        assert out_at.intact()


@pytest.mark.parametrize("isa", HOST)
def test_what_two_panels_share_is_added_to_once(isa: str) -> None:
    """The last panel of groups overlaps the one before; with ``accumulate`` an output written twice would show."""
    for output in ("f32", "bf16"):
        one, operands = made("BWD_W f32 NXC g17mb3ic17ih12oc17oh12kh3ph1")
        one = replace(one, accumulate=True, output_format=FORMATS[output])
        old = np.random.default_rng(5).standard_normal(empty(one).shape).astype(one.output_format.dtype)
        expected = evaluate_in_order(one, operands, old)
        for plan in strips_of(one, operands, isa)[:4]:
            for parts in PARTS:
                out = empty(one)
                out[...] = old
                assert_same_bits(run_plan(in_parts(plan, parts), one, operands, out), expected, plan)


@tiers("line, isa", LINES[1:9:2], HOST, every=3)
def test_what_is_not_finite_stays_where_it_belongs(line: str, isa: str) -> None:
    """At edges a tap that does not exist meets nothing, whatever lies there."""
    one, operands = made(line)
    clean, rng = evaluate_in_order(one, operands), np.random.default_rng(7)
    plan, *others = strips_of(one, operands, isa)
    calls = [executable_of(each, one, operands, empty(one)) for each in (plan, in_parts(others[0], 2))]
    for number in range(60):
        array = operands[number % 2]
        index = tuple(int(rng.integers(n)) if rng.random() < 0.5 else int(rng.choice([0, n - 1])) for n in array.shape)
        before, array[index] = array[index], (np.nan, np.inf, -np.inf)[number % 3]
        answer = exact_result.evaluate(one, operands, None)
        strange = ~np.isfinite(answer.value)
        expected = np.where(strange, answer.rounded(one), clean)
        for call in calls:
            out = empty(one)
            call.execute(operands, out)
            assert_same_bits(np.ascontiguousarray(out), expected, (line, index))
        array[index] = before


@pytest.mark.parametrize("isa", HOST)
def test_an_empty_axis_of_src(isa: str) -> None:
    """No plan of the library's choice comes here: little is to be done where nothing is met."""
    conv = Conv(9, 64, 64, 64, (Axis(0, 30, 3, pad_begin=16, pad_end=16), Axis(30, 30, 3, pad_begin=1, pad_end=1)))
    one = replace(problem(LINES[0]), geometry=conv)
    shapes = {"src": conv.src_shape, "dst": conv.dst_shape}
    operands = [np.moveaxis(np.ones((n, *x, c), np.float32), -1, 1) for n, c, *x in map(shapes.get, one.operands)]
    for plan in strips_of(one, operands, isa):
        assert not run_plan(plan, one, operands, empty(one)).any()


def test_a_mobile_layer_is_read_where_it_lies() -> None:
    line = "BWD_W f32 NXC g192mb8ic192ih28oc192oh28kh3ph1"
    one, operands = made(line, "integers")
    best, *_ = plans_for(one, operands, empty(one), ISAS["avx512"], threads=2)
    assert best.strategy == "depthwise"
    assert best.parts[-1] > 1, "images are cut: channels would leave each thread a part of every line"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("BWD_W f32 NCX g32mb3ic32ih14oc32oh14kh3ph1", "channels are not contiguous"),
        ("BWD_W f32 NXC g15mb3ic15ih34oc15oh34kh3ph1", "there are fewer than 16 groups"),
        ("BWD_W f32 NXC g16mb3ic32ih14oc32oh14kh3ph1", "a group has 2 channels"),
        ("BWD_W f32 NXC g16mb1ic16ih5oc16oh5kh3ph1", "the problem is too small for a kernel of its own"),
    ],
)
def test_why_not_depthwise(line: str, reason: str) -> None:
    one = problem(line)
    machine = engines.machine_of(one)
    assert machine is not None
    assert reason in {r.reason for r in engines.plan_of(one, machine, 1).rejected if r.strategy == "depthwise"}


@tiers(
    "line, isa",
    [
        "BWD_W f32 NXC mb8ic20ih13oc33oh13kh3ph1",
        "BWD_W f32 NCX mb40ic5ih5oc40oh5kh3ph1",
        "BWD_W bf16 NXC mb7ic3ih20oc40oh10kh5sh2ph2",
        "BWD_W f16 NCX g4mb3ic16ih9oc24oh9kh3ph1",
        "BWD_W f32 NXC mb300ic2iw1oc18ow1kw1pw0",  # two levels of units
    ],
    HOST,
    every=5,
)
def test_tasks_that_share_weights_join_in_order(line: str, isa: str) -> None:
    """Every kernel, its batch in parts: each image's sum waits for the others', whoever comes last joins them."""
    one, operands = made(line)
    expected = evaluate_in_order(one, operands)
    for plan in plans_for(one, operands, empty(one), ISAS[isa], l2_bytes=1 << 14)[::9]:
        for parts in (2, 3, 100):
            for weights in ((1, 1, 1, 1), (1, 2, 1, 1)):
                cut = replace(plan, parts=(*weights, parts), threads=2)
                assert_same_bits(run_plan(cut, one, operands, empty(one)), expected, (line, str(cut)))


def test_strips_spill_no_sums() -> None:
    """The inner loop of a full tile on AVX-512: as many multiply-adds as taps, all on registers."""
    one, operands = made(LINES[0])
    for plan in strips_of(one, operands, "avx512")[::3]:
        text = jit.assembly(module_of(plan.spec), ISAS["avx512"], "znver5")
        strip = text[text.index("\ndepthwise:") : text.index("\ncombine:")]
        for line in strip.splitlines():
            stacked = "rsp" in line and ("zmm" in line)
            assert not stacked, (str(plan.spec), line)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    ("line", "there"),
    [
        (DENSE[0], True),
        (DENSE[0].replace("oc32", "oc33"), False),  # no whole vectors: the last would run over
        (DENSE[0].replace("oc32", "oc128"), False),  # positions far apart,
        ("BWD_W f32 NXC g16mb8ic48ih56oc1024oh56kh3ph1", False),  # of all groups together
        (DENSE[0].replace("f32", "bf16"), False),
    ],
)
def test_what_is_read_in_place(line: str, there: bool, isa: str) -> None:
    """As plans say for made-up machines."""
    assert engines.plan_of(problem(line), Machine(ISAS[isa], l2_bytes=1 << 20), 1).spec.b.in_place == there
