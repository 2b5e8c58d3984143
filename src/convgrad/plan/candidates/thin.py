"""Thin weight gradients, few channels on one side: tiles that take several taps at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from convgrad.plan.constants import FEW, MOST_ADDRESSES, THIN_CHANNELS
from convgrad.plan.machine import Isa
from convgrad.plan.pairs import steps
from convgrad.plan.recipe import TILE, KernelSpec, Operands, Read
from convgrad.plan.sides import contiguous_axis, lanes_in_place
from convgrad.plan.tiling import under_taps
from convgrad.plan.view import View, per_group
from convgrad.spec.problem import Problem


def unsupported(problem: Problem, view: View) -> str:
    """Return why not; nothing where it applies."""
    thin = min(per_group(view).values())
    if view.conv.taps == 1:
        return "there is one tap"
    if view.conv.multiply_adds < FEW:
        return "there is too little to do for a kernel of its own"
    if thin > THIN_CHANNELS:
        return f"src and dst have {thin} channels a group or more; {THIN_CHANNELS} of one fit"
    return ""


def kernels(problem: Problem, view: View, isa: Isa) -> Iterator[tuple[KernelSpec, Operands]]:
    """Yield the kernels whose rows are all channels of the thin operand, under several taps."""
    axes, channels = view.conv.axes, per_group(view)
    names = (problem.operand_format.name, problem.output_format.name)
    adjacent = axes[-1].dilation == 1
    for rows, lanes in (("src", "dst"), ("dst", "src")):
        if channels[rows] > THIN_CHANNELS:
            continue
        x = Read(contiguous_axis(problem, view, rows), channels[rows], moves=rows == "src")
        for vectors in sorted({min(v, -(-channels[lanes] // isa.lanes)) for v in (1, 2, 3, 4)}):
            y = Read(contiguous_axis(problem, view, lanes), vectors * isa.lanes, moves=lanes == "src")
            held = vectors if x.moves else channels[rows] + vectors
            in_place = x.moves and lanes_in_place(problem, view, isa, lanes, vectors)
            for tile in under_taps(axes, channels[rows], vectors, isa.registers - held - isa.spare, MOST_ADDRESSES):
                for read in (y, replace(y, in_place=True)) if in_place else (y,):
                    for step in steps(problem, isa) if tile.taps > 1 else ():
                        yield KernelSpec(isa, *names, TILE, tile, x, read, adjacent=adjacent, step=step), (rows, lanes)
