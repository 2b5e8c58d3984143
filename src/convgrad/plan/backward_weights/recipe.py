"""The specification of a kernel of weight or bias gradients, and its plan."""

from __future__ import annotations

from dataclasses import dataclass

from convgrad.plan.machine import Isa
from convgrad.plan.recipe import CHANNELS, F32_BYTES, PACKED, Chosen

# Bodies of kernels: an outer product of panels; the direct depthwise kernel.
TILE, STRIP = "tile", "strip"
GROUPS = "groups"  # the other thing that lanes may hold, beside items
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
class Read:
    """How a tile meets an operand: packed first, or where it lies, and whether a tap moves it.

    Of a tile of one tap the rows are said to move: its kernel is the same whichever operand does.
    """

    contiguous: str
    items: int  # that a packed term has: a panel's, or, where lanes hold groups, a group's
    in_place: bool = False
    moves: bool = False

    def __str__(self) -> str:
        return "in place" if self.in_place else PACKED[self.contiguous]


@dataclass(frozen=True)
class KernelSpec:
    """What a kernel of weight or bias gradients is specialised on: no extents, so that a new shape compiles nothing."""

    isa: Isa
    operand: str  # the operands' format
    output: str
    body: str
    tile: Tile
    rows: Read
    lanes: Read
    lanes_hold: str = CHANNELS
    adjacent: bool = True  # taps of a tile meet neighbouring positions: no dilation
    slide: int = 0  # inner taps from a position to the next, whose other values stay in registers; 0: none do
    step: int = 1  # terms a multiply-add; of two, of bf16, a panel has words: a term, and below it the next
    compact: bool = False  # words of every second term only: lines are blocks, which begin on whole words

    @property
    def groups_in_lanes(self) -> bool:
        """Whether a lane is a group."""
        return self.lanes_hold == GROUPS

    @property
    def groups_a_panel(self) -> int:
        """Groups computed at once."""
        return self.isa.lanes if self.groups_in_lanes else 1

    def term_bytes(self, read: Read) -> int:
        """What a packed term takes."""
        return F32_BYTES * read.items * self.groups_a_panel // (2 if self.compact else 1)

    def packed_bytes(self, read: Read, terms: int) -> int:
        """What some packed terms take: whole words."""
        return self.term_bytes(read) * (terms + terms % 2 if self.compact else terms)

    @property
    def moving(self) -> Read:
        """The operand that moves with a tile's taps."""
        return self.rows if self.rows.moves else self.lanes

    @property
    def width(self) -> int:
        """Lanes of a full tile."""
        return self.tile.vectors * self.isa.lanes

    @property
    def lane_items(self) -> int:
        """Items of the lanes' operand in a full tile."""
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
        pairs = ", pairs of terms" if self.step == 2 else ""
        return f"{self.operand} to {self.output}, tile {self.tile} of {self.isa}{pairs}"


@dataclass(frozen=True, kw_only=True)
class Plan(Chosen):
    """How a weight or bias gradient is computed.

    ``slice_blocks`` of an image, or ``chunk_images`` whole ones, are packed at a time.
    """

    spec: KernelSpec
    slice_blocks: int
    chunk_images: int
    parts: Parts  # of the groups, of a group's rows, lanes and taps, of the batch: a task is one of each

    @property
    def rows(self) -> str:
        """The tensor whose items are the tile's rows."""
        return self.operands[0]

    @property
    def lanes(self) -> str:
        """The tensor whose items are the tile's lanes."""
        return self.operands[1]

    @property
    def summary(self) -> str:
        """Strategy, kernel and layouts in one line."""
        spec = self.spec
        return f"{self.strategy}: {spec}, rows from {self.rows} ({spec.rows}), lanes from {self.lanes} ({spec.lanes})"

    @property
    def cut(self) -> str:
        """How the work is cut, in one line."""
        packed = f"{self.slice_blocks} blocks" if self.slice_blocks else f"{self.chunk_images} images"
        read = "read in place" if self.spec.body == STRIP else f"{packed} packed at a time"
        return f"{' x '.join(map(str, self.parts))} parts of groups, rows, lanes, taps, images; {read}"
