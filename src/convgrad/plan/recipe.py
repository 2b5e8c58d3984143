"""What a plan says: the kernel to compile, the loops around it, what it needs and expects, and why not otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from convgrad.plan.machine import Isa

# How an operand lies in memory, for the pack that reads it: its channels are neighbours, or its positions are, or
# neither; "in place" is read by the tile itself. Extents and other strides are run-time arguments.
CHANNELS, POSITIONS, STRIDED, IN_PLACE = "channels", "positions", "strided", "in place"
GROUPS = "groups"  # the other thing that lanes may hold
F32_BYTES = 4
Parts = tuple[int, int, int, int, int]


@dataclass(frozen=True)
class Tile:
    """Sums kept in registers: ``rows`` items times ``vectors`` vectors, under each of some taps of the kernel.

    Where lanes hold channels, an item of the rows is one channel, the same in all lanes; where they hold groups, it is
    a vector too: one channel of each lane's group, and so is each of the vectors.
    """

    rows: int
    vectors: int
    outer_taps: int = 1  # of all axes but the innermost
    inner_taps: int = 1  # next to each other

    @property
    def taps(self) -> int:
        """Taps at a time."""
        return self.outer_taps * self.inner_taps

    def __str__(self) -> str:
        taps = f" under {self.outer_taps}x{self.inner_taps} taps" if self.taps > 1 else ""
        return f"{self.rows}x{self.vectors}{taps}"


@dataclass(frozen=True)
class KernelSpec:
    """All that a compiled kernel is specialised on: no extents, so that a new shape compiles nothing."""

    isa: Isa
    operand: str  # the operands' format
    output: str
    tile: Tile
    row_layout: str
    lane_layout: str
    lanes_hold: str = CHANNELS
    group_channels: tuple[int, int] = (0, 0)  # of rows and lanes, where lanes hold groups
    taps_on_rows: bool = True  # whether rows or lanes are of src, which moves with the taps of a tile
    adjacent: bool = True  # taps of a tile meet neighbouring positions: no dilation
    slide: int = 0  # inner taps from a position to the next, whose other values stay in registers; 0: none do

    @property
    def groups_in_lanes(self) -> bool:
        """Whether a lane is a group."""
        return self.lanes_hold == GROUPS

    def in_place(self, rows: str) -> tuple[str, ...]:
        """Return the operands that the tile reads where they are, given which its rows are from."""
        by_operand = (rows, self.row_layout), ("dst" if rows == "src" else "src", self.lane_layout)
        return tuple(tensor for tensor, lies in by_operand if lies == IN_PLACE)

    @property
    def groups_in_place(self) -> bool:
        """Whether lanes hold groups, and the tile reads them where they are."""
        return self.groups_in_lanes and self.row_layout == IN_PLACE

    @property
    def groups_a_panel(self) -> int:
        """Groups computed at once."""
        return self.isa.lanes if self.groups_in_lanes else 1

    @property
    def row_bytes(self) -> int:
        """What a packed position of the rows takes."""
        return F32_BYTES * (self.group_channels[0] * self.isa.lanes if self.groups_in_lanes else self.tile.rows)

    @property
    def width(self) -> int:
        """Lanes of a full tile."""
        return self.tile.vectors * self.isa.lanes

    @property
    def lane_bytes(self) -> int:
        """What a packed position of the lanes takes."""
        return F32_BYTES * (self.group_channels[1] * self.isa.lanes if self.groups_in_lanes else self.width)

    @property
    def moving_bytes(self) -> int:
        """What a packed position of the operand that moves with the taps takes."""
        return self.row_bytes if self.taps_on_rows else self.lane_bytes

    @property
    def lane_channels(self) -> int:
        """Channels of the lanes' operand in a full tile."""
        return self.tile.vectors if self.groups_in_lanes else self.width

    @property
    def tap_bytes(self) -> int:
        """What the sums of one tap of a tile take."""
        return self.tile.rows * self.width * F32_BYTES

    @property
    def tile_bytes(self) -> int:
        """What the sums of a tile take."""
        return self.tap_bytes * self.tile.taps

    def __str__(self) -> str:
        return f"{self.operand} to {self.output}, tile {self.tile} of {self.isa}"


@dataclass(frozen=True)
class Rejected:
    """A strategy that was not taken, and why."""

    strategy: str
    reason: str


@dataclass(frozen=True)
class Plan:
    """How a problem is computed: ``slice_blocks`` of an image, or ``chunk_images`` whole ones, are packed at a time."""

    strategy: str
    spec: KernelSpec
    rows: str  # the tensor whose channels are the tile's rows: src or dst
    slice_blocks: int
    chunk_images: int
    parts: Parts  # of the groups, of a group's rows, lanes and taps, of the batch: a task is one of each
    threads: int
    kept_bytes: int  # of all together: sums of images that tasks share
    error_height: int
    time_ms: float
    rejected: tuple[Rejected, ...] = ()

    @property
    def tasks(self) -> int:
        """Parts of the weights times parts of the batch."""
        return prod(self.parts)

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
        read = "read in place" if self.spec.groups_in_place else f"{packed} packed at a time"
        kept = f", {self.kept_bytes / 1024:.0f} KiB of sums shared" if self.kept_bytes else ""
        lines = [
            self.words,
            f"  {self.tasks} tasks on {self.threads} threads: {' x '.join(map(str, self.parts))} parts of groups, "
            f"rows, lanes, taps, images; {read}",
            f"  error height {self.error_height}, about {self.time_ms:.3g} ms{kept}",
        ]
        lines += [f"  not {other.strategy}: {other.reason}" for other in self.rejected]
        return "\n".join(lines)
