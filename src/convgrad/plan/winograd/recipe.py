"""What all plans of Winograd say, and the sizes of points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from convgrad.plan.machine import LINE_BYTES, Isa
from convgrad.plan.recipe import F32_BYTES, Chosen
from convgrad.spec.problem import Problem, canonical_shape
from convgrad.spec.toom_cook import VARIANTS
from convgrad.words import counted

PANEL = 2  # vectors of B that a loop over K reads together


@dataclass(frozen=True, kw_only=True)
class TiledPlan(Chosen):
    """What the plans of all passes have."""

    variant: str
    tiles: int  # at a time
    places: Mapping[str, int]  # in what threads share: points, sums, and old values to be added
    shared_bytes: int
    own_bytes: int  # of points and sums of a thread

    @property
    def scratch_bytes(self) -> int:
        """What points and sums take, of all threads."""
        return self.shared_bytes + self.threads * self.own_bytes

    @property
    def summary(self) -> str:
        """Strategy, variant and points in one line."""
        points = counted(VARIANTS[self.variant].points, "point")
        return f"tiles of {self.variant}: {points} of {counted(self.tiles, 'tile')}"


def old_values(problem: Problem) -> dict[str, int]:
    """Return the bytes of the copy of old values, by its name: there is one if a call accumulates."""
    bytes_each = problem.output_format.dtype.itemsize
    return {"old": prod(canonical_shape(problem.geometry, problem.output)) * bytes_each} if problem.accumulate else {}


def pitch(channels: int) -> int:
    """Return the bytes of all channels of a tile: an odd number of lines, so that tiles meet all sets of a cache."""
    return _odd(channels * F32_BYTES)


def of_point(count: int, channels: int) -> int:
    """Return the bytes of so many tiles of a point: odd lines too, as all points of a tile are met at once."""
    return _odd(count * pitch(channels))


def of_panel(terms: int, isa: Isa) -> int:
    """Return the bytes of a panel of weights: of all terms, some vectors of results each."""
    return terms * PANEL * isa.lanes * F32_BYTES


def of_weights(terms: int, results: int, isa: Isa) -> int:
    """Return the bytes of all weights of a point."""
    return _odd(-(-results // (PANEL * isa.lanes)) * of_panel(terms, isa))


def _odd(size: int) -> int:
    return (-(-size // LINE_BYTES) | 1) * LINE_BYTES
