"""Whether what a defect would have computed is what was got: inside that result's own bound, and not by chance."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
FIRST = 2  # elements at which all are looked at
LEFT = 0.25  # of the errors, at most, by an explanation
FAR = 1e6  # of the noise, beyond which errors count alike


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


def fits(scene: Scene, explanations: Iterable[Explanation]) -> list[Fit]:
    """Return the explanations that are near as any and fit, in their order: of equals the simplest comes first.

    What was read off the result, a constant, comes last.

    All are looked at in two elements, which tell the least distance that each can have; then the nearest are computed,
    until no other can be as near as one that fits. Where sums are long, most lie inside their bound and few are near.
    """
    waiting: list[tuple[float, int, Explanation]] = []
    for at, one in enumerate(explanations):
        answer = one.sums.at(scene.few[:FIRST])
        if _inside(scene, one, scene.few[:FIRST], answer)[0].all():
            waiting.append((_distance(scene, one, answer), at, one))
    found: dict[tuple[bool, int], Fit] = {}
    nearest = np.inf
    for least, at, one in sorted(waiting, key=lambda row: row[:2]):
        if least > _near(nearest):
            break
        fit = _fit(scene, one)
        if fit is not None:
            found[bool(one.chosen), at], nearest = fit, min(nearest, fit.distance)
    return [fit for _, fit in sorted(found.items()) if fit.distance <= _near(nearest)]


def _near(nearest: float) -> float:
    return 2 * nearest + 1


def _fit(scene: Scene, one: Explanation) -> Fit | None:
    """Return the fit of an explanation that every element lies inside of, and that enough of the wrong ones speak for.

    Where sums are long their bound is wide, so it must leave less than a quarter of the errors, too.
    """
    answer = one.sums.at(scene.few)
    if not _inside(scene, one, scene.few, answer)[0].all():
        return None
    distance = _distance(scene, one, answer)
    whole = one.sums.work <= WHOLE
    where = np.arange(scene.actual.size) if whole else scene.many
    answer = one.sums.whole() if whole else one.sums.at(where)
    inside, bits = _inside(scene, one, where, answer)
    if not inside.all() or bits < ENOUGH + one.chosen or not _explains(scene, one, where, answer):
        return None
    checked = "" if whole else f"checked at {where.size} elements"
    return Fit(one.name, ", ".join(part for part in (one.detail, checked) if part), distance)


def _explains(scene: Scene, one: Explanation, where: Where, answer: Answer) -> bool:
    """Tell whether results lie less than a quarter as far from what an explanation gives as from the right ones."""
    got, exact = scene.actual[where], scene.exact.value.ravel()[where]
    noise = np.maximum(
        _noise(scene, exact, scene.exact.magnitude.ravel()[where]),
        _noise(scene, answer.value.ravel(), answer.magnitude.ravel()),  # the exact sum may have no terms
    )
    was, left = (
        np.nan_to_num(np.minimum(np.abs(got - told) / noise, FAR), nan=FAR)
        * ~((got == told) | (np.isnan(got) & np.isnan(told)))
        for told in (round_to(exact, scene.problem.output_format), _told(scene, one, answer.value.ravel()))
    )
    return float(left @ left) <= float(was @ was) * LEFT**2


def _told(scene: Scene, one: Explanation, value: F64Array) -> F64Array:
    return one.rounding(value) if one.rounding else round_to(value, scene.problem.output_format)


def _noise(scene: Scene, value: F64Array, magnitude: F64Array) -> F64Array:
    out = scene.problem.output_format
    noise: F64Array = magnitude * scene.accumulator.unit + np.abs(value) * out.unit + out.tiny
    return noise


def _inside(scene: Scene, one: Explanation, where: Where, answer: Answer) -> tuple[NDArray[np.bool_], float]:
    """Return which elements lie inside an explanation's bound, and by how many bits they speak for it.

    They speak in two ways, of which the better counts. An element that is wrong, or that is no correctly rounded exact
    value but the only one the explanation admits, has as many bits as its error is longer than what is admitted. And
    where errors are symmetric, an element lies nearer to an unrelated value than to the exact one in half of all cases
    at most: k of m that do have m (1 - H(k / m)) bits, by Chernoff's bound.
    """
    answer = Answer(answer.value.ravel(), answer.magnitude.ravel(), answer.terms.ravel(), answer.integral)
    fmt, got, exact = scene.problem.output_format, scene.actual[where], scene.exact.value.ravel()[where]
    rounding = one.rounding or (lambda values: round_to(values, fmt))
    bound = sum_bound(answer, scene.accumulator, answer.terms + last_additions(scene.problem))
    free = np.isinf(bound)
    low, high = rounding(answer.value - bound), rounding(answer.value + bound)
    between = (low <= got) & (got <= high) & (rounding(got) == got)
    inside = free | between | (np.isnan(got) & np.isnan(answer.value))
    wide = (high - low) * one.grain + np.abs(answer.value) * fmt.unit + fmt.tiny
    wide = np.maximum(wide, float(scene.reference.integral))  # integers meet by chance where their grid is coarse
    bits = np.log2(1 + np.abs(got - exact) / wide)
    bits = np.minimum(np.nan_to_num(bits, nan=MOST, posinf=MOST), MOST)
    right, told = round_to(exact, fmt), rounding(answer.value)
    only = (low == high) & (got != right)
    apart = np.isfinite(got) & np.isfinite(right) & np.isfinite(told) & (told != right)
    nearer = apart & (np.abs(got - told) < np.abs(got - right))
    speaks = inside & ~free & (scene.beyond.ravel()[where] | only)
    return inside, max(float(bits[speaks].sum()), _surprise(int(nearer.sum()), int(apart.sum())))


def _surprise(k: int, m: int) -> float:
    """Return a bound on the bits of k or more heads in m throws."""
    if 2 * k <= m:
        return 0.0
    share = k / m
    entropy = 0.0 if k == m else -share * np.log2(share) - (1 - share) * np.log2(1 - share)
    return float(m * (1 - entropy))


def _distance(scene: Scene, one: Explanation, answer: Answer) -> float:
    """Return the root mean square error over the noise at some wrong elements, or the least it can be.

    ``answer`` is of the first of ``scene.few``; those of which it says nothing count as 0.
    """
    count = min(FEW, scene.wrong.size)
    seen = min(count, answer.value.size)
    value, magnitude = answer.value.ravel()[:seen], answer.magnitude.ravel()[:seen]
    share = (scene.actual[scene.few[:seen]] - _told(scene, one, value)) / _noise(scene, value, magnitude)
    share = share[np.isfinite(share)]
    known = share.size if seen == count else count
    return float(np.sqrt(np.sum(share**2) / known)) if share.size else 0.0
