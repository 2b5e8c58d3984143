"""Whether what a defect would have computed is what was got: inside that result's own bound, and not by chance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from convgrad.formats import round_to
from convgrad.spec.oracle import Answer
from convgrad.spec.order import last_additions
from convgrad.verify.compare import sum_bound
from convgrad.verify.diagnose.sums import FEW, F64Array, Scene, Sums, Where

Rounding = Callable[[F64Array], F64Array]

WHOLE = 2**27  # multiply-adds up to which another problem is computed whole; beyond, at SAMPLED elements of each kind
# Bits by which the wrong elements must speak for a name: some 2^9 explanations are tried, so chance names 1 in 2^15.
ENOUGH, MOST = 24.0, 24.0


@dataclass(frozen=True, eq=False)
class Explanation:
    """What a defect would have done: its sums, and how they become results.

    ``grain`` is how many of the output's numbers ``rounding`` can give, as a share; ``chosen`` counts the bits that
    were read off the result to choose the explanation.
    """

    name: str
    detail: str
    sums: Sums
    rounding: Rounding | None = None
    grain: float = 1.0
    chosen: float = 0.0


@dataclass(frozen=True)
class Fit:
    """An explanation that fits, and how far the result lies from it: the root mean square error over the bound."""

    name: str
    detail: str
    distance: float


def fits(scene: Scene, explanations: Iterable[Explanation]) -> Iterator[Fit]:
    """Yield the explanations that every element lies inside of, and that enough of the wrong ones speak for."""
    for one in explanations:
        few = scene.few
        stages = (few[:2], few[2:8], few[8:])
        if not all(_tried(scene, one, where, one.sums.at(where)).inside.all() for where in stages):
            continue
        whole = one.sums.work <= WHOLE
        where = np.arange(scene.actual.size) if whole else scene.many
        tried = _tried(scene, one, where, one.sums.whole() if whole else one.sums.at(where))
        if tried.inside.all() and _bits(scene, one, where, tried) >= ENOUGH + one.chosen:
            checked = "" if whole else f"checked at {where.size} elements"
            detail = ", ".join(part for part in (one.detail, checked) if part)
            yield Fit(one.name, detail, _distance(scene, one))


@dataclass(frozen=True, eq=False)
class _Tried:
    """An explanation's values at some elements, the ends of what it admits there, and which results lie inside."""

    value: F64Array
    low: F64Array
    high: F64Array
    free: NDArray[np.bool_]  # of any bound
    inside: NDArray[np.bool_]


def _rounding(scene: Scene, one: Explanation) -> Rounding:
    return one.rounding or (lambda values: round_to(values, scene.problem.output_format))


def _tried(scene: Scene, one: Explanation, where: Where, answer: Answer) -> _Tried:
    """Return which elements lie inside an explanation's bound: most explanations fail at the first."""
    answer = Answer(answer.value.ravel(), answer.magnitude.ravel(), answer.terms.ravel(), answer.integral)
    got, rounding, value = scene.actual[where], _rounding(scene, one), answer.value
    bound = sum_bound(answer, scene.accumulator, answer.terms + last_additions(scene.problem))
    low, high, free = rounding(value - bound), rounding(value + bound), np.isinf(bound)
    between = (low <= got) & (got <= high)
    if one.rounding:
        between &= rounding(got) == got
    return _Tried(value, low, high, free, free | between | (np.isnan(got) & np.isnan(value)))


def _bits(scene: Scene, one: Explanation, where: Where, tried: _Tried) -> float:
    """Return by how many bits elements speak for an explanation.

    They speak in two ways, of which the better counts. An element that is wrong, or that is no correctly rounded exact
    value but the only one the explanation admits, has as many bits as its error is longer than what is admitted. And
    where errors are symmetric, an element lies nearer to an unrelated value than to the exact one in half of all cases
    at most: k of m that do have m (1 - H(k / m)) bits, by Chernoff's bound.
    """
    fmt, got, exact = scene.problem.output_format, scene.actual[where], scene.exact.value.ravel()[where]
    wide = (tried.high - tried.low) * one.grain + np.abs(tried.value) * fmt.unit + fmt.tiny
    wide = np.maximum(wide, float(scene.reference.integral))  # integers meet by chance where their grid is coarse
    bits = np.log2(1 + np.abs(got - exact) / wide)
    bits = np.minimum(np.nan_to_num(bits, nan=MOST, posinf=MOST), MOST)
    right, told = round_to(exact, fmt), _rounding(scene, one)(tried.value)
    only = (tried.low == tried.high) & (got != right)
    apart = np.isfinite(got) & np.isfinite(right) & np.isfinite(told) & (told != right)
    nearer = apart & (np.abs(got - told) < np.abs(got - right))
    speaks = tried.inside & ~tried.free & (scene.beyond.ravel()[where] | only)
    return max(float(bits[speaks].sum()), 0.0 if one.chosen else _surprise(int(nearer.sum()), int(apart.sum())))


def _surprise(k: int, m: int) -> float:
    """Return a bound on the bits of k or more heads in m throws."""
    if 2 * k <= m:
        return 0.0
    share = k / m
    entropy = 0.0 if k == m else -share * np.log2(share) - (1 - share) * np.log2(1 - share)
    return float(m * (1 - entropy))


def _distance(scene: Scene, one: Explanation) -> float:
    where = scene.few[: min(FEW, scene.wrong.size)]
    answer = one.sums.at(where)
    out = scene.problem.output_format
    noise = answer.magnitude * scene.accumulator.unit + np.abs(answer.value) * out.unit + out.tiny
    share = (scene.actual[where] - answer.value) / noise
    share = share[np.isfinite(share)]
    return float(np.sqrt(np.mean(share**2))) if share.size else 0.0


def best(found: Sequence[Fit]) -> list[Fit]:
    """Return the fits that lie near as any, in the order of the table: of equals the simplest comes first."""
    nearest = min((one.distance for one in found), default=0.0)
    return [one for one in found if one.distance <= 2 * nearest + 1]
