"""Operands that are read where they lie, and tasks that share a part of the weights: the specified bits every way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from convgrad import engines
from convgrad.engines.llvm import jit
from convgrad.engines.llvm.driver import module_of
from convgrad.engines.llvm.execute import executable_of
from convgrad.notation import problem
from convgrad.plan.machine import ISAS, Machine
from convgrad.plan.split_k.recipe import SplitKPlan
from convgrad.spec import exact_result
from convgrad.spec.geometry import Axis, Conv
from convgrad.spec.ordered import evaluate_in_order
from convgrad.spec.problem import Problem
from tests.engines.plan_rows import DEPTHWISE, IN_PLACE
from tests.support.engine_helpers import HOST, Array, empty, made, plans_for, run_plan
from tests.support.helpers import assert_same_bits
from tests.support.tiers import tiers


def strips_of(one: Problem, operands: list[Array], isa: str, l2_bytes: int = 1 << 20) -> list[SplitKPlan]:
    plans = plans_for(one, operands, empty(one), ISAS[isa], l2_bytes=l2_bytes)
    return [plan for plan in plans if plan.strategy == "depthwise"]


def in_parts(plan: SplitKPlan, parts: int) -> SplitKPlan:
    """The plan on two threads, its batch in parts; its groups in two where there are so many panels."""
    others = (1 + parts % 2, 1, 1, 1) if plan.strategy == "depthwise" else plan.parts[:-1]
    return replace(plan, parts=(*others, parts), threads=2)


@tiers("line, isa", DEPTHWISE[1:9:2], HOST, every=3)
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
    one = replace(problem(DEPTHWISE[0]), geometry=conv)
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


def test_strips_spill_no_sums() -> None:
    """The inner loop of a full tile on AVX-512: as many multiply-adds as taps, all on registers."""
    one, operands = made(DEPTHWISE[0])
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
        (IN_PLACE[0], True),
        (IN_PLACE[0].replace("oc32", "oc33"), False),  # no whole vectors: the last would run over
        (IN_PLACE[0].replace("oc32", "oc128"), False),  # positions far apart,
        ("BWD_W f32 NXC g16mb8ic48ih56oc1024oh56kh3ph1", False),  # of all groups together
        (IN_PLACE[0].replace("f32", "bf16"), False),
    ],
)
def test_what_is_read_in_place(line: str, there: bool, isa: str) -> None:
    """As plans say for made-up machines."""
    assert engines.plan_of(problem(line), Machine(ISAS[isa], l2_bytes=1 << 20), 1).spec.b.in_place == there
