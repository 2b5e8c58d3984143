"""The predicted time of the grouped stencil, on one thread and for each division of the work."""

from __future__ import annotations

from math import ceil, prod

from convgrad.plan import constants as shared
from convgrad.plan.forward_nest import ForwardNest
from convgrad.plan.gemm.cost import Model
from convgrad.plan.gemm.cuts import parts_of
from convgrad.plan.machine import Machine
from convgrad.plan.pairs import chain_adds
from convgrad.plan.stencils import constants
from convgrad.plan.stencils.grouped import GroupedStencilSpec
from convgrad.plan.tiling import tiles


def _cycles(view: ForwardNest, machine: Machine, spec: GroupedStencilSpec, block: tuple[int, ...]) -> float:
    """Return the cycles of the grouped stencil on a nest with merged groups, for a size of output blocks."""
    *outer, last = (parts_of(axis, size) for axis, size in zip(view.axes, block, strict=True))
    positions = prod(axis.extent for axis in view.axes[:-1])
    rows_of_taps = prod(parts.meetings for parts in outer)
    panels = ceil(view.n / spec.width)
    cycles = 0.0
    for (count, taps), parts in last.alike:
        rows, tiles_of_part, _ = tiles(count, spec.mr, spec.nr)
        many = tiles_of_part * parts
        cycles += many * positions * (constants.GROUPED_CYCLES + constants.GROUPED_ROW_CYCLES * rows * spec.nr)
        if taps:
            cycles += many * rows_of_taps * _row_cycles(machine, spec, rows, taps)
    regions = prod(len(parts) for parts in (*outer, last))
    if spec.shape.groups == spec.isa.lanes and spec.a.in_place and panels > 1:
        cycles *= constants.GROUPED_ALONE_FACTOR
    return cycles * panels + shared.REGION_CYCLES * regions


def _row_cycles(machine: Machine, spec: GroupedStencilSpec, rows: int, taps: int) -> float:
    """Return the cycles of a micro-tile of the grouped stencil for one row of taps."""
    stencil = spec.shape
    cycles = 0.0
    for size in stencil.sizes:
        times, taps = divmod(taps, size)
        k_steps = stencil.in_channels // spec.k_per_add
        products = rows * size * k_steps * spec.nr
        adds = products / k_steps * chain_adds(stencil.in_channels, spec.k_per_add, machine)
        read_positions = min(stencil.reach(rows, size), rows * size) * spec.nr
        held = spec.holds(rows, size, spec.nr)
        of_a_vector = ceil(stencil.groups * k_steps / spec.nr / spec.isa.lanes)
        loads = read_positions * of_a_vector + (0 if held else products)
        spread = read_positions * k_steps * of_a_vector if stencil.out_channels * stencil.in_channels > 1 else 0
        cycles += times * (max(adds / 2, loads * shared.LOAD_CYCLES) + spread)
    return cycles + shared.SEGMENT_CYCLES


MODEL = Model(_cycles, stores=True)
