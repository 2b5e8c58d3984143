"""kn2row: the problems that it supports, that its plans are chosen, and that output blocks have their tap sums."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from convgrad.notation import problem
from convgrad.plan.constants import MAX_OUTPUT_BLOCK_BYTES
from convgrad.plan.forward_nest import Along
from convgrad.plan.kn2row.spec import Kn2rowPlan, reached
from convgrad.plan.machine import ISAS, Machine
from convgrad.plan.passes import dense_view, plan, plans, tables
from convgrad.spec.geometry import Conv
from tests.support.forward_problems import ROLES, along, posed

STEMS = (  # layers with few channels on one side
    "BWD_D f32 NXC mb8ic3ih224oc64oh112kh7sh2ph3",
    "BWD_D f32 NCX mb8ic4ih112oc64oh112kh3ph1",
    "BWD_D f32 NXC mb8ic3ih224oc768oh14kh16sh16ph0",
    "BWD_D bf16 NXC mb8ic3ih224oc96oh56kh4sh4ph0",
    "BWD_D f16 NCX mb8ic1ih28oc32oh28kh5ph2",
    "FWD_D f32 NXC mb4ic64ih128oc3oh128kh3ph1",
    "deconv FWD_D f32 NXC mb4ic64ih32oc3oh64kh4sh2ph1",
)
LARGE = (  # problems whose lines have too many tap sums, and the size of output blocks
    ("BWD_D f32 NCX mb1ic3id16ih112iw112oc64od16oh112ow112kd3kh3kw3pd1ph1pw1", (1, 16, 112)),
    ("BWD_D f32 NXC mb1ic3id8ih8iw1024oc64od8oh8ow1024kd3kh3kw3pd1ph1pw1", (1, 4, 342)),  # a height of 2 meets 4
    ("BWD_D f32 NXC mb1ic3ih64iw357oc64oh49ow342kh16kw16", (1, 179)),  # 16 whole lines exceed 16 MiB
)
OTHERS = (  # their sums are not tap by tap, or neighbouring outputs do not read neighbouring inputs
    "BWD_D f32 NXC mb8ic5ih56oc64oh56kh3ph1",
    "BWD_D f32 NXC mb8ic3ih56oc15oh56kh3ph1",
    "BWD_D f32 NXC g2mb8ic4ih56oc64oh56kh3ph1",
    "FWD_D f32 NXC mb4ic64ih128oc3oh64kh3sh2ph1",
)


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_few_output_channels_take_kn2row(isa: str) -> None:
    """No other kernel is as fast: with few output channels as columns, most of eight or more lanes would be empty."""
    for line in STEMS:
        one = problem(line)
        for threads in (1, 2, 8):
            chosen = plan(one, dense_view(one), Machine(ISAS[isa]), threads)
            assert isinstance(chosen, Kn2rowPlan), (line, threads)
            assert {other.strategy.split(":")[0] for other in chosen.rejected} >= {"dense"}


@pytest.mark.parametrize("stride", [100, 1000, 5000, 30_000])
@pytest.mark.parametrize("layout", ["NXC", "NCX"])
def test_a_thread_has_little_scratch_for_many_phases(layout: str, stride: int) -> None:
    """Each phase has few outputs, but whole vectors of them."""
    one = problem(f"BWD_D f32 {layout} mb2ic3iw{2 * stride}oc64ow2kw500sw{stride}pw1")
    view = dense_view(one)
    for chosen in plans(one, view, Machine(ISAS["avx512"]), 1, 1):
        if isinstance(chosen, Kn2rowPlan):
            assert tables(one, view, chosen).scratch_bytes < 2 * MAX_OUTPUT_BLOCK_BYTES


@pytest.mark.parametrize(("line", "output_block"), LARGE)
def test_lines_are_cut(line: str, output_block: tuple[int, ...]) -> None:
    """Outer axes are cut first, unless their blocks would mostly recompute tap sums."""
    one = problem(line)
    chosen = plan(one, dense_view(one), Machine(ISAS["avx512"]), 2)
    assert isinstance(chosen, Kn2rowPlan)
    assert chosen.output_block == output_block


@pytest.mark.parametrize("line", OTHERS)
def test_other_problems_have_no_kn2row(line: str) -> None:
    one = problem(line)
    found = plans(one, dense_view(one), Machine(ISAS["avx512"]), 1)
    assert not any(isinstance(candidate, Kn2rowPlan) for candidate in found)


def test_blocks_reach_their_inputs() -> None:
    """The inputs of each output block contain all that its taps read, and their bounds never decrease."""
    rng = np.random.default_rng(66)
    for _ in range(300):
        kernel, stride, dilation, pads = (int(n) for n in (*rng.integers(1, 6, 3), rng.integers(0, 7)))
        axis = along(int(rng.integers(1, 12)), kernel, stride, dilation, rest=int(rng.integers(0, stride)))
        if axis.src <= pads:
            continue
        axis = replace(axis, src=axis.src - pads, pad_begin=pads)
        for role in ROLES:
            view = dense_view(posed(Conv(1, 1, 2, 16, (axis,)), role, False, ("f32", "f32"), "NXC XIO"))
            assert_reached(view.axes[-1], int(rng.integers(1, 3)) * len(view.axes[-1].phases))


def assert_reached(axis: Along, size: int) -> None:
    """Assert this for output blocks of ``size`` positions along an axis."""
    blocks = reached(axis, size)
    cut = axis.parts.in_blocks(size)
    parts, begins = list(cut.parts), cut.begins.tolist()
    for first, end, inputs in zip(begins, [*begins[1:], len(parts)], blocks, strict=True):
        for part in parts[first:end]:
            read = [
                part.input + p * part.by_position + t * part.by_tap
                for p in range(len(part.positions))
                for t in range(len(part.taps))
            ]
            assert set(read) <= set(inputs), (axis, size)
            assert not inputs or 0 <= inputs.start <= inputs.stop <= axis.inputs
    for before, after in pairwise(blocks):
        assert before.start <= after.start
        assert before.stop <= after.stop
