"""Plans of forwards and data gradients: the specification of the kernel, and the division of its work."""

from __future__ import annotations

from dataclasses import dataclass

from convgrad.formats import BF16, F32, FORMATS
from convgrad.plan import constants
from convgrad.plan.machine import LINE_BYTES, Isa
from convgrad.plan.pairs import PAIR_BYTES
from convgrad.plan.recipe import CHANNELS, CHANNELS_OUT, F32_BYTES, PACKED, SPATIAL, STRIDED, TAPS, Chosen
from convgrad.plan.tiling import heights

DENSE = "dense"  # the name of the loop nest whose M is output positions and whose N is output channels


@dataclass(frozen=True)
class StencilShape:
    """The shape of a grouped stencil, whose lanes are channels of several groups.

    A micro-tile processes one row of taps at a time, for several positions of the last axis. Several positions use the
    same vector of A with different taps, so a micro-tile loads the vector once.
    """

    out_channels: int  # output channels per group
    in_channels: int  # input channels per group
    groups: int  # groups per panel
    by_position: int  # input positions from an output position to the next, in units of the greatest common divisor
    by_tap: int  # input positions from a tap to the next, in the same units
    tap_step: int  # the step from a tap of a phase to the next, in taps of the convolution
    sizes: tuple[int, ...]  # the numbers of taps that are unrolled, descending
    guarded: bool  # whether any input position of a micro-tile may be absent, not only those at its ends
    strided_groups: bool  # whether weights of output channels have no common stride across groups
    masked: bool  # whether some panels have fewer channels than lanes, so that loads are masked

    def group(self, lane: int) -> int:
        """Return the group of a lane in its panel. Lanes beyond the last group count as lanes of the last group.

        >>> three = StencilShape(3, 1, 5, 1, 1, 1, (1,), False, False, True)
        >>> [three.group(lane) for lane in (0, 2, 3, 15)]
        [0, 0, 1, 4]
        """
        return min(lane // self.out_channels, self.groups - 1)

    def channels(self, lanes: int, vector: int) -> range:
        """Return the input channels, counted in a panel, that the output channels of one vector use.

        >>> StencilShape(10, 6, 8, 1, 1, 1, (1,), False, False, True).channels(16, 1)  # groups 1 to 3
        range(6, 24)
        """
        first, last = (self.group(lane) for lane in (vector * lanes, (vector + 1) * lanes - 1))
        return range(first * self.in_channels, (last + 1) * self.in_channels)

    def reads(self, lanes: int, vector: int, step: int) -> list[tuple[int, int]]:
        """Return the loads of A for a vector, as (first channel, number of values). A value has ``step`` channels.

        >>> StencilShape(8, 8, 2, 1, 1, 1, (1,), False, False, True).reads(16, 0, 2)
        [(0, 8)]
        """
        channels = self.channels(lanes, vector)
        values = len(channels) // step
        count = values if step > 1 and values < lanes and values.bit_count() == 1 else lanes
        return [(first, count) for first in range(channels.start, channels.stop, count * step)]

    def reach(self, rows: int, taps: int) -> int:
        """Return the extent of A, in units, that ``rows`` positions read with ``taps`` taps."""
        return (rows - 1) * self.by_position + (taps - 1) * abs(self.by_tap) + 1

    def __str__(self) -> str:
        sizes = "+".join(map(str, self.sizes))
        return f"stencil of {sizes} taps, {self.in_channels} to {self.out_channels} channels a group"


@dataclass(frozen=True)
class ForwardSpec:
    """The specification of a kernel. Extents are arguments, so a new shape seldom compiles a kernel.

    A micro-tile is ``mr`` output positions times ``nr`` vectors of output channels. A (data) is read in place, or
    packed in f32 or in bf16 pairs. B (weights) is packed as [tap][k][n], or read in place if output channels are
    contiguous. If there is one tap, the GEMM may be transposed: then A is the weights, and B the data.
    """

    isa: Isa
    operand: str  # the number format of A and B
    output: str  # the number format of the output
    mr: int  # rows of the highest micro-tile; the rows of the others are powers of two
    nr: int  # vectors of the widest micro-tile
    single_vector: bool  # whether there are also micro-tiles of one vector, for a last panel of few channels
    axes: int  # the number of axes
    data: str  # the contiguous axis of A: CHANNELS, SPATIAL (positions of the last axis), STRIDED
    weights: str  # the contiguous axis of B: CHANNELS_OUT (N), CHANNELS_IN (K), TAPS, STRIDED
    out: str  # the contiguous axis of the output: CHANNELS, SPATIAL, STRIDED
    a_in_place: bool
    b_in_place: bool = False  # useful for few positions, such as a 7x7 classifier, and for transposed GEMMs in f32
    transposed_gemm: bool = False  # whether M is output channels and N is positions
    stencil: StencilShape | None = None  # the shape of a grouped stencil, or None
    step: int = 1  # k per multiply-add; 2 for bf16 pairs, with the second k in the high half
    masked: bool = False  # whether loads of B in place are masked, because it has fewer columns than a panel
    stride: int = 1  # positions in memory from a position of A to the next, if data is SPATIAL
    activation: str = ""  # applied to outputs before rounding; "" for none

    @property
    def packing(self) -> ForwardSpec:
        """The specification of the driver that packs all of A. Kernels that pack the same operand share the driver."""
        return ForwardSpec(
            self.isa, self.operand, F32.name, 1, 1, False, self.axes, self.data, STRIDED, STRIDED, False,
            step=self.step, stride=self.stride,
        )  # fmt: skip

    @property
    def overlaps(self) -> bool:
        """Whether the last panel of B overlaps the one before, because B in place is read in whole panels."""
        return self.b_in_place and not self.masked

    @property
    def body(self) -> str:
        """The name of the loop nest whose generator writes the kernel's code."""
        return DENSE

    @property
    def collects(self) -> bool:
        """Whether the sums of an output block are collected in scratch, and then stored along lines of positions."""
        return self.out == SPATIAL

    @property
    def pairs(self) -> bool:
        """Whether chains add the k of a tap in pairs, the second k of each pair first."""
        return self.operand == BF16.name

    @property
    def swaps_pairs(self) -> bool:
        """Whether packing swaps the two k of each pair. Grouped stencils with single k swap them when they add."""
        return self.pairs and (self.step == 2 or not self.stencil)

    @property
    def operand_bytes(self) -> int:
        """The bytes of an element of A or B in memory."""
        return FORMATS[self.operand].dtype.itemsize

    @property
    def reads_pairs(self) -> bool:
        """Whether a load of A reads two k."""
        return self.step == 2 or (self.a_in_place and self.pairs and not self.stencil)

    @property
    def fills_pairs(self) -> bool:
        """Whether an odd last k of a tap is packed as a whole bf16 pair, whose high half is 0 in A and in B."""
        return self.step == 2 and not self.a_in_place

    def filled(self, k: int) -> int:
        """Return the number of k that are multiplied for ``k`` of a tap: an odd last one may fill a whole pair."""
        return k + k % 2 if self.fills_pairs else k

    def position_bytes(self, channels: int) -> int:
        """Return the bytes of a packed position of A. With bf16 pairs, an odd last channel fills a whole pair."""
        return PAIR_BYTES * -(-channels // 2) if self.step == 2 else F32_BYTES * channels

    def position_step(self, channels: int) -> int:
        """Return the bytes between packed positions of A: one more cache line avoids set conflicts between rows."""
        size = self.position_bytes(channels)
        return size + LINE_BYTES * (size % constants.SET_CONFLICT_BYTES == 0)

    def tap_bytes(self, k: int) -> int:
        """Return the bytes from a tap to the next in a packed panel of B.

        If taps are contiguous in memory, all taps of a k are packed in turn, and one more cache line avoids set
        conflicts between them. Kernels with bf16 pairs, and stencils, read a panel as one piece.
        """
        size = self.pitch * self.position_bytes(k)
        together = self.weights == TAPS and self.step == 1 and not self.stencil
        return size + LINE_BYTES * (together and size % constants.SET_CONFLICT_BYTES == 0)

    @property
    def mr_sizes(self) -> tuple[int, ...]:
        """The numbers of rows of the kernel's micro-tiles, descending."""
        return heights(self.mr)

    @property
    def nr_sizes(self) -> tuple[int, ...]:
        """The numbers of vectors of the kernel's micro-tiles, descending."""
        return (self.nr, 1) if self.single_vector and self.nr > 1 else (self.nr,)

    @property
    def width(self) -> int:
        """The number of columns of a panel of B, which are output channels."""
        return self.stencil.groups * self.stencil.out_channels if self.stencil else self.pitch

    @property
    def pitch(self) -> int:
        """The number of lanes of a panel, including lanes without a column."""
        return self.nr * self.isa.lanes

    @property
    def panel_row_bytes(self) -> int:
        """The bytes in memory of a row of a panel of B, which are the columns of one k."""
        return self.pitch * FORMATS[self.operand].dtype.itemsize

    @property
    def packs_lines_of_b(self) -> bool:
        """Whether panels that are used together are packed as one line, because their columns are positions."""
        return self.prefetches_panels and not self.b_in_place

    @property
    def prefetches_panels(self) -> bool:
        """Whether micro-tiles prefetch a later panel of B, because its columns are positions and its rows far apart."""
        return self.transposed_gemm and self.weights == CHANNELS_OUT

    def holds(self, stencil: StencilShape, rows: int, size: int, vectors: int) -> bool:
        """Return whether the weights of ``size`` taps fit in registers together with a grouped stencil's sums."""
        return (
            size * stencil.in_channels // self.step + rows
        ) * vectors + constants.GROUPED_OTHER_REGISTERS <= self.isa.registers

    @property
    def tile_bytes(self) -> int:
        """The bytes that the accumulators of a micro-tile take in memory."""
        return self.mr * self.pitch * F32_BYTES

    def __str__(self) -> str:
        positions = f"{self.mr}x{self.nr} positions, {self.stencil},"
        tile = positions if self.stencil else f"micro-tile {self.mr}x{self.nr}"
        pairs = ", bf16 pairs" if self.step == 2 else ""
        return f"{self.operand} to {self.output}, {tile} of {self.isa}{pairs}"


@dataclass(frozen=True, kw_only=True)
class ForwardPlan(Chosen):
    """The plan of a forward or a data gradient."""

    spec: ForwardSpec
    output_block: tuple[int, ...]  # the positions of an output block along each axis
    panels: int  # panels of B that are packed at a time
    pass_chains: int  # number of chains per pass over a region's micro-tiles; 0: all chains in one pass
    parts: tuple[int, int, int]  # parts of groups, panels, output blocks; a task is one part of each
    packed_once: bool = False  # whether all threads pack A before the first task, and not each output block its part

    @property
    def summary(self) -> str:
        """The strategy, the kernel and the operands, as one line of text."""
        spec, (a, b) = self.spec, self.operands
        in_place = "in place" if spec.data == CHANNELS else "in place, strided"
        a_read = in_place if spec.a_in_place else PACKED[spec.data] + ", once" * self.packed_once
        b_read = "in place" if spec.b_in_place else "packed"
        return f"{self.strategy}: {spec}, A from {a} ({a_read}), B from {b} ({b_read})"

    @property
    def cut(self) -> str:
        """The division of the work among tasks, as one line of text."""
        block = "x".join(map(str, self.output_block))
        passes = f", {self.pass_chains} chains" if self.pass_chains else ""
        rows, lanes = ("results", "positions") if self.spec.transposed_gemm else ("positions", "results")
        groups = "images" if self.spec.transposed_gemm else "groups"
        packed = "" if self.spec.b_in_place else " packed"
        return (
            f"{' x '.join(map(str, self.parts))} parts of {groups}, {lanes}, {rows}; {self.panels} "
            f"panel{'s' * (self.panels > 1)} of {lanes}{packed} at a time{passes}, {block} {rows}"
        )
