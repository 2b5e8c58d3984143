"""The elements with independent errors: one element of each set whose errors are necessarily equal.

If an operand is all ones, output channels are copies of each other and have equal errors. A channel that is negated, or
scaled by a power of two, has equal relative errors. The exact sums of these channels have the same significand.
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
    if not (rising[1:] == rising[:-1]).any():  # common, and faster than np.unique
        return judged.copy()
    first = np.unique(significands, return_index=True)[1]
    mask = np.zeros(values.size, np.bool_)
    mask[places[first]] = True
    return mask.reshape(values.shape)
