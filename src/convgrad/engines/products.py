"""Per-sample norms for gradients that are a product of two vectors: the norm is the product of the vectors' norms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from convgrad.array_types import Array
from convgrad.spec.problem import Problem
from convgrad.spec.samples import factors

CHUNK_BYTES = 1 << 20  # samples are processed in chunks whose f32 copies stay in a cache

Squares = Callable[[Array], Array]  # returns the squared norm of each row of a dense f32 array, in f64


def norms2(problem: Problem, operands: Sequence[Array], out: Array, squares: Squares) -> None:
    """Write the squared norm of each sample's gradient into ``out``: the sum of |x|^2 |dy|^2 over groups.

    ``operands`` are canonical arrays of all samples.
    """
    step = max(1, CHUNK_BYTES // (4 * sum(prod(array.shape[1:]) for array in operands)))
    for first in range(0, len(out), step):
        sides = factors(problem, [array[first : first + step] for array in operands])
        if not sides[0].size:  # no tap exists, so a NaN in diff_dst must not reach the result
            out[:] = 0
            return
        src, dst = (
            squares(np.ascontiguousarray(side, np.float32).reshape(-1, side.shape[-1])).reshape(side.shape[:2])
            for side in sides
        )
        with np.errstate(all="ignore"):
            out[first : first + step] = np.cumsum(src * dst, axis=1)[:, -1]  # np.sum would add groups in another order
