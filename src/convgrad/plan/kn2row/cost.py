"""The predicted time of kn2row, on one thread and for the division of the work."""

from __future__ import annotations

from math import gcd, prod

from convgrad.formats import FORMATS
from convgrad.plan import constants as shared
from convgrad.plan.cost import Costs, Timed, on_threads_ns, pack_ns, paired_ns, share, store_ns
from convgrad.plan.forward_nest import ForwardNest
from convgrad.plan.kn2row import constants
from convgrad.plan.kn2row.cuts import cuts
from convgrad.plan.kn2row.spec import Kn2rowSpec, output_block_count, reached, rows_of
from convgrad.plan.machine import Machine
from convgrad.plan.pairs import chain_adds
from convgrad.plan.recipe import CHANNELS, STRIDED, Operands
from convgrad.plan.tiling import tiles
from convgrad.spec.problem import Problem


def alone(problem: Problem, view: ForwardNest, machine: Machine, spec: Kn2rowSpec, operands: Operands) -> Costs:
    """Return the predicted times of kn2row on one thread, with all positions in one output block."""
    return _costs(view, machine, spec, operands, tuple(axis.extent for axis in view.axes[spec.line :]), 1)


def timed(costs: Costs, problem: Problem, view: ForwardNest, machine: Machine, threads: int) -> Timed:
    """Yield the predicted time and the cut of kn2row, if there is one. Each thread packs all weights."""
    for cut in cuts(view, machine, costs.spec, threads):
        (parts,) = cut.parts
        costs_of_block = _costs(view, machine, costs.spec, costs.operands, cut.loops["output_block"], parts)
        packed = costs_of_block.alone_ns + costs_of_block.a_ns * (min(parts, cut.threads) - 1)
        yield on_threads_ns(machine, packed, share(cut), cut, shared.POSITIONS_IMBALANCE), cut


def _costs(
    view: ForwardNest, machine: Machine, spec: Kn2rowSpec, operands: Operands, output_block: tuple[int, ...], parts: int
) -> Costs:
    """Return the predicted times of kn2row for a size of output blocks: the GEMM, packing, and the sums of taps."""
    gemm, rows = spec.product, rows_of(view)
    lines, *inner = (reached(axis, size) for axis, size in zip(view.axes[spec.line :], output_block, strict=True))
    images = prod(axis.extent for axis in view.axes[: spec.line])
    distinct_lines = max((line.stop for line in lines), default=0) - min((line.start for line in lines), default=0)
    rings = images * prod(map(len, inner))  # times that a ring buffer starts with the first line
    # A part that begins inside of an image computes lines again that the previous part has in its ring buffer.
    recomputed_lines = (parts - gcd(parts, rings)) * max(0, max(map(len, lines)) - distinct_lines // len(lines))
    inputs = images * (distinct_lines + recomputed_lines / rings) * prod(sum(map(len, blocks)) for blocks in inner)
    # An output block packs at least one panel.
    inputs = max(inputs, output_block_count(view, spec, output_block) * gemm.width)
    _, _, cycles = tiles(rows, gemm.mr, gemm.nr)
    adds = inputs * rows * chain_adds(gemm.filled(view.k), gemm.k_per_add, machine)
    compute = adds * cycles / gemm.width * machine.cycle_ns
    paired = paired_ns(gemm.k_per_add)
    read = pack_ns(machine, gemm.b.contiguous) + paired + machine.traffic_ns(FORMATS[gemm.operand].itemsize)
    store = store_ns(machine, STRIDED if spec.out == STRIDED else CHANNELS)
    add_ns = view.existing_taps * view.n / gemm.isa.lanes * constants.ADD_NS + view.positions * view.n * store
    a_ns, b_ns = rows * view.k * (pack_ns(machine, gemm.a.contiguous) + paired), inputs * view.k * read
    return Costs(spec, operands, compute, add_ns, a_ns, b_ns)
