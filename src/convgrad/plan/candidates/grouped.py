"""Weight gradients of many groups with few channels, depthwise ones among them: a lane is a group."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from convgrad.plan.constants import FEW, GROUP_CHANNELS, MOST_ADDRESSES
from convgrad.plan.machine import Isa
from convgrad.plan.pairs import steps
from convgrad.plan.recipe import GROUPS, TILE, KernelSpec, Operands, Read
from convgrad.plan.sides import contiguous_axis
from convgrad.plan.tiling import balanced, under_taps
from convgrad.plan.view import View, per_group
from convgrad.spec.problem import Problem


def unsupported(problem: Problem, view: View) -> str:
    """Return why not; nothing where it applies."""
    if view.conv.groups == 1:
        return "there is one group"
    if view.conv.multiply_adds < FEW:
        return "there is too little to do for a kernel of its own"
    most = max(per_group(view).values())
    return "" if most <= GROUP_CHANNELS else f"a group has {most} channels; at most {GROUP_CHANNELS} fit"


def kernels(problem: Problem, view: View, isa: Isa) -> Iterator[tuple[KernelSpec, Operands]]:
    """Yield the kernels whose tile is some channels of src times some of dst, of as many groups as there are lanes."""
    axes, channels = view.conv.axes, per_group(view)
    names = (problem.operand_format.name, problem.output_format.name)
    x = Read(contiguous_axis(problem, view, "src"), channels["src"], moves=True)
    y = Read(contiguous_axis(problem, view, "dst"), channels["dst"])
    shapes = product(*(sorted({balanced(read.items, n) for n in range(1, 9)}) for read in (x, y)))
    adjacent = axes[-1].dilation == 1
    for rows, vectors in shapes:
        for tile in under_taps(axes, rows, vectors, isa.registers - vectors - isa.spare, MOST_ADDRESSES):
            for step in steps(problem, isa):
                yield KernelSpec(isa, *names, TILE, tile, x, y, GROUPS, adjacent, step=step), ("src", "dst")
