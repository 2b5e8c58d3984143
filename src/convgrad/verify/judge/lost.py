"""The loss of rounding to nearest: the bias of long sums whose terms are small compared with the sum.

A partial sum is a multiple of its last place g, so adding a term p rounds p to a multiple of g. Terms much larger than
g lose nothing on average. The density of terms smaller than a few g is not uniform near 0, so more is lost than gained.
The errors of right results therefore have a mean other than 0: one standard deviation for 200,000 positive terms,
sixteen for terms with heavy tails. The loss is computed from the products of sampled elements, as a function of g
divided by the mean |p|. The loss is the sum of (p rounded to g) - p over all |p| < 4 g, divided by A = sum |p|. A loss
is positive if it has the sign of the whole sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from convgrad.array_types import F64Array
from convgrad.verify.judge.conspire import AT_ONCE

REACH = 4.0  # terms larger than this multiple of the sum's last place lose nothing on average
OCTAVES = (-24, 8)  # range of log2(last place / mean term): below it nothing is lost, above it sums do not grow


@dataclass(frozen=True, eq=False)
class Curve:
    """The largest loss of a sum of terms p, divided by sum |p|, as a function of log2(last place / mean |p|).

    The share is the mean of the sampled losses plus two standard errors. The share never decreases as the last place
    grows.
    """

    octaves: F64Array
    shares: F64Array

    def of(self, grid: F64Array, magnitude: F64Array, terms: F64Array) -> F64Array:
        """Return the loss of sums with last place ``grid``, sum |p| ``magnitude``, and this number of terms."""
        with np.errstate(divide="ignore", invalid="ignore"):
            octave = np.nan_to_num(np.log2(grid * terms / magnitude), nan=OCTAVES[0], neginf=OCTAVES[0])
        lost: F64Array = magnitude * np.interp(octave, self.octaves, self.shares)
        return lost


def curve(products: F64Array, lowest: float, highest: float) -> Curve:
    """Return the losses of sampled products [element, axes...] as a function of the sum's last place.

    ``lowest`` and ``highest`` are the range of last places, divided by the mean product.
    """
    low, high = (int(np.clip(np.floor(np.log2(max(end, 2.0**-40))), *OCTAVES)) for end in (lowest, highest))
    octaves = np.arange(max(low - 2, OCTAVES[0]), min(high + 2, OCTAVES[1]) + 1)
    flat = products.reshape(len(products), -1)
    count = max(1, AT_ONCE // max(1, flat.shape[1]))
    rows = np.concatenate([_rows(flat[first : first + count], octaves) for first in range(0, len(flat), count)])
    shares = np.abs(rows.mean(0)) + 2 * rows.std(0) / np.sqrt(len(rows))
    return Curve(octaves.astype(np.float64), np.maximum.accumulate(shares))


def _rows(flat: F64Array, octaves: NDArray[np.int64]) -> F64Array:
    magnitude = np.abs(flat).sum(1)
    live = np.maximum(np.count_nonzero(flat, axis=1), 1)
    unit = np.where(magnitude > 0, magnitude / live, 1.0)
    share = np.sign(flat.sum(1)) * unit / np.where(magnitude > 0, magnitude, 1.0)
    rows = np.zeros((len(flat), octaves.size))
    for at, octave in enumerate(octaves):
        steps = flat * (2.0 ** -float(octave) / unit)[:, None]
        near = np.abs(steps) < REACH
        row, column = np.nonzero(near) if near.mean() < 0.1 else (None, None)
        if row is None:
            rows[:, at] = np.where(near, np.rint(steps) - steps, 0.0).sum(1)
        else:
            few = steps[row, column]
            rows[:, at] = np.bincount(row, np.rint(few) - few, len(flat))
        rows[:, at] *= share * 2.0 ** float(octave)
    return rows
