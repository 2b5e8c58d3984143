"""Toom-Cook, in all roles: transforms are exact, kernels have the specified bits, errors are within the bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convgrad.engines.llvm.winograd.run import tiled
from convgrad.formats import BF16, F8_E4M3, F8_E5M2, F16, F32, Format
from convgrad.notation import problem as problem_of
from convgrad.plan.machine import ISAS, Machine
from convgrad.plan.winograd.plans import PositionsPlan
from convgrad.spec.bound import gamma
from convgrad.spec.exact_result import evaluate
from convgrad.spec.geometry import Conv
from convgrad.spec.operators import SolvesFor
from convgrad.spec.order import height_of, order_of
from convgrad.spec.ordered import evaluate_in_order
from convgrad.spec.problem import canonical_shapes
from convgrad.spec.winograd import tile_order as tiles
from convgrad.spec.winograd.algorithms import algorithms
from convgrad.spec.winograd.bound import BOUNDS, result_bound
from convgrad.spec.winograd.choice import guarantee, kappa, why_not_of, with_algorithm
from convgrad.spec.winograd.execution import InF32
from convgrad.spec.winograd.filtering import Filtering
from tests.support.classes import ALL_TYPES
from tests.support.engine_helpers import HOST, empty, lying
from tests.support.helpers import assert_same_bits
from tests.support.tiers import tiers
from tests.support.winograd_problems import DIRECTIONS, FILTERED, NAMES, OTHER_KERNELS, computed, drawn, matrices, posed

# Tiles that hang over by any number of positions, one row, one column, pads on one side, beyond the kernel, none.
LINES = (
    "mb2ic32ih9oc33oh9kh3ph1", "mb3ic37ih6iw13oc40oh4ow11kh3kw3ph0pw0", "mb1ic32ih41oc32oh41kh3ph1",
    "mb5ic40ih1iw12oc35oh1ow12kh3kw3ph1pw1", "mb5ic33ih12iw1oc32oh12ow1kh3kw3ph1pw1", "mb2ic32ih3oc32oh1kh3ph0",
    "mb1ic48ih7iw8oc32oh9ow11kh3kw3ph2pw2", "mb130ic32ih4oc32oh4kh3ph1",
    "mb1ic32ih2oc32oh5kh3ph2",
    "mb1ic130ih4oc70oh8kh3ph3", "mb5ic130ih14oc70oh14kh3ph1",
    "g2mb2ic64ih9oc80oh9kh3ph1", "g3mb1ic96ih30oc96oh30kh3ph1", "mb1ic32ih3iw7oc33oh3ow305kh3kw3ph1pw300",
)  # fmt: skip


@pytest.mark.parametrize(("one", "solves_for"), FILTERED, ids=str)
def test_transforms_are_the_sums_of_a_tile(one: Filtering, solves_for: SolvesFor) -> None:
    """A weight is the sum over j of dst[j] src[j + k], a position that over k of weights[k] src[j + k], exactly."""
    met, other, back = matrices(one, solves_for)
    assert len(back) == (one.taps if solves_for == "weights" else one.tile)
    for number, row in enumerate(back):
        made = (met.T * row) @ other / one.divisor
        wanted = [[Fraction(int(i == j + number)) for j in range(other.shape[1])] for i in range(one.points)]
        assert (made == np.array(wanted, object)).all()


# The shares of the positions that a tile meets, by tile and taps, for each tap: 1 together at the same position of src.
SHARES = {
    (1, 1): [[1]],
    (2, 3): [[0.2929, 1, 0.7071, 0], [0, 1, 1, 0], [0, 0.7071, 1, 0.2929]],
    (4, 3): [[0.192, 1, 1, 1, 0.808, 0], [0, 1, 1, 1, 1, 0], [0, 0.808, 1, 1, 1, 0.192]],
    (2, 5): [
        [0.10907, 0.47784, 0.52566, 0.52216, 0.36527, 0], [0, 0.45256, 0.55787, 0.54744, 0.44213, 0],
        [0, 0.44186, 0.55814, 0.55814, 0.44186, 0], [0, 0.44213, 0.54744, 0.55787, 0.45256, 0],
        [0, 0.36527, 0.52216, 0.52566, 0.47784, 0.10907],
    ],
}  # fmt: skip


@pytest.mark.parametrize("one", [one for one, of in FILTERED if of == "weights"], ids=str)
def test_kappa_bounds_the_paths_to_a_weight(one: Filtering) -> None:
    """The norm of the paths' coefficients, whatever shares are chosen: docs/numerics.md derives it."""
    norms, kappa = [], one.way("weights").kappa
    source, destination, weights = (np.abs(each).astype(float) for each in matrices(one))
    for row, shares in zip(weights, np.array(SHARES[one.tile, one.taps]), strict=True):
        paths = (source.T * row) @ destination / one.divisor
        met = paths.any(1)
        assert (shares[met] > 0).all()
        for position in range(one.tile):
            assert shares[position :: one.tile].sum() == pytest.approx(1, abs=1e-12)
        norms.append(np.linalg.norm(paths[met] / np.sqrt(shares[met])[:, None], 2))
    assert kappa * 0.9999 <= max(norms) <= kappa


@pytest.mark.parametrize("one", [one for one, of in FILTERED if of == "dst"], ids=str)
def test_kappa_bounds_the_paths_to_a_position(one: Filtering) -> None:
    """The norm of the coefficients of what a tile meets and of the weights, for each position of the tile."""
    met, other, back = (np.abs(each).astype(float) for each in matrices(one, "dst"))
    norms = [np.linalg.norm((met.T * row) @ other / one.divisor, 2) for row in back]
    assert one.of_positions.kappa * 0.9999 <= max(norms) <= one.of_positions.kappa


@pytest.mark.parametrize("one", [one for one, of in FILTERED if of == "weights"], ids=str)
def test_smaller_tiles_have_the_same_weights_at_their_points(one: Filtering) -> None:
    """So the weights are transformed once for tiles of all sizes; and no remainder has more roundings."""
    values = [*np.random.default_rng(1).standard_normal((one.taps, 100), np.float32)]
    whole = one.of_positions.other(InF32(), values)
    for positions in range(one.tile + 1, 2 * one.tile):
        remainder = one.remainder(positions)
        assert remainder is not None
        assert remainder.tile == positions - one.tile
        some = remainder.of_positions.other(InF32(), values)
        for got, expected in zip(some, [*whole[: remainder.points - 1], whole[-1]], strict=True):
            assert_same_bits(got, expected, (str(one), str(remainder)))
        for few, most in zip(remainder.roundings("dst"), one.roundings("dst"), strict=True):
            assert few <= most
    assert one.remainder(2 * one.tile) is None


runs = pytest.mark.skipif(not HOST, reason="no generated kernels run here")


@runs
@tiers("direction, line, name, isa", DIRECTIONS, LINES, NAMES, HOST, every=97)
@pytest.mark.usefixtures("eight_cores")
def test_kernels_have_the_specified_bits(direction: str, line: str, name: str, isa: str) -> None:
    """In all layouts, on any threads, into what was NaN."""
    has_specified_bits(direction, line, name, isa)


@runs
@tiers(
    "direction, line, isa, which, fmt, first", DIRECTIONS, OTHER_KERNELS, HOST, (0, -1), ("f32", "bf16", "f16"),
    range(2), every=473,
)  # fmt: skip
@pytest.mark.usefixtures("eight_cores")
def test_kernels_of_other_sizes_have_the_specified_bits(
    direction: str, line: str, isa: str, which: int, fmt: str, first: int
) -> None:
    """In as many axes, by the first algorithm or the last, also of operands in 16 bits, in every second layout."""
    one = problem_of(f"{direction} f32 NXC {line}")
    assert isinstance(one.geometry, Conv)
    names = [*algorithms(one.geometry)]
    assert len(names) == 1 + ("3" in line.partition("k")[2])
    has_specified_bits(direction, line, names[which], isa, fmt, LAYOUTS[first::2])


@runs
@tiers("direction", DIRECTIONS, every=2)
@pytest.mark.usefixtures("eight_cores")
def test_an_axis_that_is_summed_directly_has_the_specified_bits(direction: str) -> None:
    """Its taps are reversed in data gradients."""
    has_specified_bits(direction, "mb1ic32id3ih4iw4oc33od3oh4ow4kd3kh3kw3pd1ph1pw1", "1x2x2", HOST[-1])


MANY = ("mb1ic33ih18iw270oc32oh18ow270kh3kw3ph1pw1", "mb2ic32ih118oc32oh118kh3ph1",
        "mb2ic33id3ih40iw40oc32od3oh40ow40kd3kh3kw3pd1ph1pw1")  # fmt: skip


@runs
@tiers("line, name, isa", MANY, NAMES, HOST, every=13)
def test_many_tiles_are_summed_in_units(line: str, name: str, isa: str) -> None:
    """Of rows that are cut, too."""
    has_specified_bits("BWD_W", line, f"1x{name}" if "kd" in line else name, isa)


@runs
@tiers("isa", HOST, every=2)
def test_units_are_added_in_a_tree(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more than 256 blocks, there are more units than a node of the tree has."""
    monkeypatch.setattr(tiles, "MAX_BLOCKS", 1)
    line = "mb1ic32ih38iw118oc34oh38ow118kh3kw3ph1pw1"
    assert order_of(posed(line, "2x2")).units == 19
    has_specified_bits("BWD_W", line, "2x2", isa)


@given(images=st.integers(1, 300), rows=st.integers(1, 70), columns=st.integers(1, 300))
def test_every_tile_has_its_turn(images: int, rows: int, columns: int) -> None:
    """Blocks are no longer than chains are, units no larger than a node; few tiles are beyond an edge."""
    one = tiles.turns(images, rows, columns)
    assert one.stretches == images * rows * one.parts
    assert columns <= one.parts * one.length < columns + one.parts
    assert 1 <= one.segments_per_block * one.length <= tiles.BLOCK
    assert one.segments_per_block == 1 or (one.segments_per_block + 1) * one.length > tiles.BLOCK
    blocks = -(-one.stretches // one.segments_per_block)
    assert (one.units - 1) * one.blocks < blocks <= one.units * one.blocks
    assert one.blocks <= tiles.MAX_BLOCKS
    assert one.units <= tiles.UNITS or blocks > tiles.UNITS * tiles.MAX_BLOCKS


LAYOUTS = ("NXC", 1), ("NCX", 3), ("NXC:OIX", 2), ("NCX:XIO", 1)  # with threads


def has_specified_bits(
    direction: str, line: str, name: str, isa: str, fmt: str = "f32", layouts: Sequence[tuple[str, int]] = LAYOUTS
) -> None:
    one = posed(line, name, direction=direction, fmt=fmt)
    operands = drawn(one, len(line))
    expected = evaluate_in_order(one, operands)
    for layout, threads in layouts:
        there = posed(line, name, layout, direction, fmt)
        given = [lying(each, lies) for each, lies in zip(operands, there.layouts, strict=False)]
        got = computed(there, given, empty(there), isa, threads)
        assert_same_bits(np.ascontiguousarray(got), np.ascontiguousarray(expected), (line, name, fmt, layout, threads))


@runs
@tiers("line, name, isa", ["mb1ic1100ih4oc35oh4kh3ph1", "mb9ic2112ih5oc48oh5kh3ph1"], NAMES, HOST, every=9)
def test_many_channels_are_summed_in_a_tree(line: str, name: str, isa: str) -> None:
    """Of more than 1024, there is more than a node of 16 chains."""
    has_specified_bits("FWD_D", line, name, isa)


@runs
@pytest.mark.parametrize("direction", ["FWD_D", "BWD_D"])
def test_few_tiles_are_computed_by_blocks_of_results(direction: str) -> None:
    """Each makes points of its own weights."""
    one = posed("mb1ic512ih4oc512oh4kh3ph1", "4x4", direction=direction)
    operands = drawn(one, 3)
    lies = (*[each.strides for each in operands], empty(one).strides)
    call = tiled(one, lies, Machine(ISAS[HOST[0]]), 2)
    assert isinstance(call.plan, PositionsPlan)
    assert not call.plan.by_rows
    assert call.plan.tasks > 1
    got, exact = computed(one, operands, empty(one), HOST[0], 2), evaluate(one, operands).value
    assert (np.abs(got - exact) <= result_bound(one, operands)).all()
    src, dst = (512, 32) if direction == "FWD_D" else (32, 512)
    part = problem_of(f"{direction} f32 NXC mb1ic{src}ih4oc{dst}oh4kh3ph1")
    weights = operands[1][-32:] if direction == "FWD_D" else operands[1][:, -32:]
    last = evaluate_in_order(replace(part, algorithm="4x4"), [operands[0], weights])
    assert_same_bits(np.ascontiguousarray(got[:, -32:]), np.ascontiguousarray(last), direction)


@runs
def test_biases_are_added_to_what_tiles_give() -> None:
    """Those that are not finite too, to their own channel alone."""
    layer = problem_of("FWD_D f32 NXC mb2ic32ih9oc33oh9kh3ph1")
    one = replace(layer, operands=("src", "weights", "bias"), layouts=("NXC", "XIO", "NCX", "NXC"), algorithm="4x4")
    for value in (1.5, np.inf):
        operands = [*drawn(replace(layer, algorithm="4x4"), 3), np.arange(66, dtype=np.float32)[::2]]
        operands[2][5] = value
        expected = evaluate_in_order(one, operands)
        assert np.isfinite(expected[:, :5]).all()
        got = computed(one, operands, empty(one), HOST[0], 2)
        assert_same_bits(np.ascontiguousarray(got), np.ascontiguousarray(expected), value)
        off = np.abs(got[:, :5] - evaluate(one, operands).value[:, :5])
        assert (off <= result_bound(one, operands)[:, :5]).all()


@runs
@tiers("name, direction", NAMES, DIRECTIONS, every=6)
def test_old_values_and_output_types(name: str, direction: str) -> None:
    """Added and rounded once, as of the direct sum."""
    for fmt, accumulate in ((F32, True), (BF16, False), (F16, True)):
        one = replace(posed(LINES[0], name, direction=direction), output_format=fmt, accumulate=accumulate)
        operands, old = drawn(one, 3), empty(one, 1.5)
        expected = evaluate_in_order(one, operands, old)
        got = computed(one, operands, old, HOST[0], 2)
        assert_same_bits(np.ascontiguousarray(got), np.ascontiguousarray(expected), (name, str(fmt), accumulate))


# Within a tile, and at its corner, which only the first value of the tile meets.
WHERE = ((LINES[1], (0, 3, 2, 4)), ("mb2ic32ih6oc33oh4kh3ph0", (0, 3, 0, 0)))


@runs
@tiers("where, name, direction, value", WHERE, NAMES, DIRECTIONS, (np.nan, np.inf, -np.inf, 3e38), every=13)
def test_what_is_not_finite_is_the_direct_sum_s(
    where: tuple[str, tuple[int, ...]], name: str, direction: str, value: float
) -> None:
    """All results are, where one is not finite; what overflows in between is not."""
    line, place = where
    one = posed(line, name, direction=direction)
    operands = drawn(one, 5)
    operands[0][place] = value
    expected = evaluate_in_order(one, operands)
    direct = evaluate_in_order(replace(one, algorithm=""), operands)
    if not np.isfinite(value):
        assert_same_bits(np.ascontiguousarray(expected), np.ascontiguousarray(direct), (name, value))
    got = computed(one, operands, empty(one), HOST[0], 1)
    assert_same_bits(np.ascontiguousarray(got), np.ascontiguousarray(expected), (name, value))


ADDED = ("FWD_B", "deconv FWD_B", "BWD_D", "BWD_W")  # passes with a bias, and those with old values alone


@runs
@tiers("line, fmt, accumulate, active, value", ADDED, ALL_TYPES, (False, True), (False, True), (np.nan, 3e38), every=97)
def test_direct_sums_begin_with_biases_and_old_values(
    line: str, fmt: str, accumulate: bool, active: bool, value: float
) -> None:
    """As the direct sum alone does: tiles have left nothing in what is added to. Biases and old values go by twos."""
    words = f"{line} {fmt} NXC g2mb1ic64ih5oc66oh5kh3ph1"
    one = replace(problem_of(words), accumulate=accumulate, activation="relu" * (active and line in ADDED[:2]))
    rng = np.random.default_rng(7)
    operands = [rng.integers(-2, 3, shape).astype(one.operand_format.dtype) for shape in canonical_shapes(one)[:-1]]
    if "bias" in one.operands:
        operands[-1] = operands[-1].repeat(2)[::2]
    with np.errstate(over="ignore"):  # infinity in a format that is too small for it
        operands[0][0, 3, 2, 4] = value
    old = rng.integers(-2, 3, one.output_shape).astype(one.output_format.dtype).transpose(one.output_order)
    expected = evaluate_in_order(one, operands, old)
    assert not np.isfinite(expected.astype(np.float32)).all()
    out = np.full((*old.shape[:-1], 2 * old.shape[-1]), np.nan, old.dtype)[..., ::2]
    out[...] = old if accumulate else np.nan
    got = computed(replace(one, algorithm="4x4"), operands, out, HOST[0], 2)
    assert_same_bits(np.ascontiguousarray(got), np.ascontiguousarray(expected), str(one))


@runs
@tiers("name, direction, fmt", NAMES, DIRECTIONS, (F16, F8_E5M2, F8_E4M3), every=11)
def test_results_that_overflow_in_their_rounding_stay_tiles(name: str, direction: str, fmt: Format) -> None:
    """Only f32 sums that are not finite, before biases and old values are added, start direct sums."""
    one = posed(LINES[0], name, direction=direction)
    operands = drawn(one, 5)
    sums = evaluate_in_order(one, operands)
    operands[0] *= np.float32(1.5 * fmt.largest / np.abs(sums).max())
    sums, direct = (evaluate_in_order(each, operands) for each in (one, replace(one, algorithm="")))
    assert np.isfinite(sums).all()
    rounded = replace(one, output_format=fmt, accumulate=True)
    (old := empty(rounded, 0))[..., 0] = np.inf
    got = computed(rounded, operands, old.copy(), HOST[0], 2)
    assert_same_bits(np.ascontiguousarray(got), np.ascontiguousarray(evaluate_in_order(rounded, operands, old)), name)
    with np.errstate(over="ignore"):
        by_tiles, by_sums = (each.astype(fmt.dtype).astype(np.float32)[..., 1:] for each in (sums, direct))
    assert np.array_equal(by_tiles, got[..., 1:].astype(np.float32), equal_nan=True)
    assert not np.isfinite(by_tiles).all()
    assert fmt is not F16 or (by_tiles != by_sums).any()


@pytest.mark.every(2)
@pytest.mark.parametrize(("name", "direction"), list(product(NAMES, DIRECTIONS)))
def test_small_integers_are_exact(name: str, direction: str) -> None:
    one = posed("mb2ic32ih11oc32oh11kh3ph1", name, direction=direction)
    operands = drawn(one, 7, integers=True)
    assert (evaluate_in_order(one, operands) == evaluate(one, operands).value).all()


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_small_integers_with_three_axes_are_exact(direction: str) -> None:
    """The axis that is summed directly has padding at both ends."""
    one = problem_of(f"{direction} f32 NXC mb1ic32id3ih4iw4oc33od3oh4ow4kd3kh3kw3pd1ph1pw1")
    assert isinstance(one.geometry, Conv)
    one = replace(one, algorithm=next(iter(algorithms(one.geometry))))
    operands = drawn(one, 7, integers=True)
    assert (evaluate_in_order(one, operands) == evaluate(one, operands).value).all()


@tiers("seed", range(60), every=10)
def test_errors_lie_within_the_bound(seed: int) -> None:
    """On data of mixed scales too, where the direct sum's bound of an element is far less."""
    rng = np.random.default_rng([20, seed])
    name, size = NAMES[seed % 2], int(rng.integers(1, 14))
    direction = DIRECTIONS[seed // 2 % 3]
    one = posed(f"mb{rng.integers(1, 4)}ic32ih{size}oc32oh{size}kh3ph1", name, direction=direction)
    operands = [
        each * np.float32(10) ** rng.integers(-9, 9, each.shape).astype(np.float32) for each in drawn(one, seed)
    ]
    exact, got = evaluate(one, operands).value, evaluate_in_order(one, operands)
    assert (np.abs(got - exact) <= result_bound(one, operands)).all()


def test_an_accuracy_admits_what_keeps_it() -> None:
    """The variant is a function of the problem and the accuracy, however operands lie."""
    for layout, direction in product(("NXC", "NCX"), DIRECTIONS):
        one = problem_of(f"{direction} f32 {layout} mb8ic128ih28oc128oh28kh3ph1")
        assert [with_algorithm(one, most).algorithm for most in (1, 4, 8, 27, 64)] == ["", "2x2", "2x2", "2x2", "4x4"]
        for name in NAMES:
            held = replace(one, algorithm=name)
            factor = kappa(held) * gamma(height_of(held), F32.unit) / gamma(height_of(one), F32.unit)
            assert factor == pytest.approx(guarantee(one, name), rel=1e-4)
    for line, why in (
        ("BWD_W f32 NXC mb8ic128ih28oc128oh28kh7ph3", "and at most one axis of other taps; the kernel is 7x7"),
        ("FWD_D f32 NXC mb8ic128ih28oc128oh28kh1ph0", "tiles need an axis of 3 or 5 taps"),
        ("BWD_W f32 NXC mb8ic128ih28oc128oh14kh3sh2ph1", "stride 1 and dilation 1"),
        ("BWD_W f32 NXC g8mb8ic128ih28oc128oh28kh3ph1", "32 channels of src and of dst per group"),
        ("BWD_W f32 NXC mb8ic16ih28oc128oh28kh3ph1", "32 channels of src"),
        ("BWD_W f64 NXC mb8ic128ih28oc128oh28kh3ph1", "these are f64"),
    ):  # fmt: skip
        one = problem_of(line)
        assert with_algorithm(one, 1e9) is one
        assert why in why_not_of(one)


@pytest.mark.every(2)
@pytest.mark.parametrize(("name", "direction"), list(product(NAMES, DIRECTIONS)))
def test_a_group_s_sums_are_no_longer_than_its_channels(name: str, direction: str) -> None:
    """The order, what a variant keeps and the bound are those of one group by itself."""
    all_of = posed("g4mb1ic512ih6oc256oh6kh3ph1", name, direction=direction)
    one = posed("mb1ic128ih6oc64oh6kh3ph1", name, direction=direction)
    assert order_of(all_of) == order_of(one)
    assert guarantee(all_of, name) == guarantee(one, name)
    operands = drawn(one, 3)
    axes = [0 if tensor == "weights" else 1 for tensor in (*one.operands, one.output)]
    whole = [np.concatenate([each] * 4, axis) for each, axis in zip(operands, axes, strict=False)]
    for bound in BOUNDS:
        wanted = np.concatenate([result_bound(one, operands, bound=bound)] * 4, axes[-1])
        assert (result_bound(all_of, whole, bound=bound) == wanted).all()
