"""What a plan says: the kernel to compile, the loops around it, what it needs and expects, and why not otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from convgrad.plan.machine import Isa

# How an operand lies in memory, for the pack that reads it: its channels are neighbours, or its positions are, or
# neither; "in place" is read by the tile itself. Extents and other strides are run-time arguments.
CHANNELS, POSITIONS, STRIDED, IN_PLACE = "channels", "positions", "strided", "in place"


@dataclass(frozen=True)
class Tile:
    """An outer product kept in registers: ``rows`` channels, broadcast, times ``vectors`` vectors of channels."""

    rows: int
    vectors: int

    def __str__(self) -> str:
        return f"{self.rows}x{self.vectors}"


@dataclass(frozen=True)
class KernelSpec:
    """All that a compiled kernel is specialised on: no extents, so that a new shape compiles nothing."""

    isa: Isa
    operand: str  # the operands' format
    output: str
    tile: Tile
    row_layout: str
    lane_layout: str

    @property
    def width(self) -> int:
        """Channels in the lanes of a full tile."""
        return self.tile.vectors * self.isa.lanes

    def __str__(self) -> str:
        return f"{self.operand} to {self.output}, tile {self.tile} of {self.isa}"


@dataclass(frozen=True)
class Rejected:
    """A strategy that was not taken, and why."""

    strategy: str
    reason: str


@dataclass(frozen=True)
class Plan:
    """How a problem is computed. ``slices`` are the blocks of an image packed at a time; ``chunk_images`` likewise."""

    strategy: str
    spec: KernelSpec
    rows: str  # the tensor whose channels are the tile's rows: src or dst
    slice_blocks: int
    chunk_images: int
    groups: int
    parts: tuple[int, int, int]  # of a group's rows, lanes and taps: a task is one of each
    threads: int
    scratch_bytes: int  # of one thread
    error_height: int
    time_ms: float
    rejected: tuple[Rejected, ...] = ()

    @property
    def tasks(self) -> int:
        """Independent parts of the output."""
        return self.groups * prod(self.parts)

    @property
    def lanes(self) -> str:
        """The tensor whose channels are the tile's lanes."""
        return "dst" if self.rows == "src" else "src"

    @property
    def words(self) -> str:
        """Strategy, kernel and layouts in one line."""
        spec = self.spec
        return (
            f"{self.strategy}: {spec}, rows from {self.rows} ({spec.row_layout}), "
            f"lanes from {self.lanes} ({spec.lane_layout})"
        )

    def __str__(self) -> str:
        packed = f"{self.slice_blocks} blocks" if self.slice_blocks else f"{self.chunk_images} images"
        lines = [
            self.words,
            f"  {self.tasks} tasks on {self.threads} threads: {self.groups} groups x "
            f"{' x '.join(map(str, self.parts))} parts of rows, lanes, taps; {packed} packed at a time",
            f"  scratch {self.scratch_bytes / 1024:.0f} KiB a thread, error height {self.error_height}, "
            f"about {self.time_ms:.3g} ms",
        ]
        lines += [f"  not {other.strategy}: {other.reason}" for other in self.rejected]
        return "\n".join(lines)
