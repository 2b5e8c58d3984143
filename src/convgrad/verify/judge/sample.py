"""The sample: the terms of some output elements, for statistics that need more than sums and sums of squares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from convgrad.array_types import Array, F64Array
from convgrad.spec.problem import Problem
from convgrad.verify.rows import rows_of
from convgrad.verify.terms import Index

ELEMENTS, FEWEST = 48, 8
TERMS = 2**22  # maximum number of terms of all sampled elements


@dataclass(frozen=True, eq=False)
class Sample:
    """The terms of some elements: ``x`` and ``y`` have the shape [element, summed images or channels, spatial...].

    Elements at a border have fewer terms, and zeros fill their rows. Products that are 0 do not count as terms.
    """

    at: tuple[Index, ...]
    x: F64Array
    y: F64Array

    @property
    def products(self) -> F64Array:
        """The products x * y, with 0 instead of NaN and infinities."""
        return np.nan_to_num(self.x * self.y, nan=0.0, posinf=0.0, neginf=0.0)


def take(problem: Problem, operands: Sequence[Array], at: Sequence[Index]) -> Sample:
    """Return the sample of the elements at these indices."""
    x, y = rows_of(problem, operands, at)
    return Sample(tuple(at), x, y)


def sampled(judged: NDArray[np.bool_], terms: NDArray[np.int64]) -> list[Index]:
    """Return the indices of a random sample of the judged elements; equal calls return equal indices."""
    candidates = np.flatnonzero(judged)
    count = min(ELEMENTS, max(FEWEST, TERMS // max(1, int(terms.max(initial=1)))), candidates.size)
    chosen = np.random.default_rng(0).choice(candidates, count, replace=False)
    return [tuple(int(i) for i in np.unravel_index(at, judged.shape)) for at in chosen]
