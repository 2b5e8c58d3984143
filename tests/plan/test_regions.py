"""Stretches hold every output position once, and each existing tap of it once, in order, with what it meets."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convgrad.plan.regions import AxisPart, parts, phases, uncut
from convgrad.spec.geometry import Axis
from tests.support.helpers import peak_bytes, within

Met = dict[tuple[int, int], int]  # by output position and tap: the operand's position

# Any axis: strides beyond the kernel, holes of dilation, pads that hide the source, remainders, one position, none.
AXES = st.builds(
    Axis, st.integers(0, 12), st.integers(0, 12), st.integers(1, 7), st.integers(1, 6), st.integers(1, 6),
    st.integers(0, 14), st.just(0),
)  # fmt: skip
ROLES = ("dst", "src")


def existing(axis: Axis, role: str) -> Met:
    """What the geometry says exists along an axis."""
    met = {}
    for k in range(axis.kernel):
        for p in axis.existing(k, range(axis.src), range(axis.dst)):
            i = axis.source(k, range(p, p + 1)).start
            met[(p, k) if role == "dst" else (i, k)] = i if role == "dst" else p
    return met


def said(part: AxisPart) -> Met:
    """What a part says that its positions meet."""
    numbers = product(enumerate(part.positions), enumerate(part.taps))
    return {(q, k): part.input + a * part.by_position + b * part.by_tap for (a, q), (b, k) in numbers}


@pytest.mark.parametrize("role", ROLES)
@given(axis=AXES)
def test_parts_hold_each_position_and_each_existing_tap_once(role: str, axis: Axis) -> None:
    found, expected = parts(axis, role), existing(axis, role)
    positions = [q for part in found for q in part.positions]
    assert sorted(positions) == list(range(axis.dst if role == "dst" else axis.src))
    together: Met = {}
    for part in found:
        assert len(part.positions) > 0
        assert list(part.taps) == sorted(part.taps)
        met = said(part)
        assert len(met) == len(part.positions) * len(part.taps)
        together |= met
    assert together == expected


@pytest.mark.parametrize("role", ROLES)
@given(axis=AXES, size=st.integers(1, 13))
def test_blocks_hold_what_their_parts_hold(role: str, axis: Axis, size: int) -> None:
    """A part that an output block begins within meets what the part met there."""
    cut, together = parts(axis, role).in_blocks(size), Met()
    found, begins = list(cut.parts), [*cut.begins.tolist(), len(cut.parts)]
    for block, (begin, end) in enumerate(pairwise(begins)):
        for part in found[begin:end]:
            assert {q // size for q in part.positions} == {block}
            together |= said(part)
    assert together == existing(axis, role)
    positions = [q for part in found for q in part.positions]
    assert sorted(positions) == list(range(axis.dst if role == "dst" else axis.src))
    assert all(part.positions for part in found)


@pytest.mark.parametrize("size", [1, 7, 80, 49_999, 50_000, 50_001])
def test_blocks_take_memory_for_their_positions_only(size: int) -> None:
    """The positions of a phase may be far apart, with many blocks between them."""
    found = parts(Axis(100_000, 2, 3, 50_000), "src")
    assert peak_bytes(lambda: found.in_blocks(size)) < 200 * 100_000


@pytest.mark.parametrize("role", ROLES)
@given(axis=AXES)
def test_uncut_parts_hold_what_exists_and_what_does_not(role: str, axis: Axis) -> None:
    """Their first position's furthest tap and their last one's nearest are within, so what lies between them is."""
    extent = axis.src if role == "dst" else axis.dst
    found = uncut(phases(axis, role), extent)
    positions = [q for part in found for q in part.positions]
    assert sorted(positions) == list(range(axis.dst if role == "dst" else axis.src))
    together = {at: met for part in found for at, met in said(part).items()}
    assert {at: met for at, met in together.items() if 0 <= met < extent} == existing(axis, role)
    for part in found:
        if part.taps:
            met = said(part)
            assert max(met[part.positions[0], tap] for tap in part.taps) >= 0
            assert min(met[part.positions[-1], tap] for tap in part.taps) < extent
    assert len({(part.by_position, part.by_tap, part.taps.step) for part in found if part.taps}) <= 1


@pytest.mark.parametrize("role", ROLES)
@given(axes=st.lists(AXES.filter(lambda a: a.src < 7 and a.dst < 7 and a.kernel < 4), min_size=1, max_size=3))
def test_stretches_meet_existing_taps_row_major(role: str, axes: list[Axis]) -> None:
    found, along = product(*(parts(axis, role) for axis in axes)), [existing(axis, role) for axis in axes]
    seen, taps = [], list(product(*(range(axis.kernel) for axis in axes)))
    for stretch in found:
        box = list(product(*(part.taps for part in stretch)))
        boxed = list(product(*(part.positions for part in stretch)))
        for at in boxed:
            exist = [k for k in taps if all((q, t) in met for q, t, met in zip(at, k, along, strict=True))]
            assert box == exist
        seen += boxed
    assert sorted(seen) == list(product(*(range(axis.dst if role == "dst" else axis.src) for axis in axes)))


@pytest.mark.parametrize("role", ROLES)
@given(axis=AXES)
def test_tables_are_no_longer_than_positions_or_taps(role: str, axis: Axis) -> None:
    positions, phases = (axis.dst, 1) if role == "dst" else (axis.src, axis.stride)
    assert len(parts(axis, role)) <= min(positions, 2 * axis.kernel + phases)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    ("axis", "most"),
    [
        (Axis(100, 100, 70, pad_begin=35, pad_end=34), 71),  # the tap sets of a large kernel: 71 of each axis
        (Axis(10**9, 10**9, 3, pad_begin=1, pad_end=1), 3),  # long axes have as many parts as short ones
        (Axis(10**9 + 1, 5 * 10**8, 4, 2, 3, 4, 4), 9),
        (Axis(1, 1, 10**9), 1),
        (Axis(5, 600, 3, 1 << 50), 5),
    ],
)
def test_large_axes_have_small_tables_at_once(role: str, axis: Axis, most: int) -> None:
    with within(0.1):
        assert 0 < len(parts(axis, role)) <= most
