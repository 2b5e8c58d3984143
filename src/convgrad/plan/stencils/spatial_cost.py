"""The predicted time of the spatial stencil, on one thread and for the division of the work."""

from __future__ import annotations

from math import ceil, prod

from convgrad.formats import FORMATS
from convgrad.plan import constants as shared
from convgrad.plan.cost import Costs, Division, Timed, claimed, on_threads_ns, share
from convgrad.plan.forward_nest import ForwardNest
from convgrad.plan.machine import Machine
from convgrad.plan.recipe import F32_BYTES, Operands
from convgrad.plan.stencils import constants
from convgrad.plan.stencils.spatial import SpatialStencilSpec
from convgrad.spec.problem import Problem


def alone(problem: Problem, view: ForwardNest, machine: Machine, spec: SpatialStencilSpec, operands: Operands) -> Costs:
    """Return the predicted times of a spatial stencil on one thread. The time to pack weights is neglected."""
    lines, last_axis, footprint = view.axes[-2], view.axes[-1], spec.footprint
    pieces = ceil(last_axis.extent / spec.line_outputs) * ceil(view.n / spec.results)
    size = FORMATS[spec.operand].itemsize
    loaded = len(footprint.loads(spec.isa.lanes, spec.vectors)) * ceil(footprint.apart * size / F32_BYTES) * view.k
    k_adds = spec.k_steps * (machine.pair_adds if spec.k_per_add == 2 else 1.0)
    used = sum(taps.number for taps in footprint.last) * k_adds * spec.results
    stored = spec.results * spec.lines * spec.vectors * len(footprint.last) * constants.SPATIAL_STORE_CYCLES
    outer_taps = prod(axis.parts.meetings / axis.extent for axis in view.axes[:-2])  # of a position, on average
    cycles = 0.0
    for phase, part in enumerate(lines.phases):
        rows = footprint.rows(phase, spec.lines)
        adds = sum(map(len, rows.values())) * used
        read = len(rows) * loaded * machine.vector_load_cycles + adds * constants.SPATIAL_WEIGHT_CYCLES
        tile = max(adds * spec.vectors / 2, read) * outer_taps + stored + constants.SPATIAL_TILE_CYCLES
        cycles += ceil(len(part.positions) / spec.lines) * tile
    outer = view.groups * prod(axis.extent for axis in view.axes[:-2])
    data_bytes = outer * lines.inputs * last_axis.inputs * view.k * size
    out = view.positions * view.groups * view.n * FORMATS[spec.output].itemsize
    traffic = machine.traffic_ns(data_bytes + out)
    return Costs(spec, operands, outer * pieces * cycles * machine.cycle_ns, traffic, 0.0, 0.0)


def timed(costs: Costs, problem: Problem, view: ForwardNest, machine: Machine, threads: int) -> Timed:
    """Yield the predicted time and the cut of a spatial stencil: parts of the groups."""
    cut = Division((view.groups,), (claimed(view.groups, threads),), threads, {})
    yield on_threads_ns(machine, costs.alone_ns, share(cut), cut, shared.POSITIONS_IMBALANCE), cut
