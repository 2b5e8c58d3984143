"""What a plan by tiles says: points are made, then summed by a plan of their own, then made a result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from convgrad.plan.machine import LINE_BYTES
from convgrad.plan.recipe import F32_BYTES, Chosen
from convgrad.spec.problem import Problem
from convgrad.spec.toom_cook import VARIANTS
from convgrad.words import counted


@dataclass(frozen=True, kw_only=True)
class TiledPlan(Chosen):
    """What plans of all roles have."""

    variant: str
    sums: Chosen
    of_sums: Problem
    view: Any  # of the points
    tiles: int  # at a time
    places: Mapping[str, int]  # in what threads share: points, sums and, where they are to be rounded last, results
    shared_bytes: int

    @property
    def scratch_bytes(self) -> int:
        """What points and sums take, of all threads."""
        return self.shared_bytes

    @property
    def tasks(self) -> int:
        """Parts of the sums."""
        return self.sums.tasks

    @property
    def words(self) -> str:
        """Strategy, variant and kernels in one line."""
        points = counted(VARIANTS[self.variant].points, "point")
        return f"tiles of {self.variant}: {points} of {counted(self.tiles, 'tile')}; sums: {self.sums.words}"

    @property
    def cut(self) -> str:
        """How the sums are cut."""
        return self.sums.cut


def at_once(problem: Problem) -> bool:
    """Tell whether results are written where they go; else they are rounded, or added to the old ones, last."""
    return not problem.accumulate and problem.output_format is problem.operand_format


def pitch(channels: int) -> int:
    """Return the bytes of all channels of a tile: an odd number of lines, so that tiles meet all sets of a cache."""
    return _odd(channels * F32_BYTES)


def of_point(count: int, channels: int) -> int:
    """Return the bytes of so many tiles of a point: odd lines too, as all points of a tile are met at once."""
    return _odd(count * pitch(channels))


def of_line(channels: int) -> int:
    """Return the bytes of all channels of a term, whole lines: terms are read one after the other."""
    return -(-channels * F32_BYTES // LINE_BYTES) * LINE_BYTES


def of_weights(terms: int, results: int) -> int:
    """Return the bytes of all weights of a point."""
    return _odd(terms * of_line(results))


def _odd(size: int) -> int:
    return (-(-size // LINE_BYTES) | 1) * LINE_BYTES


def parts_of(channels: int, each_bytes: int, most_bytes: int, least: int) -> int:
    """Return how many channels are computed at a time: the most of equal parts of all that take no more than so much.

    >>> parts_of(512, 1000, 200_000, 32), parts_of(67, 1000, 50_000, 32)
    (128, 67)
    """
    parts = (n for n in range(1, channels // least + 1) if channels % n == 0)
    return channels // next((n for n in parts if channels // n * each_bytes <= most_bytes), 1)
