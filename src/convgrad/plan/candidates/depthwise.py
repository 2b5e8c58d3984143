"""Depthwise weight gradients whose channels are neighbours: read where they lie, a strip of a row at a time."""

from __future__ import annotations

from collections.abc import Iterator

from convgrad.plan import tiling
from convgrad.plan.constants import FEW
from convgrad.plan.machine import ISAS, Isa
from convgrad.plan.recipe import CHANNELS, GROUPS, STRIP, KernelSpec, Operands, Read
from convgrad.plan.sides import contiguous_axis, evenly_apart
from convgrad.plan.view import View, per_group
from convgrad.spec.problem import Problem

FEWEST_GROUPS = max(isa.lanes for isa in ISAS.values())  # a full vector: nothing is read beyond the last group


def unsupported(problem: Problem, view: View) -> str:
    """Return why not; nothing where it applies."""
    channels = max(per_group(view).values())
    if view.conv.groups < FEWEST_GROUPS:
        return f"there are fewer than {FEWEST_GROUPS} groups"
    if channels > 1:
        return f"a group has {channels} channels"
    if view.conv.multiply_adds < FEW:
        return "there is too little to do for a kernel of its own"
    if any(contiguous_axis(problem, view, tensor) != CHANNELS for tensor in ("src", "dst")):
        return "channels are not neighbours"
    return "" if all(evenly_apart(view, tensor) for tensor in ("src", "dst")) else "positions are not evenly apart"


def kernels(problem: Problem, view: View, isa: Isa) -> Iterator[tuple[KernelSpec, Operands]]:
    """Yield the kernels whose tile is some taps of as many groups as there are lanes, in registers."""
    names = (problem.operand_format.name, problem.output_format.name)
    for tile, slide in tiling.strips(isa, view.conv.axes):
        x, y = Read(CHANNELS, 1, in_place=True, moves=True), Read(CHANNELS, 1, in_place=True)
        yield KernelSpec(isa, *names, STRIP, tile, x, y, GROUPS, slide=slide), ("src", "dst")
