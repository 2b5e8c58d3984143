"""What a plan of a forward or a data gradient says: the kernel to compile, how work is cut, what it expects."""

from __future__ import annotations

from dataclasses import dataclass

from convgrad.formats import BF16, FORMATS
from convgrad.plan.constants import GROUPED_OTHER_REGISTERS
from convgrad.plan.machine import Isa
from convgrad.plan.pairs import PAIR_BYTES
from convgrad.plan.recipe import CHANNELS, F32_BYTES, PACKED, Chosen
from convgrad.plan.tiling import heights

POSITIONS = "positions"  # the body: rows are output positions, lanes results


@dataclass(frozen=True)
class GroupedStencil:
    """A kernel whose lanes are channels of several groups: numbers of a group, and of the last axis, are its own.

    A row meets a vector of channels under each tap of a row of the kernel, and what several rows meet is read once.
    """

    results: int  # channels of a group: of the output,
    terms: int  # of the data
    groups: int  # of a panel
    by_position: int  # what the next position meets, in units of the least distance,
    by_tap: int  # and what the next tap meets
    tap_step: int  # from a tap of a phase to the next, in the kernel
    sizes: tuple[int, ...]  # taps that are taken at a time, descending
    guarded: bool  # whether any of what a tile meets may not exist, rather than only what is met at its ends
    apart: bool  # whether weights of a group lie otherwise than those of the next group do
    masked: bool  # whether panels may have fewer channels than vectors of them have lanes

    def group(self, lane: int) -> int:
        """Return which of a panel's groups a lane is of; lanes behind the last of them are anything.

        >>> three = GroupedStencil(3, 1, 5, 1, 1, 1, (1,), False, False, True)
        >>> [three.group(lane) for lane in (0, 2, 3, 15)]
        [0, 0, 1, 4]
        """
        return min(lane // self.results, self.groups - 1)

    def channels(self, lanes: int, vector: int) -> range:
        """Return the channels of a panel that a vector of its lanes meets.

        >>> GroupedStencil(10, 6, 8, 1, 1, 1, (1,), False, False, True).channels(16, 1)  # of groups 1 to 3
        range(6, 24)
        """
        first, last = (self.group(lane) for lane in (vector * lanes, (vector + 1) * lanes - 1))
        return range(first * self.terms, (last + 1) * self.terms)

    def reads(self, lanes: int, vector: int, step: int) -> list[tuple[int, int]]:
        """Return the first channel and the values of each load of what a vector meets, ``step`` channels a value.

        >>> GroupedStencil(8, 8, 2, 1, 1, 1, (1,), False, False, True).reads(16, 0, 2)
        [(0, 8)]
        """
        channels = self.channels(lanes, vector)
        values = len(channels) // step
        count = values if step > 1 and values < lanes and values.bit_count() == 1 else lanes
        return [(first, count) for first in range(channels.start, channels.stop, count * step)]

    def reach(self, rows: int, taps: int) -> int:
        """Return how many units of the operand some rows reach by some taps, from the first to the last."""
        return (rows - 1) * self.by_position + (taps - 1) * abs(self.by_tap) + 1

    def __str__(self) -> str:
        return f"window of {'+'.join(map(str, self.sizes))} taps, {self.terms} to {self.results} channels a group"


@dataclass(frozen=True)
class ForwardSpec:
    """All that a compiled kernel is specialised on: no extents, so that a new shape seldom compiles anything.

    A tile is some output positions, its rows, times vectors of results. Rows meet data as it lies, or packed in f32;
    lanes meet weights packed as [tap][term][lane], or as they lie, where f32 results are neighbours. Under one tap both
    may be transposed_gemm: the same sums, with results as rows and positions as lanes.
    """

    isa: Isa
    operand: str  # the operands' format
    output: str
    rows: int  # of the highest tile; those below are powers of two
    vectors: int  # of the widest tile
    narrow: bool  # whether there are tiles of one vector too
    axes: int
    data: str  # the contiguous axis of the data: CHANNELS, SPATIAL (positions of the last axis), STRIDED
    weights: str  # of the weights: CHANNELS_OUT (of the result), CHANNELS_IN (which are summed), TAPS, STRIDED
    out: str  # of the output: CHANNELS, SPATIAL, STRIDED
    in_place: bool  # rows
    lanes_in_place: bool = False
    transposed_gemm: bool = False  # rows are results, lanes positions
    window: GroupedStencil | None = None  # lanes are channels of several groups
    step: int = 1  # terms a multiply-add; of two, of bf16, rows and lanes meet words of a term and, above it, the next
    masked: bool = False  # lanes in place: there are fewer results than a panel is wide, and loads are of those
    activation: str = ""  # of results, before their rounding

    @property
    def overlaps(self) -> bool:
        """Whether the last panel begins before the one before ends: lanes in place are read in whole panels."""
        return self.lanes_in_place and not self.masked

    @property
    def body(self) -> str:
        """Which nest it runs in."""
        return POSITIONS

    @property
    def pairs(self) -> bool:
        """Whether the terms of a tap are taken in pairs, the second first."""
        return self.operand == BF16.name

    @property
    def packs_pairs(self) -> bool:
        """Whether those of a pair change places where data is packed: a window of single terms takes them in order."""
        return self.pairs and (self.step == 2 or not self.window)

    @property
    def item_bytes(self) -> int:
        """What a term of the operands takes, as it lies."""
        return FORMATS[self.operand].dtype.itemsize

    @property
    def in_pairs(self) -> bool:
        """Whether rows are read two terms at a time."""
        return self.step == 2 or (self.in_place and self.pairs and not self.window)

    @property
    def words_as_they_lie(self) -> bool:
        """Whether data has words in memory that are packed as they are."""
        return self.step == 2 and not self.in_place and self.data == CHANNELS

    def position_bytes(self, channels: int) -> int:
        """Return what a position of the data takes, packed: of words, of whole ones."""
        return PAIR_BYTES * -(-channels // 2) if self.step == 2 else F32_BYTES * channels

    @property
    def heights(self) -> tuple[int, ...]:
        """Rows of the tiles there are."""
        return heights(self.rows)

    @property
    def widths(self) -> tuple[int, ...]:
        """Vectors of the tiles there are."""
        return (self.vectors, 1) if self.narrow and self.vectors > 1 else (self.vectors,)

    @property
    def width(self) -> int:
        """Results of a panel."""
        return self.window.groups * self.window.results if self.window else self.pitch

    @property
    def pitch(self) -> int:
        """Lanes of a panel, whether or not all of them are results."""
        return self.vectors * self.isa.lanes

    def holds(self, window: GroupedStencil, rows: int, size: int, vectors: int) -> bool:
        """Whether registers hold the weights of so many taps beside the sums of a window."""
        return (size * window.terms // self.step + rows) * vectors + GROUPED_OTHER_REGISTERS <= self.isa.registers

    @property
    def tile_bytes(self) -> int:
        """What the sums of a tile take."""
        return self.rows * self.pitch * F32_BYTES

    def __str__(self) -> str:
        tile = (
            f"{self.rows}x{self.vectors} positions, {self.window},"
            if self.window
            else f"tile {self.rows}x{self.vectors}"
        )
        pairs = ", pairs of terms" if self.step == 2 else ""
        return f"{self.operand} to {self.output}, {tile} of {self.isa}{pairs}"


@dataclass(frozen=True, kw_only=True)
class ForwardPlan(Chosen):
    """How a forward or a data gradient is computed."""

    spec: ForwardSpec
    slab: tuple[int, ...]  # output positions along each axis that are computed at a time
    panels: int  # of results whose weights are packed at a time
    pass_blocks: int  # under which all tiles of a box go before the next; 0: each under all of its own
    parts: tuple[int, int, int]  # of the groups, of a group's panels, of the slabs: a task is one of each

    @property
    def summary(self) -> str:
        """Strategy, kernel and layouts in one line."""
        spec, (rows, lanes) = self.spec, self.operands
        read = ("in place" if spec.data == CHANNELS else "in place, apart") if spec.in_place else PACKED[spec.data]
        met = "in place" if spec.lanes_in_place else "packed"
        return f"{self.strategy}: {spec}, rows from {rows} ({read}), lanes from {lanes} ({met})"

    @property
    def cut(self) -> str:
        """How the work is cut, in one line."""
        slab = "x".join(map(str, self.slab))
        passes = f", {self.pass_blocks} blocks of terms" if self.pass_blocks else ""
        rows, lanes = ("results", "positions") if self.spec.transposed_gemm else ("positions", "results")
        groups = "images" if self.spec.transposed_gemm else "groups"
        packed = "" if self.spec.lanes_in_place else " packed"
        return (
            f"{' x '.join(map(str, self.parts))} parts of {groups}, {lanes}, {rows}; {self.panels} "
            f"panel{'s' * (self.panels > 1)} of {lanes}{packed} at a time{passes}, {slab} {rows}"
        )
