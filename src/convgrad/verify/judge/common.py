"""Changes that all results have in common: a factor, an added constant, truncated products or additions.

The factor or the constant is fitted to the errors. The change is named only if no statistic raises an alarm after the
change is removed from the errors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from convgrad.array_types import F64Array
from convgrad.verify.judge.errors import Errors
from convgrad.verify.judge.model import last_place
from convgrad.verify.judge.names import ADDITIONS_TRUNCATED, OFFSET, PRODUCTS_TRUNCATED, SCALED
from convgrad.verify.judge.partials import far_above
from convgrad.verify.judge.statistics.bias import leaning
from convgrad.verify.judge.statistics.groups import UPRIGHT, leanings, sizes
from convgrad.verify.judge.statistics.size import largest, root_mean_square
from convgrad.verify.verdict import Defect

LEANING = 0.8  # minimum share of errors towards 0 if all additions are truncated
# Ranges of the relative loss of a result: in u for truncated products, in n u for truncated additions.
# Truncation subtracts half of the last place on average, which is 0.5 to 1 u of a number, and 0.72 u on average.
# The n partial sums that truncated additions affect are half as large as the result on average.
PRODUCTS, ADDITIONS = (0.4, 1.25), (0.2, 0.6)


def common_change(errors: Errors) -> tuple[Defect, ...]:
    """Return the change that all results have in common as a defect, with alternatives; () if there is none."""
    fits = [change for change in (_factor(errors), _constant(errors)) if _clean(errors.against(change.values))]
    truncated = _additions_truncated(errors)
    if not fits:
        return (Defect(ADDITIONS_TRUNCATED, "all errors are towards 0"),) if truncated else ()
    first, *others = fits
    if first.name == SCALED:
        lost = -first.share / errors.accumulator.unit
        if PRODUCTS[0] < lost < PRODUCTS[1]:
            return (Defect(PRODUCTS_TRUNCATED, first.detail),)
        if truncated and far_above(errors):
            additions = _Change(ADDITIONS_TRUNCATED, "all errors are towards 0", errors.value, 0.0)
            likely = ADDITIONS[0] < lost / float(np.median(errors.terms[errors.alone])) < ADDITIONS[1]
            first, others = (additions, [first, *others]) if likely else (first, [additions, *others])
    also = [f"also fits: {', '.join(f'{other.name}, {other.detail}' for other in others)}"] if others else []
    return (Defect(first.name, "; ".join([first.detail, *also])),)


@dataclass(frozen=True, eq=False)
class _Change:
    """A change of all results: its name, its size in words, the changed exact values, and the fitted coefficient."""

    name: str
    detail: str
    values: F64Array
    share: float


def _factor(errors: Errors) -> _Change:
    share = _fitted(errors, errors.value)
    return _Change(SCALED, f"times 1 {'-' if share < 0 else '+'} {abs(share):.2g}", errors.value * (1 + share), share)


def _constant(errors: Errors) -> _Change:
    constant = _fitted(errors, np.ones_like(errors.value))
    return _Change(OFFSET, f"of {constant:.3g}", errors.value + constant, constant)


def _fitted(errors: Errors, pattern: F64Array) -> float:
    """Return the coefficient of a pattern in the errors, by least squares weighted with the model's variance."""
    noise = np.square(errors.deviation)
    if errors.narrow:
        noise = noise + np.square(last_place(errors.value, errors.fmt)) / 12
    chosen = errors.alone
    own, weight, error = pattern[chosen], 1 / noise[chosen], (errors.got - errors.value)[chosen]
    size = float(np.sum(weight * own * own))
    return float(np.sum(weight * own * error)) / size if size else 0.0


def _clean(errors: Errors) -> bool:
    """Return whether no statistic of size or bias raises an alarm for these errors."""
    has_alarm = any(statistic(errors).evidence for statistic in (root_mean_square, largest, sizes, leanings))
    return not has_alarm and leaning(errors) <= UPRIGHT


def _additions_truncated(errors: Errors) -> bool:
    """Return whether errors may come from truncated additions: most are towards 0, and none is too large."""
    maximum = 2 * errors.accumulator.unit * errors.terms * errors.magnitude
    towards = (errors.z * np.sign(errors.value))[errors.alone]
    lean = np.count_nonzero(towards < 0) > LEANING * np.count_nonzero(towards)
    return bool(towards.mean() < 0 and lean and (np.abs(errors.error) <= maximum)[errors.alone].all())
