"""The statistics of the report: medians of times, medians of the ratios of all rounds, geometric means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import fmean, median


@dataclass(frozen=True)
class Series:
    """One contender's times per call in ms: its first call, then each round. It has no rounds if it raised an error."""

    name: str
    first_ms: float
    rounds_ms: tuple[float, ...]
    notes: tuple[str, ...] = ()

    @property
    def median_ms(self) -> float:
        """The median of the times of all rounds, in ms."""
        return median(self.rounds_ms)


def fastest(series: Sequence[Series]) -> Series | None:
    """Return the series with the smallest median time; None if no series has rounds.

    The series are those of a library's layouts.
    """
    return min((s for s in series if s.rounds_ms), key=lambda s: s.median_ms, default=None)


def ratio(ours: Series, peer: Series) -> float:
    """Return the median, over rounds, of the peer's time divided by convgrad's time in the same round.

    If the ratio is above 1, convgrad is faster.

    >>> ratio(Series("convgrad", 9, (1, 2, 4)), Series("torch", 9, (3, 4)))
    2.5
    """
    return median(theirs / mine for mine, theirs in zip(ours.rounds_ms, peer.rounds_ms, strict=False))


def geometric_mean(values: Iterable[float]) -> float | None:
    """Return the geometric mean of positive numbers; None if there are none.

    >>> round(geometric_mean([0.5, 2, 8]), 12)
    2.0
    """
    logarithms = [log(value) for value in values]
    return exp(fmean(logarithms)) if logarithms else None
