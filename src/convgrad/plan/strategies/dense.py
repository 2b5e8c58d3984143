"""Dense weight gradients: tiles of channels by channels, tap by tap."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from convgrad.plan.machine import Isa
from convgrad.plan.recipe import IN_PLACE, KernelSpec
from convgrad.plan.sides import lanes_in_place, layout, readable_in_place
from convgrad.plan.tiling import outer_products
from convgrad.plan.view import View, per_group
from convgrad.spec.problem import Problem


def why_not(problem: Problem, view: View) -> str:
    """Return why not: it always applies."""
    return ""


def kernels(problem: Problem, view: View, isa: Isa) -> Iterator[tuple[KernelSpec, str]]:
    """Yield the kernels whose tile is channels of one operand, each in all lanes, times lanes of the other's."""
    size = problem.operand_format.dtype.itemsize
    names = (problem.operand_format.name, problem.output_format.name)
    channels = per_group(view)
    for (rows, lanes), (most, vectors) in product((("src", "dst"), ("dst", "src")), isa.tiles):
        row_layouts = [layout(view, rows, size), *([IN_PLACE] if readable_in_place(problem, view, rows) else [])]
        for tile, lie in product(outer_products(most, vectors, channels[rows]), row_layouts):
            once = tile.rows == channels[rows] and view.conv.taps == 1  # lanes are read by one tile only
            in_place = once and lanes_in_place(problem, view, isa, lanes, vectors)
            lanes_lie = layout(view, lanes, size)
            for other in (lanes_lie, IN_PLACE) if in_place else (lanes_lie,):
                yield KernelSpec(isa, *names, tile, lie, other), rows
