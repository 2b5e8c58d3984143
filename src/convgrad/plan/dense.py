"""Dense weight gradients: tiles of channels by channels, tap by tap."""

from __future__ import annotations

from itertools import product

from convgrad.plan.machine import Machine
from convgrad.plan.recipe import CHANNELS, IN_PLACE, KernelSpec, Tile
from convgrad.plan.tiles import Kernel, kernel, layout
from convgrad.plan.view import View, collapsed, per_group
from convgrad.spec.problem import Problem


def kernels(problem: Problem, view: View, machine: Machine) -> list[Kernel]:
    """Return the kernels whose tile is channels of one operand, each in all lanes, times lanes of the other's."""
    found = []
    size = problem.operand_format.dtype.itemsize
    lies = {tensor: layout(view, tensor, size) for tensor in ("src", "dst")}
    names = (problem.operand_format.name, problem.output_format.name)
    for (rows, lanes), (most, vectors) in product((("src", "dst"), ("dst", "src")), machine.isa.tiles):
        most_rows = min(most, per_group(view)[rows])
        row_layouts = [lies[rows], *([IN_PLACE] if _readable_in_place(problem, view, rows, lies[rows]) else [])]
        for count, lie in product(range(max(1, most_rows - 5), most_rows + 1), row_layouts):
            spec = KernelSpec(machine.isa, *names, Tile(count, vectors), lie, lies[lanes])
            found.append(kernel(problem, view, machine, rows, spec))
    return found


def _readable_in_place(problem: Problem, view: View, rows: str, lies: str) -> bool:
    """Tiles can read rows where they are if f32 channels are neighbours and positions of a row one step apart."""
    if problem.operand_format.name != "f32" or lies != CHANNELS:
        return False
    extents = tuple(a.dst for a in view.conv.axes)
    return not view.pointwise or collapsed(extents, view.strides(rows)[2:]) is not None
