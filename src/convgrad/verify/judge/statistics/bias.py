"""Statistics of biased errors: towards or away from 0, in proportion to the value, or all to one side.

The tail of t = sum d / sqrt(sum d^2) is below 2 exp(-t^2/2) for symmetric independent errors of any scales, so the
order of sums need not be known. The bias that rounding to nearest may cause is subtracted first. Elements that share
products count as one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from convgrad.verify.judge.errors import Errors
from convgrad.verify.judge.statistics.finding import Finding
from convgrad.verify.verdict import Evidence

THRESHOLD = 5.5  # 2 exp(-t^2/2) = 5e-7
FEWEST = 16


def bias(errors: Errors) -> Finding:
    """Return the statistic t of errors times the value's sign: negative if results are too small in magnitude."""
    return _leaning(errors, np.sign(errors.value), "bias", "towards 0", "away from 0")


def slope(errors: Errors) -> Finding:
    """Return the statistic t of errors times the value: large if errors grow with the value, as after a wrong scale."""
    return _leaning(errors, errors.value / errors.deviation, "slope", "towards 0, by the value", "by the value")


def mean(errors: Errors) -> Finding:
    """Return the statistic t of the errors: large if all errors are to one side, as after an added constant."""
    return _leaning(errors, errors.deviation[errors.alone].min(initial=np.inf) / errors.deviation, "mean", "down", "up")


def leaning(errors: Errors) -> float:
    """Return the largest absolute value of the statistics ``bias``, ``slope`` and ``mean``."""
    return max(
        (abs(value) for statistic in (bias, slope, mean) for value in statistic(errors).figures.values()),
        default=0.0,
    )


def _leaning(errors: Errors, weight: NDArray[np.float64], name: str, below: str, above: str) -> Finding:
    chosen = errors.alone
    if np.count_nonzero(chosen) < FEWEST:
        return Finding()
    leaning, weights = (errors.z * weight)[chosen], np.abs(weight[chosen])
    length = float(np.sqrt(errors.shared * np.square(leaning).sum()))
    total, allowed = float(leaning.sum()), float((errors.allowance[chosen] * weights).sum())
    t = float(np.sign(total)) * max(abs(total) - allowed, 0.0) / length if length else 0.0
    evidence = (
        (Evidence(f"{name} of the errors", t, THRESHOLD, below if t < 0 else above),) if abs(t) > THRESHOLD else ()
    )
    return Finding({name: t}, evidence)
