"""Depthwise weight gradients whose channels are neighbours: read where they lie, a strip of a row at a time."""

from __future__ import annotations

from math import ceil, prod

from convgrad.plan.machine import ISAS, Machine
from convgrad.plan.recipe import CHANNELS, GROUPS, IN_PLACE, KernelSpec, Tile
from convgrad.plan.schedule import STRIP
from convgrad.plan.taps import starts
from convgrad.plan.tiles import FEW, Kernel, finish_ns, layout, lines_held
from convgrad.plan.view import View, collapsed, per_group
from convgrad.spec.problem import Problem

FEWEST_GROUPS = max(isa.lanes for isa in ISAS.values())  # a full vector: nothing is read beyond the last group
MOST_OUTER = 5  # pointers in general registers
STRIP_CYCLES = 12.0  # to begin a strip of a panel
EDGE_CYCLES = (15.0, 3.0)  # of a position where taps are absent, more: and for each tap
LOAD_CYCLES = 2.0  # most lie across two lines of a cache
L1_WAYS = 8
AGAIN = 1.4  # how much longer where several tiles of taps read the same rows
CROWDED = 1.7  # how much longer it takes where lines of a row share few sets of the first cache


def why_not(problem: Problem, view: View) -> str:
    """Return why not; nothing where it applies."""
    size = problem.operand_format.dtype.itemsize
    channels = max(per_group(view).values())
    if view.conv.groups < FEWEST_GROUPS:
        return f"there are fewer than {FEWEST_GROUPS} groups"
    if channels > 1:
        return f"a group has {channels} channels"
    if view.conv.multiply_adds < FEW:
        return "there is too little to do for a kernel of its own"
    if any(layout(view, tensor, size) != CHANNELS for tensor in ("src", "dst")):
        return "channels are not neighbours"
    extents = tuple(axis.dst for axis in view.conv.axes)
    if view.pointwise and any(collapsed(extents, view.strides(tensor)[2:]) is None for tensor in ("src", "dst")):
        return "positions are not evenly apart"
    return ""


def kernels(problem: Problem, view: View, machine: Machine) -> list[Kernel]:
    """Return the kernels whose tile is some taps of as many groups as there are lanes, in registers."""
    isa, conv, inner = machine.isa, view.conv, view.conv.axes[-1]
    outer = prod(axis.kernel for axis in conv.axes[:-1])
    ahead = inner.stride // inner.dilation if inner.stride % inner.dilation == 0 else 0
    names = (problem.operand_format.name, problem.output_format.name)
    found = []
    for u in range(1, min(outer, MOST_OUTER) + 1):
        for k in sorted({ceil(inner.kernel / n) for n in range(1, 5)} | {min(inner.kernel, 8)}):
            for slide in {ahead if ahead < k else 0, 0}:
                held = u * (k - slide) if slide else 0
                if u * k + held + 1 + isa.spare <= isa.registers:
                    tile = Tile(1, 1, u, k)
                    spec = KernelSpec(isa, *names, tile, IN_PLACE, IN_PLACE, GROUPS, (1, 1), slide=slide)
                    found.append(_kernel(problem, view, machine, spec))
    return found


def _kernel(problem: Problem, view: View, machine: Machine, spec: KernelSpec) -> Kernel:
    conv, tile, inner = view.conv, spec.tile, view.conv.axes[-1]
    cycle_ns = 2 * spec.isa.lanes / machine.fma_per_ns
    loads = tile.outer_taps * (spec.slide or tile.inner_taps) + 1
    position = max(tile.taps / 2, LOAD_CYCLES * loads, 4.0) + 0.5
    outer = len(starts(prod(axis.kernel for axis in conv.axes[:-1]), tile.outer_taps))
    tiles = outer * len(starts(inner.kernel, tile.inner_taps))
    rows = conv.batch * prod(axis.dst for axis in conv.axes[:-1])
    edges = min(inner.dst, ceil((inner.pad_begin + inner.pad_end) / inner.stride))
    strip = (STRIP_CYCLES + tile.taps) * ceil(inner.dst / STRIP)
    cycles = rows * (inner.dst * position + edges * (EDGE_CYCLES[0] + EDGE_CYCLES[1] * tile.taps) + strip)
    compute = ceil(conv.groups / spec.isa.lanes) * tiles * cycles * cycle_ns
    met = conv.batch * (conv.positions + prod(min(a.src, a.dst * a.stride + a.effective_kernel) for a in conv.axes))
    read = met * conv.groups * problem.operand_format.dtype.itemsize / machine.bytes_per_ns
    held = lines_held(machine.l1_bytes, L1_WAYS, view.dst_strides[-1])
    if min(inner.dst, STRIP) * (tile.outer_taps + 1) > held:
        compute *= CROWDED
    if tiles > 1:
        compute *= AGAIN
    return Kernel(spec, "src", compute + read, finish_ns(problem, view, spec, "dst"), 0.0, 0.0)
