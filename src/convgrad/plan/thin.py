"""Thin weight gradients, few channels on one side: tiles that take several taps at once."""

from __future__ import annotations

from convgrad.plan.machine import Machine
from convgrad.plan.recipe import IN_PLACE, KernelSpec
from convgrad.plan.tiles import FEW, Kernel, kernel, lanes_in_place, layout, taps_tiles
from convgrad.plan.view import View, per_group
from convgrad.spec.problem import Problem

MOST_CHANNELS = 12
MOST_ADDRESSES = 7  # taps of a tile under dilation


def why_not(problem: Problem, view: View) -> str:
    """Return why not; nothing where it applies."""
    thin = min(per_group(view).values())
    if view.conv.taps == 1:
        return "there is one tap"
    if view.conv.multiply_adds < FEW:
        return "there is too little to do for a kernel of its own"
    return "" if thin <= MOST_CHANNELS else f"src and dst have {thin} channels a group or more"


def kernels(problem: Problem, view: View, machine: Machine) -> list[Kernel]:
    """Return the kernels whose rows are all channels of the thin operand, under several taps."""
    isa, channels, found = machine.isa, per_group(view), []
    size = problem.operand_format.dtype.itemsize
    names = (problem.operand_format.name, problem.output_format.name)
    adjacent = view.conv.axes[-1].dilation == 1
    for rows, lanes in (("src", "dst"), ("dst", "src")):
        if channels[rows] > MOST_CHANNELS:
            continue
        rows_lie, lanes_lie = layout(view, rows, size), layout(view, lanes, size)
        for vectors in sorted({min(v, -(-channels[lanes] // isa.lanes)) for v in (1, 2, 3, 4)}):
            held = vectors if rows == "src" else channels[rows] + vectors
            room = isa.registers - held - isa.spare
            for tile in taps_tiles(view, channels[rows], vectors, room, MOST_ADDRESSES):
                if tile.taps == 1:
                    continue
                in_place = rows == "src" and lanes_in_place(problem, view, isa, lanes, vectors)
                for lie in (lanes_lie, IN_PLACE) if in_place else (lanes_lie,):
                    spec = KernelSpec(isa, *names, tile, rows_lie, lie, taps_on_rows=rows == "src", adjacent=adjacent)
                    found.append(kernel(problem, view, machine, rows, spec))
    return found
