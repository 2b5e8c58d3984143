"""Dense weight gradients: tiles of channels by channels, tap by tap."""

from __future__ import annotations

from itertools import product

from convgrad.plan.machine import Machine
from convgrad.plan.recipe import IN_PLACE, KernelSpec, Tile
from convgrad.plan.tiles import Kernel, kernel, lanes_in_place, layout, readable_in_place
from convgrad.plan.view import View, per_group
from convgrad.spec.problem import Problem


def kernels(problem: Problem, view: View, machine: Machine) -> list[Kernel]:
    """Return the kernels whose tile is channels of one operand, each in all lanes, times lanes of the other's."""
    found = []
    size = problem.operand_format.dtype.itemsize
    lies = {tensor: layout(view, tensor, size) for tensor in ("src", "dst")}
    names = (problem.operand_format.name, problem.output_format.name)
    channels = per_group(view)
    for (rows, lanes), (most, vectors) in product((("src", "dst"), ("dst", "src")), machine.isa.tiles):
        most_rows = min(most, channels[rows])
        row_layouts = [lies[rows], *([IN_PLACE] if readable_in_place(problem, view, rows) else [])]
        for count, lie in product(range(max(1, most_rows - 5), most_rows + 1), row_layouts):
            once = count == channels[rows] and view.conv.taps == 1  # lanes are read by one tile only
            in_place = once and lanes_in_place(problem, view, machine.isa, lanes, vectors)
            for lanes_lie in (lies[lanes], IN_PLACE) if in_place else (lies[lanes],):
                spec = KernelSpec(machine.isa, *names, Tile(count, vectors), lie, lanes_lie)
                found.append(kernel(problem, view, machine, rows, spec))
    return found
