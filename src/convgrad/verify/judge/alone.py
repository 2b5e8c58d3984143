"""The elements that count: one of each set whose errors are necessarily the same.

If an operand is all ones, output channels are copies of each other and have equal errors. The same is true of a
channel that is negated or scaled by a power of two. The exact sums of these channels have the same significand.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def alone(values: NDArray[np.float64], judged: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return a mask of the judged elements that keeps one of each set of equal significands.

    >>> alone(np.array([3.0, -6.0, 5.0, 3.0]), np.array([False, True, True, True])).tolist()
    [False, True, True, False]
    """
    places = np.flatnonzero(judged)
    significands = np.frexp(np.abs(values.ravel()[places]))[0]
    rising = np.sort(significands)
    if not (rising[1:] == rising[:-1]).any():  # true of most data; sorting is faster than finding the first of each set
        return judged.copy()
    first = np.unique(significands, return_index=True)[1]
    mask = np.zeros(values.size, np.bool_)
    mask[places[first]] = True
    return mask.reshape(values.shape)
