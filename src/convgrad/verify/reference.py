"""The certified reference: per output element what a verdict has to know of the exact sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.formats import F64, Format, store
from convgrad.spec import oracle
from convgrad.spec.bound import gamma
from convgrad.spec.problem import Problem

Array = NDArray[Any]
F64Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Reference:
    """Canonical arrays, one entry per output element; bias and old value are part of the sums.

    ``value`` is the exact sum S in float64, ``error`` a rigorous bound on what that misses. ``magnitude`` is sum |x||y|
    (A), ``squares`` sum (xy)^2 (Q; good to 1 %), ``terms`` the number of products n, ``nonzero`` of those that are not
    0. ``integral``: all operands are integers, so that sums of magnitude below 2^p are exact in p bits in any order.
    """

    value: F64Array
    error: F64Array
    magnitude: F64Array
    squares: F64Array
    terms: NDArray[np.int64]
    nonzero: NDArray[np.int64]
    integral: bool

    def rounded(self, fmt: Format) -> Array:
        """Return the exact sums correctly rounded to a format; an exact zero is +0."""
        return store(self.value + 0.0, fmt)


def certify(
    problem: Problem,
    operands: Sequence[Array],
    old: Array | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> Reference:
    """Return the reference of a problem on canonical operands; ``old`` is what an accumulating problem adds to."""
    answer = oracle.evaluate(problem, operands, old, progress)
    with np.errstate(all="ignore"):
        given = {t: np.asarray(a).astype(np.float64) for t, a in zip(problem.operands, operands, strict=True)}
        squared = [np.square(np.where(np.isfinite(a), a, 0.0)) for a in given.values()]
        present = [np.where(np.isfinite(a), a != 0, True).astype(np.float64) for a in given.values()]
        zero = None if old is None else np.zeros_like(np.asarray(old, np.float64))
        squares = oracle.evaluate(problem, squared, zero).value
        nonzero = oracle.evaluate(problem, present, zero).value
        error = gamma(int(answer.terms.max(initial=0)) + 2, F64.unit) * answer.magnitude
    counted = np.rint(nonzero).astype(np.int64)
    return Reference(answer.value, error, answer.magnitude, squares, answer.terms, counted, answer.integral)
