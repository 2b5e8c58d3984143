"""Weight gradients of many groups with few channels, depthwise ones among them: a lane is a group."""

from __future__ import annotations

from itertools import product

from convgrad.plan.machine import Machine
from convgrad.plan.recipe import GROUPS, KernelSpec
from convgrad.plan.tiles import FEW, Kernel, balanced, kernel, layout, taps_tiles
from convgrad.plan.view import View, per_group
from convgrad.spec.problem import Problem

MOST_CHANNELS = 16
MOST_ADDRESSES = 7  # taps of a tile under dilation


def why_not(problem: Problem, view: View) -> str:
    """Return why not; nothing where it applies."""
    if view.conv.groups == 1:
        return "there is one group"
    if view.conv.multiply_adds < FEW:
        return "there is too little to do for a kernel of its own"
    most = max(per_group(view).values())
    return "" if most <= MOST_CHANNELS else f"a group has {most} channels"


def kernels(problem: Problem, view: View, machine: Machine) -> list[Kernel]:
    """Return the kernels whose tile is some channels of src times some of dst, of as many groups as there are lanes."""
    isa, channels, found = machine.isa, per_group(view), []
    size = problem.operand_format.dtype.itemsize
    names = (problem.operand_format.name, problem.output_format.name)
    lies = {tensor: layout(view, tensor, size) for tensor in channels}
    adjacent = view.conv.axes[-1].dilation == 1
    shapes = product(
        sorted({balanced(channels["src"], n) for n in range(1, 9)}),
        sorted({balanced(channels["dst"], n) for n in range(1, 9)}),
    )
    for rows, vectors in shapes:
        for tile in taps_tiles(view, rows, vectors, isa.registers - vectors - isa.spare, MOST_ADDRESSES):
            spec = KernelSpec(
                isa,
                *names,
                tile,
                lies["src"],
                lies["dst"],
                GROUPS,
                (channels["src"], channels["dst"]),
                adjacent=adjacent,
            )
            found.append(kernel(problem, view, machine, "src", spec))
    return found
