"""Lines, outer taps and what they meet: numbers that add, against the definition; tables that operands bound."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convgrad import engines
from convgrad.engines.llvm import isas
from convgrad.engines.llvm.execute import executable
from convgrad.notation import problem
from convgrad.plan.machine import ISAS, Machine
from convgrad.plan.passes import dense_view, plans
from convgrad.plan.split_k.schedule import schedule
from convgrad.plan.split_k.segments import existing_rows, indirection_of, tap_share
from convgrad.plan.split_k.taps import starts, taps_record
from convgrad.spec.geometry import Axis, Conv
from convgrad.spec.ordered import evaluate_in_order
from tests.support.engine_helpers import Array, empty

BYTES = 64  # of tables, at most, for each byte of the operands: rows of one or two values are the worst


@st.composite
def axes(draw: st.DrawFn) -> list[Axis]:
    made = []
    for _ in range(draw(st.integers(0, 3))):
        kernel, dst = draw(st.integers(1, 5)), draw(st.integers(1, 5))
        stride, dilation = draw(st.integers(1, 40)), draw(st.integers(1, 40))
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
def test_what_some_lines_reach(given: list[Axis], data: st.DataObject) -> None:
    one = indirection_of(given)
    first = data.draw(st.integers(0, len(one.rows) - 1))
    rows = np.arange(first, data.draw(st.integers(first + 1, len(one.rows))))
    begin, mask = one.reached(rows)
    numbers = np.unique(np.add.outer(one.taps, one.rows[rows]))
    assert begin == numbers[0]
    assert np.array_equal(begin + np.flatnonzero(mask), numbers)
    assert len(mask) == numbers[-1] - begin + 1


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
    for plan in plans(one, view, Machine(ISAS["avx2"]), 1):
        taps = schedule(view, plan, False).tables
        record = taps_record(plan.spec)
        inner = len(starts(view.conv.axes[-1].kernel, plan.spec.micro_tile.inner_taps))
        whole, parts = (taps["taps"][:inner, record.index(column)] for column in ("range", "parts"))
        assert (np.append(whole, len(taps["ranges"])) == np.append(0, np.cumsum(parts + 1))).all()
        tiles = max(tiles, inner)
    assert tiles > 1
