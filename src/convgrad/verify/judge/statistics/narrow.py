"""The number of results of a narrow format that are not the rounded exact value, compared with the expected number.

If errors follow the model, an element's sum crosses the boundary between two results with a known probability. The
number of crossings has about a Poisson distribution.
"""

from __future__ import annotations

from math import erfc, sqrt
from typing import TypeVar

import numpy as np

from convgrad.array_types import F64Array
from convgrad.formats import round_to
from convgrad.verify.judge.errors import Errors
from convgrad.verify.judge.model import cell
from convgrad.verify.judge.statistics.finding import Finding
from convgrad.verify.judge.statistics.groups import groupings
from convgrad.verify.verdict import Evidence

Amount = TypeVar("Amount", float, F64Array)

WIDENED = 1.3  # factor on standard deviations, because right results may err that much more than the model predicts
FAR = 7.0  # distance in standard deviations from which no crossing is expected

_erfc = np.frompyfunc(erfc, 1, 1)


def mismatch_threshold(
    expected: Amount, shared: float, slack: float = 1.2, deviations: float = 6.0, minimum: float = 10.0
) -> Amount:
    """Return the threshold of the number of mismatches, if ``expected`` ones occur on average, ``shared`` together."""
    threshold: Amount = slack * expected + deviations * np.sqrt(shared * expected) + minimum * shared
    return threshold


def expected_mismatches(errors: Errors) -> F64Array:
    """Return the probability that each element's sum is rounded to a different result than the exact value."""
    low, high = cell(round_to(errors.value, errors.fmt), errors.fmt)
    deviation = WIDENED * errors.deviation
    crossing = _tail((high - errors.value) / deviation) + _tail((errors.value - low) / deviation)
    return np.where(errors.alone, crossing, 0.0)


def _tail(distance: F64Array) -> F64Array:
    tail = np.zeros(distance.shape)
    near = distance < FAR
    tail[near] = np.asarray(_erfc(distance[near] / sqrt(2)), np.float64) / 2
    return tail


def mismatches(errors: Errors) -> Finding:
    """Return the number of results that are not the rounded exact value, in total and by group."""
    if not errors.narrow:
        return Finding()
    crossing = expected_mismatches(errors)
    other = errors.alone & (round_to(errors.value, errors.fmt) != errors.got)
    count, expected = int(np.count_nonzero(other)), float(crossing.sum())
    threshold, evidence = float(mismatch_threshold(expected, errors.shared)), []
    if count > threshold:
        evidence.append(Evidence("results that are not the exact value rounded", count, threshold))
    for grouping, _ in groupings(errors) if count else ():
        counts, crossings = grouping.total(other), grouping.total(crossing)
        limits = mismatch_threshold(crossings, errors.shared, 1.3, 5.0, 6.0)
        worst = tuple(int(i) for i in np.unravel_index(int((counts - limits).argmax()), counts.shape))
        if counts[worst] > limits[worst]:
            words = f"results that are not the exact value rounded, of a {grouping.name}"
            evidence.append(Evidence(words, float(counts[worst]), float(limits[worst]), grouping.place(worst)))
    return Finding({"mismatches": count, "mismatches expected at most": expected}, tuple(evidence))
