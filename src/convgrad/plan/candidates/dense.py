"""Dense weight gradients: tiles of channels by channels, tap by tap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import ceil

from convgrad.plan.constants import LANES_AGAIN
from convgrad.plan.machine import Isa
from convgrad.plan.pairs import steps
from convgrad.plan.recipe import STRIDED, TILE, KernelSpec, Operands, Read
from convgrad.plan.sides import contiguous_axis, evenly_apart, lanes_in_place, readable_in_place
from convgrad.plan.tiling import outer_products
from convgrad.plan.view import View, per_group, pieces
from convgrad.spec.problem import Problem


def unsupported(problem: Problem, view: View) -> str:
    """Return why not: it always applies."""
    return ""


def kernels(problem: Problem, view: View, isa: Isa) -> Iterator[tuple[KernelSpec, Operands]]:
    """Yield the kernels whose tile is channels of one operand, each in all lanes, times lanes of the other's."""
    names = (problem.operand_format.name, problem.output_format.name)
    channels, compact = per_group(view), 2 in steps(problem, isa) and _whole_words(problem, view)
    lying = {tensor: contiguous_axis(problem, view, tensor) for tensor in channels}
    ways = {tensor: (False, True) if readable_in_place(problem, view, tensor) else (False,) for tensor in channels}
    for (rows, lanes), (most, vectors) in product((("src", "dst"), ("dst", "src")), isa.tiles):
        whole = lanes_in_place(problem, view, isa, lanes, vectors)
        for tile, in_place in product(outer_products(most, vectors, channels[rows]), ways[rows]):
            x = Read(lying[rows], tile.rows, in_place, moves=True)
            y = Read(lying[lanes], vectors * isa.lanes)
            few = ceil(channels[rows] / tile.rows) <= LANES_AGAIN and view.conv.taps == 1  # tiles read lanes
            for read in (y, replace(y, in_place=True)) if few and whole else (y,):
                for step in steps(problem, isa):
                    one = KernelSpec(isa, *names, TILE, tile, x, read, step=step)
                    yield one, (rows, lanes)
                    if step == 2 and compact:
                        yield replace(one, compact=True), (rows, lanes)


def _whole_words(problem: Problem, view: View) -> bool:
    """Tell whether words of every second position do: lines are pieces of blocks, and begin at even positions."""
    if not view.pointwise or any(contiguous_axis(problem, view, tensor) == STRIDED for tensor in ("src", "dst")):
        return False
    together = all(evenly_apart(view, tensor) for tensor in ("src", "dst"))
    return together and not (pieces(view).first % 2).any()
