"""Plans of forwards and data gradients: the kernel to compile, and how its work is cut."""

from __future__ import annotations

from dataclasses import dataclass

from convgrad.formats import BF16, FORMATS
from convgrad.plan.constants import GROUPED_OTHER_REGISTERS
from convgrad.plan.machine import Isa
from convgrad.plan.pairs import PAIR_BYTES
from convgrad.plan.recipe import CHANNELS, F32_BYTES, PACKED, Chosen
from convgrad.plan.tiling import heights

DENSE = "dense"  # the body: M is output positions, N output channels


@dataclass(frozen=True)
class StencilShape:
    """A kernel whose lanes are channels of several groups. Its numbers are those of a group and of the last axis.

    Some positions meet the channels of their groups under each tap of a row of the filter. Several positions meet the
    same vector of A under different taps, and it is read once.
    """

    out_channels: int  # of a group
    in_channels: int  # of a group
    groups: int  # of a panel
    by_position: int  # from what a position meets to what the next meets, in units of the smallest distance
    by_tap: int  # the same from tap to tap
    tap_step: int  # from a tap of a phase to the next, in the filter
    sizes: tuple[int, ...]  # taps that are unrolled, descending
    guarded: bool  # whether any position that a micro-tile meets may be absent, rather than only those at its ends
    strided_groups: bool  # whether weights of neighbouring groups are not as far apart as those of a group
    masked: bool  # whether panels may have fewer channels than their vectors have lanes

    def group(self, lane: int) -> int:
        """Return which group of a panel a lane belongs to; lanes beyond the last group may hold anything.

        >>> three = StencilShape(3, 1, 5, 1, 1, 1, (1,), False, False, True)
        >>> [three.group(lane) for lane in (0, 2, 3, 15)]
        [0, 0, 1, 4]
        """
        return min(lane // self.out_channels, self.groups - 1)

    def channels(self, lanes: int, vector: int) -> range:
        """Return the channels of a panel that a vector of its lanes meets.

        >>> StencilShape(10, 6, 8, 1, 1, 1, (1,), False, False, True).channels(16, 1)  # of groups 1 to 3
        range(6, 24)
        """
        first, last = (self.group(lane) for lane in (vector * lanes, (vector + 1) * lanes - 1))
        return range(first * self.in_channels, (last + 1) * self.in_channels)

    def reads(self, lanes: int, vector: int, step: int) -> list[tuple[int, int]]:
        """Return the first channel and the number of values of each load of a vector, ``step`` channels per value.

        >>> StencilShape(8, 8, 2, 1, 1, 1, (1,), False, False, True).reads(16, 0, 2)
        [(0, 8)]
        """
        channels = self.channels(lanes, vector)
        values = len(channels) // step
        count = values if step > 1 and values < lanes and values.bit_count() == 1 else lanes
        return [(first, count) for first in range(channels.start, channels.stop, count * step)]

    def reach(self, rows: int, taps: int) -> int:
        """Return how many units of A some positions reach by some taps, from the first to the last."""
        return (rows - 1) * self.by_position + (taps - 1) * abs(self.by_tap) + 1

    def __str__(self) -> str:
        sizes = "+".join(map(str, self.sizes))
        return f"stencil of {sizes} taps, {self.in_channels} to {self.out_channels} channels a group"


@dataclass(frozen=True)
class ForwardSpec:
    """All that a compiled kernel is specialised on. It holds no extents, so a new shape seldom compiles a kernel.

    A micro-tile is ``mr`` output positions times ``nr`` vectors of output channels. A (data) is read in place, or
    packed in f32 or in bf16 pairs. B (weights) is packed as [tap][k][n], or read in place where output channels are
    contiguous. Under one tap the GEMM may be transposed: the same sums, of output channels times positions.
    """

    isa: Isa
    operand: str  # the format of the operands
    output: str
    mr: int  # rows of the highest micro-tile; the others are powers of two
    nr: int  # vectors of the widest micro-tile
    single_vector: bool  # whether there are micro-tiles of one vector too: for a last panel of few channels
    axes: int
    data: str  # the contiguous axis of A: CHANNELS, SPATIAL (positions of the last axis), STRIDED
    weights: str  # of B: CHANNELS_OUT (N), CHANNELS_IN (K), TAPS, STRIDED
    out: str  # of the output: CHANNELS, SPATIAL, STRIDED
    a_in_place: bool
    b_in_place: bool = False  # for few positions, such as a classifier's 7x7 filter, and for transposed GEMMs in f32
    transposed_gemm: bool = False  # M is output channels, N positions
    stencil: StencilShape | None = None  # lanes are channels of several groups
    step: int = 1  # k per multiply-add: two where A and B are bf16 pairs, the next k above
    masked: bool = False  # B in place has fewer columns than a panel, and loads are masked: packed it could be huge
    activation: str = ""  # of the output, before its rounding

    @property
    def overlaps(self) -> bool:
        """Whether the last panel overlaps the one before: B in place is read in whole panels unless it is masked."""
        return self.b_in_place and not self.masked

    @property
    def body(self) -> str:
        """Return the name of its loop nest."""
        return DENSE

    @property
    def pairs(self) -> bool:
        """Whether chains take the k of a tap in pairs, the second first."""
        return self.operand == BF16.name

    @property
    def swaps_pairs(self) -> bool:
        """Whether packing swaps the k of a pair. Grouped stencils of single k take them in order themselves."""
        return self.pairs and (self.step == 2 or not self.stencil)

    @property
    def operand_bytes(self) -> int:
        """Bytes of an element of the operands in memory."""
        return FORMATS[self.operand].dtype.itemsize

    @property
    def reads_pairs(self) -> bool:
        """Whether A is read two k at a time."""
        return self.step == 2 or (self.a_in_place and self.pairs and not self.stencil)

    def position_bytes(self, channels: int) -> int:
        """Return the bytes of a packed position of A. An odd last channel takes a whole pair."""
        return PAIR_BYTES * -(-channels // 2) if self.step == 2 else F32_BYTES * channels

    @property
    def mr_sizes(self) -> tuple[int, ...]:
        """Rows of the micro-tiles, descending."""
        return heights(self.mr)

    @property
    def nr_sizes(self) -> tuple[int, ...]:
        """Vectors of the micro-tiles, descending."""
        return (self.nr, 1) if self.single_vector and self.nr > 1 else (self.nr,)

    @property
    def width(self) -> int:
        """Columns of a panel of B: output channels."""
        return self.stencil.groups * self.stencil.out_channels if self.stencil else self.pitch

    @property
    def pitch(self) -> int:
        """Lanes of a panel, columns or not."""
        return self.nr * self.isa.lanes

    def holds(self, stencil: StencilShape, rows: int, size: int, vectors: int) -> bool:
        """Whether registers hold the weights of so many taps beside the sums of a grouped stencil."""
        return (
            size * stencil.in_channels // self.step + rows
        ) * vectors + GROUPED_OTHER_REGISTERS <= self.isa.registers

    @property
    def tile_bytes(self) -> int:
        """Bytes of the sums of a micro-tile."""
        return self.mr * self.pitch * F32_BYTES

    def __str__(self) -> str:
        positions = f"{self.mr}x{self.nr} positions, {self.stencil},"
        tile = positions if self.stencil else f"micro-tile {self.mr}x{self.nr}"
        pairs = ", bf16 pairs" if self.step == 2 else ""
        return f"{self.operand} to {self.output}, {tile} of {self.isa}{pairs}"


@dataclass(frozen=True, kw_only=True)
class ForwardPlan(Chosen):
    """How a forward or a data gradient is computed."""

    spec: ForwardSpec
    output_block: tuple[int, ...]  # positions along each axis
    panels: int  # of B, packed at a time
    pass_chains: int  # that all micro-tiles of a region go through before the next ones; 0: each goes through all
    parts: tuple[int, int, int]  # of the groups, of the panels of a group, of the output blocks: a task is one of each

    @property
    def summary(self) -> str:
        """Strategy, kernel and layouts in one line."""
        spec, (a, b) = self.spec, self.operands
        a_read = (
            ("in place" if spec.data == CHANNELS else "in place, strided") if spec.a_in_place else PACKED[spec.data]
        )
        b_read = "in place" if spec.b_in_place else "packed"
        return f"{self.strategy}: {spec}, A from {a} ({a_read}), B from {b} ({b_read})"

    @property
    def cut(self) -> str:
        """How the work is cut, in one line."""
        block = "x".join(map(str, self.output_block))
        passes = f", {self.pass_chains} chains" if self.pass_chains else ""
        rows, lanes = ("results", "positions") if self.spec.transposed_gemm else ("positions", "results")
        groups = "images" if self.spec.transposed_gemm else "groups"
        packed = "" if self.spec.b_in_place else " packed"
        return (
            f"{' x '.join(map(str, self.parts))} parts of {groups}, {lanes}, {rows}; {self.panels} "
            f"panel{'s' * (self.panels > 1)} of {lanes}{packed} at a time{passes}, {block} {rows}"
        )
