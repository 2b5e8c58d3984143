"""The grouped stencil: forwards and data gradients of small groups, with channels of several groups in a vector."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from math import ceil, gcd, lcm
from typing import ClassVar

from convgrad.plan.forward_nest import OPERAND, ForwardNest
from convgrad.plan.gemm.candidates import contiguous_axes
from convgrad.plan.gemm.cost import crowded
from convgrad.plan.gemm.spec import SAME_TILE, GemmPlan, GemmSpec
from convgrad.plan.machine import Isa
from convgrad.plan.pairs import k_per_add_choices
from convgrad.plan.recipe import CHANNELS, STRIDED, Operand, Operands
from convgrad.plan.regions import Parts
from convgrad.plan.stencils import constants
from convgrad.spec.order import BLOCK
from convgrad.spec.problem import Problem

GROUPED_STENCIL = "grouped stencil"  # the name of the kernel, which has the loop nest of a GEMM


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
    by_tap: int  # input positions from a tap to the next, in the same units; negative in a data gradient
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

    def reads(self, lanes: int, vector: int, k_per_add: int) -> list[tuple[int, int]]:
        """Return the loads of A for a vector, as (first channel, number of values). A value has ``k_per_add`` channels.

        >>> StencilShape(8, 8, 2, 1, 1, 1, (1,), False, False, True).reads(16, 0, 2)
        [(0, 8)]
        """
        channels = self.channels(lanes, vector)
        values = len(channels) // k_per_add
        count = values if k_per_add > 1 and values < lanes and values.bit_count() == 1 else lanes
        return [(first, count) for first in range(channels.start, channels.stop, count * k_per_add)]

    def reach(self, rows: int, taps: int) -> int:
        """Return the extent of A, in units, that ``rows`` positions read with ``taps`` taps."""
        return (rows - 1) * self.by_position + (taps - 1) * abs(self.by_tap) + 1

    def __str__(self) -> str:
        sizes = "+".join(map(str, self.sizes))
        return f"stencil of {sizes} taps, {self.in_channels} to {self.out_channels} channels a group"


@dataclass(frozen=True)
class GroupedStencilSpec(GemmSpec):
    """The specification of a grouped stencil: that of a GEMM of merged groups, and the shape of its groups and taps."""

    tiles_last_axis: ClassVar[bool] = True  # a micro-tile reads each position once for all taps of its row
    checks_positions: ClassVar[bool] = True  # regions are not cut where taps of the last axis become absent

    shape: StencilShape = field(kw_only=True)

    @property
    def body(self) -> str:
        """The name of the loop nest whose generator writes the kernel's code."""
        return GROUPED_STENCIL

    @property
    def swaps_pairs(self) -> bool:
        """Return false, because kernels with single k read the second k of each pair first."""
        return False

    @property
    def packs_once(self) -> bool:
        """Return false, because a panel of B uses only some channels of A."""
        return False

    def tap_bytes(self, k: int) -> int:
        """Return the bytes from a tap to the next in a packed panel of B, which is read as one piece."""
        return self.pitch * self.packed_k_bytes(k)

    @property
    def width(self) -> int:
        """The number of columns of a panel of B, which are output channels."""
        return self.shape.groups * self.shape.out_channels

    @property
    def panel_channels(self) -> int:
        """The input channels of the groups of a panel of B."""
        return self.shape.groups * self.shape.in_channels

    @property
    def group_columns(self) -> int:
        """The columns of a group, if groups have no common stride; else 0."""
        return self.shape.out_channels if self.shape.strided_groups else 0

    @property
    def prefetched(self) -> str:
        """The data that a micro-tile prefetches. That of the next micro-tile is in the cache."""
        return SAME_TILE

    def panel_step(self, group: int, n: int) -> int:
        """Return the bytes in memory from a panel of B to the next, for the strides of groups and of columns."""
        return self.shape.groups * group

    def packed_columns(self, n: int) -> int:
        """Return the number of columns of the packed panels, if lanes without a column are not counted."""
        return n

    def holds(self, rows: int, size: int, vectors: int) -> bool:
        """Return whether the weights of ``size`` taps fit in registers together with the sums."""
        weights = size * self.shape.in_channels // self.k_per_add
        return (weights + rows) * vectors + constants.GROUPED_OTHER_REGISTERS <= self.isa.registers

    @property
    def tile(self) -> str:
        """The micro-tile, as text."""
        return f"{self.mr}x{self.nr} positions, {self.shape},"


@dataclass(frozen=True, kw_only=True)
class GroupedStencilPlan(GemmPlan):
    """The plan of a forward or a data gradient by the grouped stencil."""

    spec: GroupedStencilSpec


def nest_of(view: ForwardNest) -> ForwardNest:
    """Return the nest that a kernel computes, which has merged groups."""
    return view.with_merged_groups


def unsupported(problem: Problem, view: ForwardNest, isa: Isa) -> str:
    """Return why the grouped stencil does not support a problem, or the empty string if it does."""
    if view.groups == 1:
        return "there is one group"
    if view.order.chains > 1:
        return "blocks have two chains"
    if view.n > isa.lanes:
        return f"a group has {view.n} output channels; at most {isa.lanes} fit in a vector"
    parts = view.with_merged_groups.axes[-1].parts
    if not parts.max_taps:
        return "no tap exists at any position"
    # A row of taps may span several chains, but the kernel needs at least one tap of the row in each chain.
    return "" if parts.tap_step * view.k <= BLOCK else f"taps of a row are more than {BLOCK} products apart"


def kernels(problem: Problem, view: ForwardNest, isa: Isa) -> Iterator[tuple[GroupedStencilSpec, Operands]]:
    """Yield the grouped stencils, one per panel size and number of rows of a micro-tile."""
    merged = view.with_merged_groups
    parts = merged.axes[-1].parts
    names = (problem.operand_format.name, problem.output_format.name)
    a, b, out = contiguous_axes(merged, *names)
    for k_per_add, (groups, vectors) in product(k_per_add_choices(problem, isa), _panels(view, isa, parts.max_taps)):
        if view.k % k_per_add:
            continue  # a bf16 pair would have channels of two groups
        stencil = _stencil(view, isa, groups, vectors, parts, k_per_add)
        remainder = view.groups % groups * view.n
        for rows in _heights(isa, stencil, vectors, k_per_add):
            spec = GroupedStencilSpec(
                isa,
                *names,
                rows,
                vectors,
                vectors > 1 and 0 < remainder <= isa.lanes,
                len(view.axes),
                replace(a, in_place=a.contiguous == CHANNELS),
                Operand(STRIDED) if stencil.strided_groups else b,
                out,
                shape=stencil,
                k_per_add=k_per_add,
            )
            yield spec, (OPERAND[problem.solves_for], "weights")


def _panels(view: ForwardNest, isa: Isa, taps: int) -> Iterator[tuple[int, int]]:
    """Yield (groups, vectors) per panel: groups that fit in one vector, that fill whole vectors, or several times more.

    Wider panels of a depthwise layer read more of a position at a time: three vectors, or four if there are set
    conflicts. With many ``taps`` in a row, the time of multiply-adds hides that of reads.
    """
    some, whole = isa.lanes // view.n, lcm(view.n, isa.lanes) // view.n
    several = 2
    if view.n == view.k == 1 and taps <= constants.GROUPED_WIDE_TAPS:
        wide = constants.GROUPED_WIDE_VECTORS
        if crowded(view):
            several = constants.GROUPED_CROWDED_VECTORS
        elif view.groups % (wide * whole) == 0 and view.groups > 2 * wide * whole:
            several = wide
    for groups in sorted({min(some, view.groups), whole, several * whole}):
        vectors = ceil(groups * view.n / isa.lanes)
        read_vectors = ceil(groups * view.k / vectors / isa.lanes)
        if (
            groups <= view.groups
            and vectors <= constants.GROUPED_MAX_VECTORS
            and read_vectors <= constants.GROUPED_MAX_READ_VECTORS
        ):
            yield groups, vectors


def _heights(isa: Isa, stencil: StencilShape, vectors: int, k_per_add: int) -> range:
    """Return the numbers of rows of micro-tiles whose sums fit in registers, with the weights too if these are few."""
    steps_of_tap = stencil.in_channels // k_per_add
    room, held = isa.registers // vectors, max(stencil.sizes) * steps_of_tap
    spread = (
        min(steps_of_tap * vectors, constants.GROUPED_MAX_SPREAD_REGISTERS)
        if stencil.in_channels * stencil.out_channels > 1
        else 0
    )
    # Wide panels have more rows instead. With few rows, their weights may still fit (``GroupedStencilSpec.holds``).
    holds = held <= room // 2 and vectors < constants.GROUPED_CROWDED_VECTORS
    rows = room - (constants.GROUPED_OTHER_REGISTERS + spread) // vectors - held * holds
    rows = min(constants.GROUPED_MAX_ROWS, max(1, rows))
    return range(rows, max(1, rows // 2) - 1, -1)


def _stencil(view: ForwardNest, isa: Isa, groups: int, vectors: int, parts: Parts, k_per_add: int) -> StencilShape:
    """Return the shape of a stencil whose panels have ``groups`` groups in ``vectors`` vectors."""
    taps, unit = max(1, constants.GROUPED_MAX_WEIGHTS * k_per_add // view.k), gcd(parts.by_position, parts.by_tap)
    counts, in_chains = {*parts.taps.tolist()} - {0}, view.order.blocks > 1
    sizes = {min(n, taps) for n in counts} | {n % taps for n in counts if n > taps} | ({1} if in_chains else set())
    of_group, of_result, _ = view.weights
    stencil = StencilShape(
        view.n,
        view.k,
        groups,
        parts.by_position // unit,
        parts.by_tap // unit,
        parts.tap_step,
        tuple(sorted(sizes - {0}, reverse=True)),
        guarded=in_chains or max(counts) > taps,
        strided_groups=view.n > 1 and of_group != view.n * of_result,
        masked=False,
    )
    last_reads = [stencil.reads(isa.lanes, v, k_per_add)[-1] for v in range(vectors)]
    over = any(first + count * k_per_add > groups * view.k for first, count in last_reads)
    remainder = view.groups % groups * view.n
    alone = vectors > 1 and remainder == isa.lanes  # computed by micro-tiles of one vector
    return replace(stencil, masked=over or (remainder > 0 and not alone))
