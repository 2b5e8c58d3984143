"""The GEMM of forwards and data gradients: the specification of its kernel, and its plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from convgrad.formats import BF16, F32, FORMATS
from convgrad.plan.gemm import constants
from convgrad.plan.machine import LINE_BYTES, Isa
from convgrad.plan.recipe import CHANNELS, CHANNELS_OUT, F32_BYTES, PACKED, SPATIAL, STRIDED, TAPS, Chosen, Operand
from convgrad.plan.tiling import amx_step_cycles, cheapest, heights, holds_node, portion_step_cycles, tiles
from convgrad.spec.order import BLOCK, SPLIT_TERMS

POSITIONS_GEMM, TRANSPOSED = "dense", "transposed"  # kernels of one loop nest: M is positions, or output channels
# The data that a micro-tile prefetches: of the next micro-tile, of that of the next output block, or of the same
# micro-tile of the next output block.
NEXT_TILE, NEXT_BLOCK, SAME_TILE = "next micro-tile", "next micro-tile of the next block", "same micro-tile"


@dataclass(frozen=True)
class GemmSpec:
    """The specification of a kernel. Extents are arguments, so a new shape seldom compiles a kernel.

    A micro-tile is ``mr`` rows of A times ``nr`` vectors of columns of B. Here A is the data, whose rows are positions,
    and B is the weights, whose columns are output channels. ``TransposedGemmSpec`` has them the other way round. A
    packed operand has f32 values or bf16 pairs: A as [input position][k], and B as [panel][tap][k][n]. Packing is not
    im2col: an output block packs each position once, and a tap is an offset in A (``PART.tap_data``). B can be read in
    place only if its columns are contiguous. This is useful for few positions, such as a 7x7 classifier, and for
    transposed GEMMs in f32.
    """

    bias_per_row: ClassVar[bool] = False  # whether each row of A has a bias, rather than each column of B
    tiles_last_axis: ClassVar[bool] = False  # whether micro-tiles are always placed along the last axis
    checks_positions: ClassVar[bool] = False  # whether micro-tiles need their position in A, because some may be absent

    isa: Isa
    operand: str  # the number format of A and B
    output: str  # the number format of the output
    mr: int  # rows of the tallest micro-tile; those of the others are powers of two or, for two lines, half of it
    nr: int  # vectors of the widest micro-tile
    single_vector: bool  # whether there are also micro-tiles of one vector, for a last panel of few channels
    axes: int  # the number of axes
    a: Operand  # contiguous along CHANNELS, SPATIAL (positions of the last axis), or STRIDED
    b: Operand  # contiguous along CHANNELS_OUT (N), CHANNELS_IN (K), TAPS, or STRIDED
    out: str  # the contiguous axis of the output: CHANNELS, SPATIAL, STRIDED
    # The number of k per multiply-add: 2 for bf16 pairs. The high half has the term that a vector adds first or, in a
    # pair for tiles, the odd term.
    k_per_add: int = 1
    # The number of chains of a leaf of the reduction tree. With 2, the leaf is a portion: one chain has its even terms,
    # and the other its odd terms. CHAIN, ``nest.chains`` and ``pass_chains`` count leaves, not these chains.
    chains: int = 1
    amx_tiles: bool = False  # whether tiles of AMX multiply portions; else vectors
    # Whether packed A has zeros where taps read padding. Then positions with absent taps are in the region of the other
    # ones, unless a weight is infinite or NaN.
    padded: bool = False
    masked: bool = False  # whether loads of B in place are masked, because it has fewer columns than a panel
    activation: str = ""  # applied to outputs before rounding; "" for none

    @property
    def packing(self) -> GemmSpec:
        """The specification of the driver that packs all of A. Kernels that pack the same operand share the driver."""
        return GemmSpec(
            self.isa,
            self.operand,
            F32.name,
            1,
            1,
            False,
            self.axes,
            replace(self.a, in_place=False),
            Operand(STRIDED),
            STRIDED,
            k_per_add=self.k_per_add,
            chains=self.chains,
            amx_tiles=self.amx_tiles,
        )

    @property
    def overlaps(self) -> bool:
        """Whether the last panel of B overlaps the one before, because B in place is read in whole panels."""
        return self.b.in_place and not self.masked

    @property
    def body(self) -> str:
        """The name of the loop nest whose generator writes the kernel's code."""
        return POSITIONS_GEMM

    @property
    def collects(self) -> bool:
        """Whether the sums of an output block are collected in scratch, and then stored along lines of positions."""
        return self.out == SPATIAL

    @property
    def pairs(self) -> bool:
        """Whether chains add the k of a tap in pairs, the second k of each pair first.

        This is the order of the sum. Only if ``k_per_add`` is 2, a multiply-add takes both k of a pair.
        """
        return self.operand == BF16.name and self.chains == 1

    @property
    def leaf_terms(self) -> int:
        """The maximum number of terms of a leaf of the reduction tree, which is a chain or a portion of two chains."""
        return BLOCK if self.chains == 1 else SPLIT_TERMS

    def holds_node(self, rows: int, vectors: int) -> bool:
        """Return whether a micro-tile of vectors has the sums of a node in registers, besides those of two chains."""
        return self.chains == 2 and not self.amx_tiles and holds_node(self.isa, rows, vectors)

    @property
    def apart(self) -> int:
        """The distance of the two k of a pair. Tiles take pairs of neighbours, although these are of two chains."""
        return 1 if self.amx_tiles else self.chains

    @property
    def packed_together(self) -> int:
        """The number of k of a tap that are packed together: of a pair, of a pair of each chain, or of a portion."""
        if self.amx_tiles:
            return SPLIT_TERMS
        return 1 if self.k_per_add == 1 else self.k_per_add * self.apart

    @property
    def swaps_pairs(self) -> bool:
        """Whether packing of A swaps the two k of each pair, because the sum adds the second k first."""
        return self.pairs and self.k_per_add == 1

    @property
    def operand_bytes(self) -> int:
        """The bytes of an element of A or B in memory."""
        return FORMATS[self.operand].itemsize

    @property
    def reads_pairs(self) -> bool:
        """Whether a load of A reads two k."""
        return self.k_per_add == 2 or (self.a.in_place and self.operand == BF16.name)

    @property
    def fills_pairs(self) -> bool:
        """Whether zeros fill the last k of a tap in packed A and B: up to a whole pair, or a portion for tiles."""
        return self.k_per_add == 2 and not self.a.in_place

    def filled(self, k: int) -> int:
        """Return the number of k that are multiplied for ``k`` of a tap, with zeros that fill a pair or a portion."""
        return -(-k // self.packed_together) * self.packed_together if self.fills_pairs else k

    def packed_k_bytes(self, k: int) -> int:
        """Return the packed bytes of ``k`` values of a row of A or a column of B, with zeros that fill them."""
        together = self.packed_together
        return -(-k // together) * together * F32_BYTES // self.k_per_add

    def packed_row_bytes(self, k: int) -> int:
        """Return the bytes from a packed row of A to the next; one more cache line avoids set conflicts of rows."""
        size = self.packed_k_bytes(k)
        return size + LINE_BYTES * (size % constants.SET_CONFLICT_BYTES == 0)

    def tap_bytes(self, k: int) -> int:
        """Return the bytes from a tap to the next in a packed panel of B.

        If taps are contiguous in memory, all taps of a k are packed in turn, and one more cache line avoids set
        conflicts between them. Kernels with bf16 pairs read a panel as one piece.
        """
        size = self.pitch * self.packed_k_bytes(k)
        together = self.b.contiguous == TAPS and self.k_per_add == 1
        return size + LINE_BYTES * (together and size % constants.SET_CONFLICT_BYTES == 0)

    @property
    def prefetches_panels(self) -> bool:
        """Whether micro-tiles prefetch a later panel of B, because its columns are positions and its rows far apart."""
        return False

    @property
    def packs_lines_of_b(self) -> bool:
        """Whether panels that are used together are packed as one line, because their columns are positions."""
        return self.prefetches_panels and not self.b.in_place

    @property
    def panel_channels(self) -> int:
        """The input channels that a panel of B uses, if each panel uses others; 0 if all panels use all channels."""
        return 0

    @property
    def scatters_panels(self) -> bool:
        """Whether each panel of B reads and writes only some channels of each position, which are far apart in memory.

        Then output blocks have few lines, so that the next panels find the other channels of these lines in the cache.
        """
        return self.panel_channels > 0 and self.a.in_place and self.out == CHANNELS

    @property
    def group_columns(self) -> int:
        """The columns of a group, if a panel has columns of several groups without a common stride; else 0."""
        return 0

    @property
    def prefetched(self) -> str:
        """The data that a micro-tile prefetches. The minimum of bf16 pairs in place has loaded that of this block."""
        return NEXT_BLOCK if self.k_per_add == 2 and self.a.in_place else NEXT_TILE

    @property
    def panel_row_bytes(self) -> int:
        """The bytes in memory of a row of a panel of B, which are the columns of one k."""
        return self.pitch * self.operand_bytes

    def panel_step(self, group: int, n: int) -> int:
        """Return the bytes in memory from a panel of B to the next, for the strides of groups and of columns."""
        return self.width * n

    def packed_columns(self, n: int) -> int:
        """Return the number of columns of the packed panels of a group, which has ``n`` columns."""
        return -(-n // self.width) * self.width

    @property
    def packs_once(self) -> bool:
        """Whether threads may pack all of A before the first task."""
        return self.a.contiguous == SPATIAL and not self.a.in_place and not self.padded

    @property
    def mr_sizes(self) -> tuple[int, ...]:
        """The numbers of rows of the kernel's micro-tiles, descending. Those of tiles have one tile of A, or two."""
        return (self.mr, *heights(self.mr // 2)) if self.has_two_lines else heights(self.mr)

    @property
    def has_two_lines(self) -> bool:
        """Whether there are micro-tiles of two lines, one per tile of A."""
        return self.amx_tiles and not self.bias_per_row

    def two_lines(self, rows: int) -> bool:
        """Return whether there are micro-tiles of two lines with this number of rows each."""
        return self.has_two_lines and 2 * rows <= self.mr

    def tiling(self, count: int, vectors: int = 0, *, beside: bool) -> tuple[int, int, float]:
        """Return the height of micro-tiles that cover a line, their number, and cycles per k and position.

        ``beside`` is whether other lines are beside it, because some micro-tiles take two lines.
        """
        vectors = vectors or self.nr
        if self.chains == 1:
            return tiles(count, self.mr, vectors)
        if self.amx_tiles:
            return cheapest(
                count,
                [
                    (rows, amx_step_cycles(rows, vectors, 1 + (beside and self.two_lines(rows))))
                    for rows in self.mr_sizes
                ],
            )
        if self.holds_node(self.mr, vectors):
            return cheapest(count, [(rows, portion_step_cycles(rows, vectors)) for rows in self.mr_sizes])
        return tiles(count, self.mr, vectors)

    @property
    def nr_sizes(self) -> tuple[int, ...]:
        """The numbers of vectors of the kernel's micro-tiles, descending."""
        return (self.nr, 1) if self.single_vector and self.nr > 1 else (self.nr,)

    @property
    def width(self) -> int:
        """The number of columns of a panel of B, which are output channels."""
        return self.pitch

    @property
    def pitch(self) -> int:
        """The number of lanes of a panel, including lanes without a column."""
        return self.nr * self.isa.lanes

    @property
    def tile_bytes(self) -> int:
        """The bytes that the accumulators of a micro-tile take in memory."""
        return self.mr * self.pitch * F32_BYTES

    @property
    def tile(self) -> str:
        """The micro-tile, as text."""
        return f"micro-tile {self.mr}x{self.nr}"

    def __str__(self) -> str:
        if self.amx_tiles:
            return f"{self.operand} to {self.output}, {self.tile} of AMX tiles"
        pairs = ", bf16 pairs" if self.k_per_add == 2 else ""
        return f"{self.operand} to {self.output}, {self.tile} of {self.isa}{pairs}"


@dataclass(frozen=True)
class TransposedGemmSpec(GemmSpec):
    """The specification of a GEMM with the weights as A and the data as B: M is output channels, and N is positions."""

    bias_per_row: ClassVar[bool] = True  # rows are output channels

    @property
    def body(self) -> str:
        """The name of the loop nest whose generator writes the kernel's code."""
        return TRANSPOSED

    @property
    def prefetches_panels(self) -> bool:
        """Whether micro-tiles prefetch a later panel of B, because its columns are positions and its rows far apart."""
        return self.b.contiguous == CHANNELS_OUT

    @property
    def packs_once(self) -> bool:
        """Return false, because A is the weights."""
        return False


@dataclass(frozen=True, kw_only=True)
class GemmPlan(Chosen):
    """The plan of a forward or a data gradient."""

    spec: GemmSpec
    output_block: tuple[int, ...]  # the positions of an output block along each axis
    panels: int  # panels of B that are packed at a time
    pass_chains: int  # number of chains per pass over a region's micro-tiles; 0: all chains in one pass
    parts: tuple[int, int, int]  # parts of groups, panels, output blocks; a task is one part of each
    packed_once: bool = False  # whether all threads pack A before the first task, and not each output block its part

    @property
    def summary(self) -> str:
        """The strategy, the kernel and the operands, as one line of text."""
        spec, (a, b) = self.spec, self.operands
        in_place = "in place" if spec.a.contiguous == CHANNELS else "in place, strided"
        packed = PACKED[spec.a.contiguous] + ", once" * self.packed_once + ", with padding" * spec.padded
        a_read = in_place if spec.a.in_place else packed
        b_read = "in place" if spec.b.in_place else "packed"
        return f"{self.strategy}: {spec}, A from {a} ({a_read}), B from {b} ({b_read})"

    @property
    def cut(self) -> str:
        """The division of the work among tasks, as one line of text."""
        block = "x".join(map(str, self.output_block))
        passes = f", {self.pass_chains} chains" if self.pass_chains else ""
        packed, (groups, columns, rows) = "" if self.spec.b.in_place else " packed", self.dimensions
        return (
            f"{' x '.join(map(str, self.parts))} parts of {groups}, {columns}, {rows}; {self.panels} "
            f"panel{'s' * (self.panels > 1)} of {columns}{packed} at a time{passes}, {block} {rows}"
        )

    @property
    def dimensions(self) -> tuple[str, str, str]:
        """The names of the divided dimensions, of which the second is N and the third is M."""
        return ("groups", "results", "positions")


@dataclass(frozen=True, kw_only=True)
class TransposedGemmPlan(GemmPlan):
    """The plan of a forward or a data gradient by the transposed GEMM."""

    spec: TransposedGemmSpec

    @property
    def dimensions(self) -> tuple[str, str, str]:
        """The names of the divided dimensions, of which the second is N and the third is M."""
        return ("images or groups", "positions", "results")
