"""Detection limits: the smallest defects that the statistics would have detected in a result, by name."""

from __future__ import annotations

from math import floor, log, log2, sqrt

import numpy as np

from convgrad.verify.judge.errors import Errors
from convgrad.verify.judge.model import last_place
from convgrad.verify.judge.statistics.bias import THRESHOLD
from convgrad.verify.judge.statistics.finding import LEVEL
from convgrad.verify.judge.statistics.groups import groupings
from convgrad.verify.judge.statistics.narrow import expected_mismatches, mismatch_threshold
from convgrad.verify.judge.statistics.size import largest_threshold, size_threshold

ELEMENT = "one element, relative"
ALL = "all elements, relative"
PARTIALS = "bits of rounded partial sums"


def detection_limits(errors: Errors) -> dict[str, float]:
    """Return the smallest detectable relative errors of one element, of all elements and of a group, by name.

    The limit of one element is for an element of median size. The limit of rounded partial sums is a number of bits:
    partial sums rounded to that many bits or fewer are detected. For n terms of mean 0 and unit roundoff u, this number
    is about log2(1 / (1.2 u sqrt n)).
    """
    chosen = errors.alone & (errors.value != 0)
    if not chosen.any():
        return {}
    count = int(np.count_nonzero(chosen))
    value, deviation = np.abs(errors.value[chosen]), errors.deviation[chosen]
    half = last_place(errors.value, errors.fmt)[chosen] / 2 if errors.narrow else np.zeros(count)
    limits = {ELEMENT: float(np.median((largest_threshold(count) * deviation + half) / value))}
    size = sqrt(float(np.square(errors.z[chosen]).mean()))
    relative = float(np.median(deviation / value))
    if errors.narrow:  # an error of a fraction of the last place changes this fraction of the results
        expected = float(expected_mismatches(errors).sum())
        share = (
            float(mismatch_threshold(0.0, errors.shared) + mismatch_threshold(expected, errors.shared) - expected)
            / count
        )
        limits[ALL] = share * float(np.median(2 * half / value))
    else:
        size = max(
            size, sqrt(float(np.square(2 * last_place(errors.value, errors.fmt)[chosen] / deviation).mean() / 48))
        )
        limits[ALL] = relative * (
            THRESHOLD * size * sqrt(errors.shared / count) + float(np.mean(errors.allowance[chosen]))
        )
        for grouping, counts in groupings(errors):
            length = float(np.median(counts[counts > 0]))
            needed = (sqrt(2 * log(4 * counts.size / LEVEL)) + 1) * size * sqrt(errors.shared / length)
            limits[f"a {grouping.name}, relative"] = relative * (needed + float(np.mean(errors.allowance[chosen])))
    caused = 0.17 * np.minimum(np.square(errors.value[chosen]), errors.spread[chosen]) / np.square(deviation)
    typical = sqrt(float(caused.mean())) / size_threshold(count / errors.shared)
    if typical > 0 and not errors.narrow:
        limits[PARTIALS] = float(max(0, floor(log2(typical))))
    return limits
