"""The arithmetic of the report: medians of times, medians of per-round ratios, geometric means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import fmean, median


@dataclass(frozen=True)
class Series:
    """One contender's times in ms per call: its first call, then each round; no rounds if it refused."""

    name: str
    first_ms: float
    rounds_ms: tuple[float, ...]
    notes: tuple[str, ...] = ()

    @property
    def median_ms(self) -> float:
        """The median of the rounds."""
        return median(self.rounds_ms)


def fastest(series: Sequence[Series]) -> Series | None:
    """Return the series with the smallest median, the better of a peer's layouts; None if all refused."""
    return min((s for s in series if s.rounds_ms), key=lambda s: s.median_ms, default=None)


def ratio(ours: Series, peer: Series) -> float:
    """Return the median over rounds of the peer's time divided by ours in the same round; ours is faster if above 1.

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
