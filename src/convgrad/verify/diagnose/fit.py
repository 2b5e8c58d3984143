"""Fits of explanations: whether a result is inside the bound of the sums that a defect computes, and not by chance."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from convgrad.array_types import F64Array
from convgrad.formats import round_to
from convgrad.spec.exact_result import Answer
from convgrad.spec.order import last_additions
from convgrad.verify.compare import sum_bound
from convgrad.verify.diagnose.sums import FEW, DefectSums, Scene, Where

Rounding = Callable[[F64Array], F64Array]

WHOLE = 2**27  # multiply-adds; larger sums are computed only at SAMPLED wrong and SAMPLED right elements
# Bits of evidence that a name needs, and the most that one element gives.
# About 2^9 explanations are tried, so chance gives a name to 1 in 2^15 results.
ENOUGH, MAXIMUM = 24.0, 24.0
FIRST = 2  # number of elements at which every explanation is computed first
LEFT = 0.25  # largest share of the errors that an explanation may leave unexplained
CLOSER = {8: 1.0, 2 * FEW: 0.75}  # the same at so many elements, which are computed before all
FAR = 1e6  # the largest ratio of error to noise that counts; larger ratios are cut


@dataclass(frozen=True, eq=False)
class DefectEffect:
    """The effect of a defect: the sums that it computes, and their rounding to results.

    ``rounding`` is None if sums are rounded to the output format. ``grain`` is the share of the output format's numbers
    that ``rounding`` can give. ``chosen`` is the number of bits of a constant that was fitted to the result.
    """

    name: str
    detail: str
    sums: DefectSums
    rounding: Rounding | None = None
    grain: float = 1.0
    chosen: float = 0.0


@dataclass(frozen=True)
class Fit:
    """An explanation that fits, and the result's distance from it: the root mean square of error over noise."""

    name: str
    detail: str
    distance: float
    chosen: bool = False  # whether a constant was fitted


def fits(scene: Scene, explanations: Iterable[DefectEffect]) -> list[Fit]:
    """Return the explanations that fit and are about as near to the result as the nearest one, the simplest first.

    Explanations with a constant that was fitted to the result come last.

    Each explanation is first computed at two elements, which give a lower bound of its distance from the result. Then
    explanations are computed in full, in the order of this bound, until no other can be as near as one that fits. The
    distance matters because a result of long sums is inside the wide bounds of most explanations.
    """
    waiting: list[tuple[float, int, DefectEffect]] = []
    for at, explanation in enumerate(explanations):
        answer = explanation.sums.at(scene.few[:FIRST])
        if _inside(scene, explanation, scene.few[:FIRST], answer)[0].all():
            waiting.append((_distance(scene, explanation, answer), at, explanation))
    fits_by_order: dict[tuple[bool, int], Fit] = {}
    nearest = np.inf
    for minimum, at, explanation in sorted(waiting, key=lambda row: row[:2]):
        if minimum > _near(nearest):
            break
        fit = _fit(scene, explanation)
        if fit is not None:
            fits_by_order[bool(explanation.chosen), at], nearest = fit, min(nearest, fit.distance)
    return [fit for _, fit in sorted(fits_by_order.items()) if fit.distance <= _near(nearest)]


def _near(nearest: float) -> float:
    return 2 * nearest + 1


def _fit(scene: Scene, explanation: DefectEffect) -> Fit | None:
    """Return the fit of an explanation, or None if it does not fit.

    An explanation fits if all elements are inside its bound, and the wrong elements give enough bits of evidence. The
    bound of long sums is wide, so an explanation must also leave at most a quarter of the errors.
    """
    for count, share in CLOSER.items():
        answer = explanation.sums.at(scene.few[:count])
        inside, _ = _inside(scene, explanation, scene.few[:count], answer)
        if not inside.all() or not _explains(scene, explanation, scene.few[:count], answer, share):
            return None
    distance = _distance(scene, explanation, answer)
    whole = explanation.sums.work <= WHOLE
    where = np.arange(scene.actual.size) if whole else scene.many
    answer = explanation.sums.whole() if whole else explanation.sums.at(where)
    inside, bits = _inside(scene, explanation, where, answer)
    if not inside.all() or bits < ENOUGH + explanation.chosen or not _explains(scene, explanation, where, answer):
        return None
    checked = "" if whole else f"checked at {where.size} elements"
    return Fit(
        explanation.name,
        ", ".join(part for part in (explanation.detail, checked) if part),
        distance,
        bool(explanation.chosen),
    )


def _explains(scene: Scene, explanation: DefectEffect, where: Where, answer: Answer, share: float = LEFT) -> bool:
    """Return whether an explanation leaves at most this share of the distance between the result and the right one."""
    got, exact = scene.actual[where], scene.exact.value.ravel()[where]
    noise = np.maximum(
        _noise(scene, exact, scene.exact.magnitude.ravel()[where]),
        _noise(scene, answer.value.ravel(), answer.magnitude.ravel()),  # an exact sum without terms has no noise
    )
    was, left = (
        np.nan_to_num(np.minimum(np.abs(got - claimed) / noise, FAR), nan=FAR)
        * ~((got == claimed) | (np.isnan(got) & np.isnan(claimed)))
        for claimed in (
            round_to(exact, scene.problem.output_format),
            _rounded_by(scene, explanation, answer.value.ravel()),
        )
    )
    return float(left @ left) <= float(was @ was) * share**2


def _rounded_by(scene: Scene, explanation: DefectEffect, value: F64Array) -> F64Array:
    return explanation.rounding(value) if explanation.rounding else round_to(value, scene.problem.output_format)


def _noise(scene: Scene, value: F64Array, magnitude: F64Array) -> F64Array:
    out = scene.problem.output_format
    noise: F64Array = magnitude * scene.accumulator.unit + np.abs(value) * out.unit + out.tiny
    return noise


def _inside(scene: Scene, explanation: DefectEffect, where: Where, answer: Answer) -> tuple[NDArray[np.bool_], float]:
    """Return a mask of the elements inside an explanation's bound, and the bits of evidence for the explanation.

    The evidence is the larger of two counts. First, a wrong element gives log2(1 + error / width of the bound) bits. A
    right element gives as many bits if it is not the rounded exact value, and the explanation admits no other value.
    Second, if errors are symmetric, an element is nearer to an unrelated value than to the exact one in at most half of
    all cases. If k of m elements are nearer to the explanation, this gives m (1 - H(k / m)) bits, by Chernoff's bound
    with the binary entropy H.
    """
    answer = Answer(answer.value.ravel(), answer.magnitude.ravel(), answer.terms.ravel(), answer.integral)
    fmt, got, exact = scene.problem.output_format, scene.actual[where], scene.exact.value.ravel()[where]
    rounding = explanation.rounding or (lambda values: round_to(values, fmt))
    added = last_additions(scene.problem)
    bound = sum_bound(answer, scene.accumulator, answer.terms + added, added)
    free = np.isinf(bound)
    low, high = rounding(answer.value - bound), rounding(answer.value + bound)
    between = (low <= got) & (got <= high) & (rounding(got) == got)
    inside = free | between | (np.isnan(got) & np.isnan(answer.value))
    wide = (high - low) * explanation.grain + np.abs(answer.value) * fmt.unit + fmt.tiny
    wide = np.maximum(wide, float(scene.reference.integral))  # integers may be equal by chance
    bits = np.log2(1 + np.abs(got - exact) / wide)
    bits = np.minimum(np.nan_to_num(bits, nan=MAXIMUM, posinf=MAXIMUM), MAXIMUM)
    right, claimed = round_to(exact, fmt), rounding(answer.value)
    only = (low == high) & (got != right)
    apart = np.isfinite(got) & np.isfinite(right) & np.isfinite(claimed) & (claimed != right)
    nearer = apart & (np.abs(got - claimed) < np.abs(got - right))
    speaks = inside & ~free & (scene.beyond.ravel()[where] | only)
    return inside, max(float(bits[speaks].sum()), surprise(int(nearer.sum()), int(apart.sum())))


def surprise(k: int, m: int) -> float:
    """Return a lower bound on the bits of evidence of k or more heads in m throws of a coin."""
    if 2 * k <= m:
        return 0.0
    share = k / m
    entropy = 0.0 if k == m else -share * np.log2(share) - (1 - share) * np.log2(1 - share)
    return float(m * (1 - entropy))


def _distance(scene: Scene, explanation: DefectEffect, answer: Answer) -> float:
    """Return the root mean square of error over noise at some wrong elements, or a lower bound of this distance.

    ``answer`` has the sums of the first elements of ``scene.few``; the errors of the other elements count as 0.
    """
    count = min(FEW, scene.wrong.size)
    computed = min(count, answer.value.size)
    value, magnitude = answer.value.ravel()[:computed], answer.magnitude.ravel()[:computed]
    share = (scene.actual[scene.few[:computed]] - _rounded_by(scene, explanation, value)) / _noise(
        scene, value, magnitude
    )
    share = share[np.isfinite(share)]
    known = share.size if computed == count else count
    return float(np.sqrt(np.sum(share**2) / known)) if share.size else 0.0
