"""Forwards and data gradients as outer products: rows are positions and lanes results, or the other way round."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from convgrad.formats import BF16, F32, FORMATS
from convgrad.plan import constants
from convgrad.plan.forward.cost import crowded
from convgrad.plan.forward.cuts import reached_bytes
from convgrad.plan.forward.nest import OPERAND, ForwardNest
from convgrad.plan.forward.recipe import ForwardSpec
from convgrad.plan.machine import Isa
from convgrad.plan.pairs import steps
from convgrad.plan.recipe import CHANNELS, CHANNELS_IN, CHANNELS_OUT, SPATIAL, STRIDED, TAPS, Operands
from convgrad.spec.problem import Problem

# Whether rows are read in place where terms are neighbours: of bf16 if to take words apart costs less than a pack.
PLACES = {F32.name: (True,), BF16.name: (True, False)}
Proposed = tuple[ForwardSpec, Operands]


def unsupported(problem: Problem, view: ForwardNest, isa: Isa) -> str:
    """Return why not: it always applies."""
    return ""


def kernels(problem: Problem, view: ForwardNest, isa: Isa) -> Iterator[Proposed]:
    """Yield the kernels for a problem's layouts: of the tiles that registers hold, some heights."""
    operands = (OPERAND[problem.solves_for], "weights")
    return ((spec, operands) for spec in _kernels(problem, view, isa, False))


def transposed_unsupported(problem: Problem, view: ForwardNest, isa: Isa) -> str:
    """Return why rows and lanes do not change places; nothing where they may."""
    other = view.transposed_gemm
    if other is None:
        return "an image is not one matrix product"
    together = view.out[1] != other.out[1] == problem.output_format.dtype.itemsize
    return "" if together else "positions of the output are not neighbours"


def transposed_kernels(problem: Problem, view: ForwardNest, isa: Isa) -> Iterator[Proposed]:
    """Yield the kernels whose rows are results, and whose lanes are positions."""
    other, operands = view.transposed_gemm, ("weights", OPERAND[problem.solves_for])
    assert other is not None, "it is supported"
    return ((spec, operands) for spec in _kernels(problem, other, isa, True))


def any_layout(problem: Problem, view: ForwardNest, isa: Isa) -> Iterator[Proposed]:
    """Yield the kernel that takes operands however they lie, for whatever is too small for one of its own."""
    names = (problem.operand_format.name, problem.output_format.name)
    layouts = (STRIDED, STRIDED, STRIDED)
    spec = ForwardSpec(isa, *names, constants.SMALL_KERNEL_ROWS, 1, False, len(view.axes), *layouts, True)
    yield spec, (OPERAND[problem.solves_for], "weights")


def _kernels(problem: Problem, view: ForwardNest, isa: Isa, transposed_gemm: bool) -> Iterator[ForwardSpec]:
    names = (problem.operand_format.name, problem.output_format.name)
    data, weights, out = contiguous_axes(view, *names)
    places = PLACES.get(names[0], (False,)) if data == CHANNELS else (False,)
    if crowded(view) and False not in places:
        places = (*places, False)
    if reached_bytes(view, [1] * len(view.axes)) > constants.MAX_OUTPUT_BLOCK_BYTES:  # too far apart to be packed
        places = (True,)
    f32 = problem.operand_format is F32
    for step, (most, vectors) in ((many, tile) for many in steps(problem, isa) for tile in isa.micro_tiles_of(many)):
        few = view.positions <= constants.MAX_B_READS_POSITIONS * most
        if (vectors > 2 and not few) or (vectors - 1) * isa.lanes >= view.results:
            continue
        whole = view.results >= vectors * isa.lanes and not problem.accumulate
        masked = view.results < vectors * isa.lanes
        once = few or (transposed_gemm and f32)  # else caches want them close together, and in f32
        readable = weights == CHANNELS_OUT and view.tap_step is not None and step == 1
        ways = (False, True) if readable and once and (whole or masked) else (False,)
        rest = view.results % (vectors * isa.lanes)
        for rows in range(most, max(1, most - constants.FEWER_ROWS_POSITIONS), -1):
            narrow = vectors > 1 and 0 < rest <= isa.lanes
            for in_place, place in product(places, ways):
                if in_place and f32 is False and rows * vectors > isa.registers - 2 * isa.spare:
                    continue
                if place and problem.operand_format is BF16 and not in_place:  # rows are packed in another order
                    continue
                if step == 2 and (view.terms == 1 or (in_place and data != CHANNELS)):  # there are no pairs
                    continue
                yield ForwardSpec(
                    isa, *names, rows, vectors, narrow and not place, len(view.axes), data, weights, out, in_place,
                    place, transposed_gemm, step=step, masked=place and masked,
                )  # fmt: skip


def contiguous_axes(view: ForwardNest, operand: str, output: str) -> tuple[str, str, str]:
    """Return what lies next to each other in data, weights, output."""
    size, written = FORMATS[operand].dtype.itemsize, FORMATS[output].dtype.itemsize
    last = view.axes[-1]
    data = CHANNELS if view.data[1] == size or view.channels == 1 else SPATIAL if last.data == size else STRIDED
    _, result, term = view.weights
    if result == size or view.results == 1 == view.taps:
        weights = CHANNELS_OUT
    elif term == size:
        weights = CHANNELS_IN
    else:
        weights = TAPS if view.taps > 1 and view.tap_step == size else STRIDED
    if view.out[1] == written and view.results > 1:
        return data, weights, CHANNELS
    if last.out == written:
        return data, weights, SPATIAL
    return data, weights, CHANNELS if view.results == 1 else STRIDED
