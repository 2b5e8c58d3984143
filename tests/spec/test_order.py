"""The order of sums: its blocks and heights, its execution against an FMA made of fractions, its bound on real data."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convgrad.formats import F32, round_to
from convgrad.notation import problem
from convgrad.spec.bound import error_bound
from convgrad.spec.chains import fma_f32, sum_in_order
from convgrad.spec.order import (
    BLOCK,
    FAN_IN,
    SumOrder,
    height_of,
    images_a_block,
    last_additions,
    order_of,
    over_positions,
    over_taps,
    tree_height,
)

EXTENTS = st.lists(st.integers(1, 40), min_size=1, max_size=3)


def lengths(order: SumOrder) -> list[int]:
    """The lengths of a unit's blocks."""
    return np.diff([*order.begins(), order.unit_terms]).tolist()


def blocks_by_definition(lines: int, length: int) -> list[int]:
    """The block lengths of a unit, walked line by line as the specification's words say."""
    blocks: list[int] = []
    for line in range(lines):
        if line and length and blocks[-1] + length <= BLOCK:
            blocks[-1] += length
            continue
        left = length
        while left:
            blocks.append(min(left, BLOCK))
            left -= blocks[-1]
    return blocks


@given(st.integers(0, 3), st.integers(0, 600), st.one_of(st.integers(0, 40), st.integers(0, 1100)), st.booleans())
def test_blocks_are_whole_lines_or_parts_of_one(units: int, lines: int, length: int, pairs: bool) -> None:
    order, expected = SumOrder(units, lines, length, pairs), blocks_by_definition(lines, length)
    assert lengths(order) == expected
    assert order.blocks == len(expected)
    assert order.terms == units * sum(expected)
    longest = max(expected, default=0) + tree_height(len(expected)) + tree_height(units)
    assert order.height == (longest if order.terms else 0)


@given(st.integers(0, 3), st.integers(0, 60), st.integers(1, 600), st.sampled_from([32, 256]))
def test_portions_of_two_chains_are_shallow(units: int, lines: int, length: int, block: int) -> None:
    order, plain = (SumOrder(units, lines, length, chains=chains, block=block) for chains in (2, 1))
    assert lengths(order) == lengths(plain)
    depths = []
    for terms in set(lengths(order)):
        portions = [min(32, terms - first) for first in range(0, terms, 32)]
        last = len(portions) - 1
        depths += [-(-n // 2) + (n > 1) + last - max(0, at - 1) for at, n in enumerate(portions)]
    height = max(depths, default=0) + tree_height(order.blocks) + tree_height(units)
    assert order.height == (height if order.terms else 0)


@given(st.integers(1, 400), EXTENTS)
def test_lines_are_small_images_or_rows(batch: int, extents: list[int]) -> None:
    order, positions = over_positions(batch, extents), int(np.prod(extents))
    small = positions <= BLOCK
    assert (order.lines, order.length) == ((batch, positions) if small else (positions // extents[-1], extents[-1]))
    assert order.units == (1 if small else batch)
    assert images_a_block(extents) == (BLOCK // positions if small else 1)


@given(st.integers(0, 600), st.booleans())
def test_pairs_are_taken_second_first(length: int, pairs: bool) -> None:
    listed = list(range(length))
    for first in range(0, length - 1, 2) if pairs else ():
        listed[first : first + 2] = first + 1, first
    assert SumOrder(1, 1, length, pairs).taken().tolist() == listed


def test_long_sums_are_cut_without_listing_their_blocks() -> None:
    order = over_positions(1, (10**12, 300))
    assert order.blocks == 2 * 10**12
    assert order.height == 256 + 10 * 15 + 1


@pytest.mark.parametrize(
    ("order", "height"),
    [
        (over_positions(1, [1]), 1),
        (over_positions(8, [56, 56]), 224 + 13 + 7),
        (over_positions(8, [56, 56], chains=2), 16 + 1 + 6 + 13 + 7),
        (over_positions(8, [7, 7], chains=2), 16 + 1 + 7 + 1),
        (over_positions(1, [1], chains=2), 1),
        (over_positions(1, [100_000]), 256 + 15 + 15 + 1),
        (over_positions(1_000_000, [1]), 256 + 15 + 15 + 15),
        (over_taps(9, 64), 256 + 2),
        (over_taps(49, 3), 147),
        (over_taps(1, 2048), 256 + 7),
        (over_taps(49, 64, apart=True), 64 + 15 + 3),
        (over_positions(0, [5]), 0),
        (over_taps(9, 31, bf16=True), 248 + 1),
        (over_taps(9, 32, bf16=True), 16 + 1 + 8),
        (over_taps(9, 33, bf16=True), 16 + 1 + 15 + 1),
        (over_taps(1, 40, bf16=True), 16 + 1 + 1),
    ],
)
def test_heights(order: SumOrder, height: int) -> None:
    assert order.height == height


@given(st.integers(1, 20_000))
def test_tree_height_by_walking_the_tree(leaves: int) -> None:
    heights = [0] * leaves
    while len(heights) > 1:
        groups = [heights[i : i + FAN_IN] for i in range(0, len(heights), FAN_IN)]
        heights = [max(h + max(len(g) - 1 if n == 0 else len(g) - n, 0) for n, h in enumerate(g)) for g in groups]
    assert heights[0] <= tree_height(leaves)


@pytest.mark.parametrize(
    ("line", "height"),
    [
        ("BWD_W f32 NXC mb8ic64ih56oc64oh56kh3ph1", 244),
        ("BWD_W bf16 NXC mb8ic64ih56oc64oh56kh3ph1", 43),
        ("BWD_W bf16 NXC mb8ic64ih56oc15oh56kh3ph1", 244),
        ("FWD_B f32 NXC mb8ic64ih56oc64oh56kh3ph1", 256 + 2 + 1),
        ("BWD_D f32 NXC mb8ic3ih224oc64oh112kh7sh2ph3", 64 + 18),
        ("deconv BWD_W bf16 NXC mb2ic4ih4oc4oh8kh4sh2ph1", 32),
        ("deconv FWD_D bf16 NXC mb2ic4ih4oc4oh8kh4sh2ph1", 64),
        ("deconv FWD_D f32 NXC mb2ic16ih4oc4oh8kh4sh2ph1", 16 + 15),
    ],
)
def test_heights_of_problems(line: str, height: int) -> None:
    one = problem(line)
    assert height_of(one) == height == order_of(one).height + last_additions(one)


FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(FLOATS, FLOATS, FLOATS)
def test_fma_rounds_once(x: float, y: float, z: float) -> None:
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    got = fma_f32(*(np.array([v], np.float32) for v in (x, y, z)))[0]
    if not np.isfinite(got):
        assert abs(exact) > Fraction(F32.largest)
        return
    with np.errstate(over="ignore"):
        neighbours = [np.nextafter(got, np.float32(s)) for s in (-np.inf, np.inf)]
    error = abs(Fraction(float(got)) - exact)
    for neighbour in neighbours:
        if np.isfinite(neighbour):
            other = abs(Fraction(float(neighbour)) - exact)
            assert error < other or (error == other and int(got.view(np.uint32)) % 2 == 0)


@pytest.mark.parametrize(
    "order",
    [
        SumOrder(1, 1, 200),
        SumOrder(3, 1, 600),
        SumOrder(40, 1, 16),
        SumOrder(2, 9, 100, True),
        SumOrder(3, 2, 90, chains=2, block=32),
        SumOrder(2, 9, 60, chains=2),
        SumOrder(1, 1, 300, chains=2),
    ],
)
def test_the_executed_order_keeps_its_bound(order: SumOrder) -> None:
    rng = np.random.default_rng(order.terms)
    x, y = rng.standard_normal((2, 50, order.terms), np.float32)
    exact = np.array([float(sum(Fraction(float(a)) * Fraction(float(b)) for a, b in zip(*row, strict=True)))
                      for row in zip(x[:4], y[:4], strict=True)])  # fmt: skip
    got = sum_in_order(x, y, order)
    magnitude = (np.abs(x).astype(np.float64) * np.abs(y)).sum(axis=1)
    bound = error_bound(order.height, order.terms, magnitude, F32)
    assert np.all(np.abs(got[:4] - exact) <= bound[:4])
    assert np.all(np.abs(got - (x.astype(np.float64) * y).sum(axis=1)) <= bound * (1 + 2.0**-20))


def test_the_bound_is_reached_within_a_factor_of_two() -> None:
    """A chain that rounds down at every step: the bound is not a loose one."""
    n = 256
    x = np.ones((1, n), np.float32)
    y = np.full((1, n), 2.0**-25, np.float32)
    y[0, 0] = 1.0
    got = sum_in_order(x, y, SumOrder(1, 1, n))
    exact = 1 + (n - 1) * 2.0**-25
    bound = error_bound(n, n, np.array([exact]), F32)
    assert exact - got[0] >= bound[0] / 2.1


def test_order_matters_and_is_the_specified_one() -> None:
    """17 units: sixteen join first, the seventeenth is added last."""
    order = SumOrder(17, 1, 1)
    x = np.ones((1, 17), np.float32)
    y = np.array([[2.0**24] + [1.0] * 15 + [2.0]], np.float32)
    assert sum_in_order(x, y, order)[0] == 2.0**24 + 2  # each 1 is lost one by one; 2 is not
    y[0, 1:16], y[0, 16] = 0, 1
    assert sum_in_order(x, y, order)[0] == 2.0**24


def test_minus_zero_never_leaves() -> None:
    x, y = np.full((1, 3), -0.0, np.float32), np.ones((1, 3), np.float32)
    assert not np.signbit(sum_in_order(x, y, SumOrder(1, 1, 3))[0])
    assert round_to(np.array([-0.0]), F32)[0] == 0
