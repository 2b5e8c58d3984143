"""Statistics of the size of errors: their root mean square in deviations, R, and the largest error."""

from __future__ import annotations

from math import log, sqrt

import numpy as np

from convgrad.verify.judge.errors import Errors
from convgrad.verify.judge.model import last_place
from convgrad.verify.judge.names import SINGLE
from convgrad.verify.judge.statistics.finding import LEVEL, Finding
from convgrad.verify.verdict import Defect, Evidence

SUSPECTS, TERMS = 64, 2**22  # maximum numbers of elements and of their terms in a second test
SHOWN = 8  # if a wrong group has more expected visible errors, chance cannot hide all of them
LARGEST = "the largest error"
FEW = 4  # maximum number of elements that count as single; all others must be far below the threshold


def size_threshold(elements: float, slack: float = 6.0) -> float:
    """Return the threshold of R: R is at most 1 by the model, but has a heavy tail if elements are few."""
    return 1.3 * (1 + slack / sqrt(max(elements, 1)))


def largest_threshold(elements: int) -> float:
    """Return the threshold of the largest error, in deviations.

    For terms in a fixed order, partial sums are like a random walk's bridge. The sum of their squares, x times its
    mean, has the tail exp(-pi^2 x / 12). So an error has the tail exp(-1.28 z), not that of a normal distribution.
    """
    return 2 + 0.6 * log(max(elements, 2) / LEVEL)


def root_mean_square(errors: Errors) -> Finding:
    """Return R, the root mean square of errors in standard deviations.

    A large R is computed again with the variance factors (kappas) of the sampled elements themselves.
    """
    z = errors.z[errors.alone]
    size, threshold = sqrt(float(np.square(z).mean())), size_threshold(z.size / errors.shared)
    if threshold < size < 6 * threshold:
        sampled = np.array([errors.z[index] for index in errors.sample.at])
        size = sqrt(float((np.square(sampled) / np.maximum(errors.kappas / errors.kappa, 1)).mean()))
        threshold = size_threshold(min(sampled.size, z.size / errors.shared))
    evidence = (Evidence("R, the size of the errors,", size, threshold),) if size > threshold else ()
    return Finding({"R": size}, evidence)


def largest(errors: Errors) -> Finding:
    """Return the largest error in standard deviations.

    The deviations of elements with large errors are computed again with their own variance factors (kappas).
    """
    z, judged = np.abs(errors.z), int(np.count_nonzero(errors.judged))
    threshold, maximum = largest_threshold(judged), float(z.max())
    if maximum <= threshold / 2:
        return Finding({"max": maximum})
    count = min(SUSPECTS, max(2 * FEW, TERMS // int(errors.terms.max())), z.size)
    suspects = np.argpartition(z, z.size - count, axis=None)[z.size - count :]
    suspects = suspects[z.ravel()[suspects] > threshold / 2]
    at = [tuple(int(i) for i in np.unravel_index(suspect, z.shape)) for suspect in suspects]
    looked = np.array([z[index] for index in at]) / np.sqrt(errors.own_share(at))
    worst = int(looked.argmax())
    if looked[worst] <= threshold:
        return Finding({"max": float(looked[worst])})
    evidence = Evidence(LARGEST, float(looked[worst]), threshold, errors.place(at[worst]))
    single = int((looked > threshold).sum())
    next_largest = (
        float(np.partition(z, z.size - single - 1, axis=None)[z.size - single - 1]) if single < z.size else 0.0
    )
    named: tuple[Defect, ...] = ()
    ratio = abs(errors.error[at[worst]] / errors.value[at[worst]]) if errors.value[at[worst]] else np.inf
    if single <= min(FEW, judged // 16) and next_largest < threshold / 2 and _others_would_show(errors, ratio):
        named = (Defect(SINGLE, f"{single}, the worst {errors.place(at[worst])} by {ratio:.2g} of its value"),)
    return Finding({"max": float(looked[worst])}, (evidence,), named)


def _others_would_show(errors: Errors, ratio: float) -> bool:
    """Return whether equal relative errors of the other elements of a group would be detected.

    The rounding of a narrow result hides most small errors.
    """
    if not errors.narrow:
        return True
    crossing = float(
        np.minimum(1, ratio * np.abs(errors.value) / last_place(errors.value, errors.fmt))[errors.alone].mean()
    )
    return bool(crossing * max(errors.value.shape) > SHOWN)
