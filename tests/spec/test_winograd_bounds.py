"""The bounds of results by tiles, in three forms: what they rest on, which is less, and where they are 0."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad.formats import ACCUMULATIONS, F32
from convgrad.notation import problem as problem_of
from convgrad.spec.bound import gamma
from convgrad.spec.exact_result import evaluate
from convgrad.spec.operators import SolvesFor
from convgrad.spec.order import height_of
from convgrad.spec.ordered import evaluate_in_order
from convgrad.spec.problem import Problem, canonical_shapes
from convgrad.spec.winograd.bound import (
    BOUNDS,
    GROWTH,
    KAPPA,
    NORMS,
    PATHS,
    UNDERFLOW,
    direct_height,
    may_be_direct,
    result_bound,
)
from convgrad.spec.winograd.choice import guarantee
from convgrad.spec.winograd.execution import by_groups
from convgrad.spec.winograd.filtering import Filtering
from convgrad.spec.winograd.sizes import InMagnitudes, ways
from convgrad.verify.bound import bound_of
from convgrad.verify.compare import sum_bound
from convgrad.verify.declared import declared
from tests.support.engine_helpers import Array
from tests.support.places import DOCS
from tests.support.tiers import tiers
from tests.support.winograd_problems import DIRECTIONS, FILTERED, NAMES, algorithm, drawn, matrices, posed

SUITE = Path(convgrad.__file__).parent / "cli" / "bench" / "suites" / "tiles.txt"
LINES = ("mb2ic32ih9oc33oh9kh3ph1", "mb3ic37ih6iw13oc40oh4ow11kh3kw3ph0pw0", "mb1ic32ih2oc32oh5kh3ph2")


def sized(one: Problem, operands: list[Array]) -> Array:
    """Return W."""
    given = {name: each.astype(np.float64) for name, each in zip(one.operands, operands, strict=True)}
    return by_groups(one, given, ways)


# -- what they rest on ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("one", "solves_for"), FILTERED, ids=str)
def test_no_value_takes_two_ways_of_opposite_signs(one: Filtering, solves_for: SolvesFor) -> None:
    """In sizes a transform is its matrix of absolute coefficients: no coefficient is the difference of two ways."""
    for (line, count), coefficients in zip(one.lines(solves_for), matrices(one, solves_for), strict=True):
        units = [[Fraction(int(i == j)) for j in range(count)] for i in range(count)]
        found = np.array([line(InFractionSizes(), unit) for unit in units], object).T
        assert (found == np.abs(coefficients)).all()


class InFractionSizes(InMagnitudes):
    """Sizes, exactly."""

    def fma(self, factor: float, x: Any, y: Any) -> Any:
        return abs(Fraction(factor)) * x + y

    def scale(self, factor: float, x: Any) -> Any:
        return abs(Fraction(factor)) * x


class InLosses(InMagnitudes):
    """What is lost where each product may underflow, in halves of the smallest number."""

    def fma(self, factor: float, x: Any, y: Any) -> Any:
        return super().fma(factor, x, y) + 1

    def scale(self, factor: float, x: Any) -> Any:
        return super().scale(factor, x) + 1


PAIRS = pytest.mark.parametrize(
    ("rows", "columns", "solves_for"),
    [(rows, columns, of) for rows, of in FILTERED for columns, another in FILTERED if of == another],
    ids=str,
)


@pytest.mark.every(4)
@PAIRS
def test_what_underflows_is_counted(rows: Filtering, columns: Filtering, solves_for: SolvesFor) -> None:
    """Along both axes: of operands, of which a value is in several tiles; of a term of a sum; of a result."""
    sizes, lost = [], []
    lines = zip(rows.lines(solves_for), columns.lines(solves_for), strict=True)
    of_rows, of_columns = matrices(rows, solves_for), matrices(columns, solves_for)
    for ((down, high), (across, wide)), first, second in zip(lines, of_rows, of_columns, strict=True):
        sizes.append(np.kron(np.abs(first).astype(float), np.abs(second).astype(float)))
        once = down(InLosses(), [np.float64(0)] * high)
        lost.append(np.array([across(InLosses(), [each] * wide) for each in once]).ravel())
    (met, other, back), divided = sizes, rows.divisor * columns.divisor
    several, allowed = -(-rows.points // rows.tile) * -(-columns.points // columns.tile), 2 * UNDERFLOW * divided
    assert several * ((back * lost[0]) @ other).max() <= allowed
    assert several * ((back * lost[1]) @ met).max() <= allowed
    assert back.sum(1).max() + lost[2].max() + 3 * divided <= allowed


@pytest.mark.every(4)
@PAIRS
def test_values_grow_by_less_than_is_counted(rows: Filtering, columns: Filtering, solves_for: SolvesFor) -> None:
    """A value that is added on the way is at most 4 times what it is added to, an axis."""
    each = zip(matrices(rows, solves_for), matrices(columns, solves_for), strict=True)
    met, other, back = (prod(float(np.abs(axis).sum(1).max()) for axis in pair) for pair in each)
    assert 4**2 * met * other * back <= GROWTH


# -- which is less -------------------------------------------------------------------------------------------------


@tiers("direction, line, name", DIRECTIONS, LINES, NAMES, every=2)
@pytest.mark.parametrize("mixed", [False, True])
def test_each_bound_is_at_most_what_it_is_derived_from(direction: str, line: str, name: str, mixed: bool) -> None:
    """That by paths is at most gamma_H W, which is at most that by kappa, and at most that by norms."""
    one = posed(line, name, direction=direction)
    rng, operands = np.random.default_rng(3), drawn(one, 3)
    if mixed:
        operands = [each * np.float32(10) ** rng.integers(-8, 9, each.shape).astype(np.float32) for each in operands]
    by_paths, by_norms, by_kappa = (result_bound(one, operands, bound=bound) for bound in BOUNDS)
    of_ways = gamma(height_of(one), F32.unit) * sized(one, operands)
    nearly, underflow = 1 + 1e-9, 1e-28
    assert (by_paths <= of_ways * nearly + underflow).all()
    assert (of_ways <= by_kappa * nearly).all()
    assert (by_paths <= by_kappa * nearly).all()
    assert (by_paths <= by_norms * nearly).all()


def shares(line: str, direction: str, name: str) -> list[float]:
    """Return the medians, in gamma_h sum |x||y|, of each bound on normal numbers, gamma_H W before them."""
    one = posed(line, name, direction=direction)
    operands = drawn(one, 1)
    direct = gamma(direct_height(one), F32.unit) * evaluate(replace(one, algorithm=""), operands).magnitude
    bounds = [result_bound(one, operands, bound=bound) for bound in BOUNDS]
    of_ways = gamma(height_of(one), F32.unit) * sized(one, operands)
    return [float(np.median(each / direct)) for each in (of_ways, *bounds)]


@tiers("direction, name", DIRECTIONS, NAMES, every=2)
def test_on_normal_numbers_norms_lie_between(direction: str, name: str) -> None:
    """In the median, the bounds are in this order: paths, norms, gamma_H W, kappa."""
    of_ways, by_paths, by_norms, by_kappa = shares("mb2ic64ih14oc64oh14kh3ph1", direction, name)
    assert by_paths < by_norms < of_ways < by_kappa


def test_the_page_has_what_usual_layers_ask() -> None:
    """The ranges of kappa H / h over the layers of the suite of tiles."""
    page = (DOCS / "numerics.md").read_text(encoding="utf-8")
    lines = [line.split("ntiles:")[0] for line in SUITE.read_text(encoding="utf-8").splitlines() if line[0] != "#"]
    layers = sorted({line.partition(" ")[2] for line in lines})
    both = "forward passes, data gradients"
    for direction, of in (("BWD_W", "weight gradients"), ("FWD_D", both), ("BWD_D", both)):
        ranges = []
        for name in NAMES:
            found = [guarantee(problem_of(f"{direction} {layer}"), name) for layer in layers]
            ranges.append(f"{min(found):.1f} to {max(found):.1f}")
        assert re.search(rf"^\| {of} \| {ranges[0]} \| {ranges[1]} \|$", page, re.MULTILINE), (of, ranges)


# -- where they are 0, or the direct sum's -------------------------------------------------------------------------


@tiers("direction, name, seed", DIRECTIONS, NAMES, range(3), every=2)
def test_integers_are_exact_up_to_the_proved_size(direction: str, name: str, seed: int) -> None:
    """Where W times the scale is at most 2^24, of operands as large as that lets them be: two thirds of it at least."""
    one = posed(f"mb1ic32ih{3 + seed}oc32oh{3 + seed}kh3ph1", name, direction=direction)
    rng, scale = np.random.default_rng([24, seed]), algorithm(one).scale(one.solves_for)
    shapes = canonical_shapes(one)[:-1]
    most = 2**24 // scale
    for few in (1, 2, 4, 8, 16, 32, 64):
        operands = [
            (rng.integers(-4, 5, shape) * (rng.integers(few, size=shape) == 0)).astype(np.float32) for shape in shapes
        ]
        if (times := int(most // sized(one, operands).max())) >= 2:
            break
    operands[0] *= np.float32(times)
    largest = sized(one, operands).max() * scale
    assert 2 / 3 * 2**24 <= largest <= 2**24
    assert (evaluate_in_order(one, operands) == evaluate(one, operands).value).all()
    assert not result_bound(one, operands).any()
    assert result_bound(one, operands, bound=NORMS).any()
    operands[0] *= np.float32(2)
    assert result_bound(one, operands).any()


def test_a_verdict_holds_integers_to_the_exact_sums() -> None:
    """Of the call, where it takes tiles."""
    x = np.ones((1, 28, 28, 64), np.float32)
    y = np.zeros_like(x)
    y[:, ::9, ::9] = 1
    call, shape = "ConvolutionBackwardWeights", (3, 3, 64, 64)
    given = {"strides": [1, 1], "dilations": [1, 1], "auto_pad": "same_upper"}
    assert not convgrad.error_bound(call, x, y, shape, max_error=64, **given).any()
    direct = convgrad.error_bound(call, x / 3, y, shape, **given)
    bounds = [convgrad.error_bound(call, x / 3, y, shape, max_error=64, bound=each, **given) for each in BOUNDS]
    assert all((each != direct).all() for each in bounds)
    assert (bounds[0] > 0).all()
    assert (bounds[0] < bounds[1]).all()
    assert (bounds[0] < bounds[2]).all()


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_what_may_not_be_finite_has_the_direct_sum_s_bound_too(direction: str) -> None:
    """As results are the direct sum's, whose height is more."""
    one = posed(LINES[0], "4x4", direction=direction)
    operands, how = drawn(one, 5), declared(one.operator, F32)
    assert not may_be_direct(one, operands)
    operands[0][0, 3, 2, 4] = np.inf
    operands[1] *= np.float32(1e-3)
    assert may_be_direct(one, operands)
    answer = evaluate(replace(one, algorithm=""), operands)
    bound, finite = bound_of(answer, one, how, operands), np.isfinite(answer.value)
    assert 0 < finite.sum() < finite.size
    terms = np.minimum(answer.terms, direct_height(one))
    assert (bound >= sum_bound(answer, F32, terms))[finite].all()
    off = np.abs(evaluate_in_order(one, operands)[finite] - answer.value[finite])
    assert (off <= bound[finite]).all()
    operands[0][0, 3, 2, 4] = 3e38
    assert may_be_direct(one, operands)


def test_nothing_is_promised_of_sums_in_few_bits() -> None:
    one = posed(LINES[2], "2x2")
    for bound in (PATHS, NORMS, KAPPA):
        assert np.isinf(result_bound(one, drawn(one, 1), ACCUMULATIONS["f8_e5m2"], bound)).all()


def test_the_bound_is_of_the_format_that_is_declared() -> None:
    x = np.random.default_rng(2).standard_normal((1, 36, 36, 40)).astype(np.float32)
    given = {"strides": [1, 1], "dilations": [1, 1], "auto_pad": "same_upper", "max_error": np.float32(64)}
    single, tf32 = (
        convgrad.error_bound("ConvolutionBackwardWeights", x, x, (3, 3, 40, 40), accumulation=name, **given)
        for name in ("f32", "tf32")
    )
    assert (tf32 > 1000 * single).all()
