"""Lines, outer taps and what they meet: numbers that add, against the definition; tables that operands bound."""

from __future__ import annotations

import cProfile
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convgrad import engines
from convgrad.engines.llvm import isas
from convgrad.engines.llvm.execute import executable
from convgrad.notation import problem
from convgrad.plan.machine import ISAS, Machine
from convgrad.plan.passes import dense_view, plan, plans, tables
from convgrad.plan.split_k.schedule import schedule
from convgrad.plan.split_k.segments import existing_rows, indirection_of, tap_share
from convgrad.plan.split_k.taps import starts, taps_record
from convgrad.spec.geometry import Axis, Conv
from convgrad.spec.ordered import evaluate_in_order
from convgrad.spec.problem import Problem
from tests.support.engine_helpers import Array, empty

BYTES = 64  # of tables, at most, for each byte of the operands: rows of one or two values are the worst


@st.composite
def axes(draw: st.DrawFn) -> list[Axis]:
    made = []
    for _ in range(draw(st.integers(0, 3))):
        kernel, dst = draw(st.integers(1, 5)), draw(st.integers(1, 5))
        # of one position or tap, a stride or dilation has no effect
        stride, dilation = (draw(st.sampled_from([1, 2, 7, 40, 2**62 if n == 1 else 3])) for n in (dst, kernel))
        reach = (dst - 1) * stride + (kernel - 1) * dilation + 1
        pad = draw(st.integers(0, reach))
        made.append(Axis(draw(st.integers(1, reach)), dst, kernel, stride, dilation, pad))
    return made


def met_by_definition(given: list[Axis]) -> Array:
    """Source rows, or -1, by outer tap and row of dst."""
    found = np.zeros((1, 1), np.int64)
    for a in given:
        k, p = np.ogrid[: a.kernel, : a.dst]
        i = p * a.stride + k * a.dilation - a.pad_begin
        i = np.where((i >= 0) & (i < a.src), i, -1)
        both = (found[:, None, :, None] >= 0) & (i[None, :, None, :] >= 0)
        found = np.where(both, found[:, None, :, None] * a.src + i[None, :, None, :], -1)
        found = found.reshape(found.shape[0] * a.kernel, -1)
    return found


@given(axes())
def test_what_lines_meet(given: list[Axis]) -> None:
    one, expected = indirection_of(given), met_by_definition(given)
    assert np.array_equal(one.src_rows(np.add.outer(one.taps, one.rows)), expected)
    assert np.array_equal(existing_rows(given), (expected >= 0).sum(1))
    assert (np.diff(one.rows) > 0).all()
    total = np.prod([len(source) for source in one.sources], dtype=int)
    assert tap_share(given) == one.taps[-1] / total
    assert total <= np.prod([min(a.dst * a.kernel, (a.dst - 1) * a.stride + a.effective_kernel) for a in given])


@given(axes(), st.data())
def test_what_cache_blocks_of_lines_reach(given: list[Axis], data: st.DataObject) -> None:
    """The numbers of each cache block are those of its rows with all taps."""
    one = indirection_of(given)
    bounds = st.lists(st.integers(0, len(one.rows)), min_size=2, max_size=5, unique=True).map(sorted)
    spans = [range(*span) for span in pairwise(data.draw(bounds))]
    rows = np.arange(spans[0].start, spans[-1].stop)
    smallest, at, mask = one.reached(rows, np.array([span.start - spans[0].start for span in spans]))
    for span, first, begin, end in zip(spans, smallest, at, [*at[1:], len(mask)], strict=True):
        numbers = np.unique(np.add.outer(one.taps, one.rows[span.start : span.stop]))
        assert first == numbers[0]
        assert np.array_equal(first + np.flatnonzero(mask[begin:end]), numbers)
        assert end - begin == numbers[-1] - first + 1


@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize(
    ("rest", "least"),
    [("ic1iw{0}oc1ow{0}kw1", 10_000), ("ic3iw{0}oc2ow{0}kw3pw1", 10_000), ("ic16ih{0}iw300oc16oh{0}ow300kh3kw3", 40)],
)
def test_many_cache_blocks_are_planned_together(kind: str, rest: str, least: int) -> None:
    """An image of fifty times as many cache blocks takes no more calls of functions."""
    few, many = (_schedule_calls(problem(f"BWD_W {kind} NXC mb1{rest.format(n)}")) for n in (least, 50 * least))
    assert many <= few + 50


def _schedule_calls(one: Problem) -> int:
    """Return the number of calls of functions that fill the tables of a plan."""
    view, profile = dense_view(one), cProfile.Profile()
    chosen = plan(one, view, Machine(ISAS["avx512"]), 1)
    profile.runcall(tables, one, view, chosen)
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.every(3)
@pytest.mark.parametrize(
    "line",
    [
        "ic1id140ih140iw3oc1od71oh71ow1kd70kh70kw3",
        "ic1id110ih110iw5oc1od41oh41ow3kd70kh70kw3",
        "ic1ih6000iw2oc1oh3001ow1kh3000kw2",
        "ic1ih6000iw2oc1oh6001ow2kh3000kw1ph1500",
        "ic2ih2000iw1oc3oh2000ow1kh999kw1dh1ph998",
        "ic1ih300iw300oc1oh151ow151kh150kw150",
        "g16ic16ih300iw5oc16oh151ow5kh150kw1",
        "ic3iw40000oc2ow20001kw20000",
        "ic1ih1200iw258oc1oh601ow257kh600kw2",
        "ic1id60ih60iw258oc1od31oh31ow257kd30kh30kw2",
    ],
)
def test_tables_are_bounded_by_the_operands(line: str) -> None:
    """Whatever the kernel: taps are never listed by positions."""
    one = problem(f"BWD_W f32 NXC mb1{line}")
    conv = one.geometry
    assert isinstance(conv, Conv)
    channels_last = (np.ones((n, *x, c), np.float32) for n, c, *x in (conv.src_shape, conv.dst_shape))
    operands, out = [np.moveaxis(array, -1, 1) for array in channels_last], empty(one)
    isa = isas.isa()
    assert isa is not None
    call = executable(one, [array.strides for array in (*operands, out)], isas.machine(isa), 1)
    given_bytes = sum(a.nbytes for a in (*operands, out))
    assert call.schedule.table_bytes <= BYTES * given_bytes
    engines.execute(one, operands, out, 1)
    centre = out[(0, 0, *(k // 2 for k in conv.weights_shape[2:]))]
    axes_of = zip(conv.axes, (k // 2 for k in conv.weights_shape[2:]), strict=True)
    assert centre == np.prod([len(a.existing(k, range(a.src), range(a.dst))) for a, k in axes_of])


@pytest.mark.parametrize(
    "line", ["ic2ih40iw3oc3oh21ow3kh20kw1", "ic1id9ih9iw3oc2od5oh5ow2kd5kh5kw2", "ic2ih9oc3oh9kh9ph4"]
)
def test_big_kernels_have_the_specified_bits(line: str) -> None:
    one = problem(f"BWD_W f32 NCX mb2{line}")
    conv, rng = one.geometry, np.random.default_rng(0)
    assert isinstance(conv, Conv)
    operands = [rng.standard_normal(s, np.float32) for s in (conv.src_shape, conv.dst_shape)]
    out = empty(one)
    engines.execute(one, operands, out, 2)
    assert np.array_equal(out, evaluate_in_order(one, operands, np.zeros_like(out)))


def test_tables_of_many_taps_take_no_time() -> None:
    """Of 300 x 255 outer taps: arrays, no loop over them."""
    one = problem("BWD_W f32 NXC mb1ic9id300ih255iw62oc1od1oh1ow1kd300kh255kw64pd0ph0pw1")
    start = time.thread_time()
    made = schedule(dense_view(one), engines.plan_of(one, Machine(ISAS["avx512"]), 1), False)
    assert len(made.tables["outs"]) * made.tables["outs"].shape[1] >= 300 * 255 * 64
    assert time.thread_time() - start < 1


@pytest.mark.parametrize(
    "line", ["mb2ic16ih9oc32oh9kh5ph2", "mb3ic16ih20iw9oc32oh10ow5kh3sh2ph1kw4sw2pw1", "mb2ic8iw9oc9ow30kw7pw3dw1"]
)
def test_parts_of_ranges_end_where_the_next_range_begins(line: str) -> None:
    """In the table of taps of each kernel, the ranges of all micro-tiles follow each other."""
    one = problem(f"BWD_W f32 NXC {line}")
    view, tiles = dense_view(one), 0
    for chosen in plans(one, view, Machine(ISAS["avx2"]), 1):
        taps = schedule(view, chosen, False).tables
        record = taps_record(chosen.spec)
        inner = len(starts(view.conv.axes[-1].kernel, chosen.spec.micro_tile.inner_taps))
        whole, parts = (taps["taps"][:inner, record.index(column)] for column in ("range", "parts"))
        assert (np.append(whole, len(taps["ranges"])) == np.append(0, np.cumsum(parts + 1))).all()
        tiles = max(tiles, inner)
    assert tiles > 1
