"""Norms of samples whose gradient is a product: the products of the norms of its factors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.spec.problem import Problem
from convgrad.spec.samples import factors

CHUNK_BYTES = 1 << 20  # of both operands in f32: copies stay in a cache

Array = NDArray[Any]
Squares = Callable[[Array], Array]  # the squared norm of each row of a dense array of f32, in f64


def norms2(problem: Problem, operands: Sequence[Array], out: Array, squares: Squares) -> None:
    """Write each sample's |x|^2 |dy|^2, summed over groups; ``operands``, canonical, hold all samples."""
    step = max(1, CHUNK_BYTES // (4 * sum(prod(array.shape[1:]) for array in operands)))
    for first in range(0, len(out), step):
        made = factors(problem, [array[first : first + step] for array in operands])
        if not made[0].size:  # no tap exists: diff_dst is not read, even if it is not finite
            out[:] = 0
            return
        src, dst = (
            squares(np.ascontiguousarray(one, np.float32).reshape(-1, one.shape[-1])).reshape(one.shape[:2])
            for one in made
        )
        with np.errstate(all="ignore"):
            out[first : first + step] = np.cumsum(src * dst, axis=1)[:, -1]  # one group after the other
