"""The kernels of the GEMM, positions times output channels, and of the transposed GEMM; A and B packed or in place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import prod

from convgrad.formats import BF16, F32, FORMATS
from convgrad.plan import constants as shared
from convgrad.plan.forward_nest import OPERAND, ForwardNest, transposed
from convgrad.plan.gemm import constants
from convgrad.plan.gemm.cost import crowded, rows_in_cache
from convgrad.plan.gemm.cuts import reached_bytes
from convgrad.plan.gemm.spec import GemmSpec, TransposedGemmSpec
from convgrad.plan.machine import Isa
from convgrad.plan.pairs import k_per_add_choices
from convgrad.plan.recipe import (
    CHANNELS,
    CHANNELS_IN,
    CHANNELS_OUT,
    SPATIAL,
    STRIDED,
    TAPS,
    Operand,
    Operands,
    positions_axis,
)
from convgrad.plan.tiling import SIDE
from convgrad.spec.problem import Problem

# The choices of A in place, if channels are contiguous. For bf16, A in place is split into halves, or A is packed.
PLACES = {F32.name: (True,), BF16.name: (True, False)}
Proposed = tuple[GemmSpec, Operands]


def unsupported(problem: Problem, view: ForwardNest, isa: Isa) -> str:
    """Return the empty string, because dense kernels support every problem."""
    return ""


def kernels(problem: Problem, view: ForwardNest, isa: Isa) -> Iterator[Proposed]:
    """Yield the dense kernels for the contiguous axes of a problem, with A and B packed or in place."""
    operands = (OPERAND[problem.solves_for], "weights")
    for spec in _specs(GemmSpec, problem, view, isa):
        yield spec, operands
        if spec.amx_tiles and may_be_padded(view):
            yield replace(spec, padded=True), operands


def transposed_unsupported(problem: Problem, view: ForwardNest, isa: Isa) -> str:
    """Return why the GEMM cannot be transposed, or the empty string if it can."""
    other = view.transposed_gemm
    if other is None:
        return "an image is not one matrix product"
    together = view.out[1] != other.out[1] == problem.output_format.itemsize
    return "" if together else "positions of the output are not contiguous"


def transposed_kernels(problem: Problem, view: ForwardNest, isa: Isa) -> Iterator[Proposed]:
    """Yield the kernels of the transposed GEMM, whose M is output channels and whose N is positions."""
    operands = ("weights", OPERAND[problem.solves_for])
    return ((spec, operands) for spec in _specs(TransposedGemmSpec, problem, transposed(view), isa))


def any_layout(problem: Problem, view: ForwardNest, isa: Isa) -> Iterator[Proposed]:
    """Yield the kernel for operands with any strides, which all small problems share."""
    names = (problem.operand_format.name, problem.output_format.name)
    a, b = Operand(STRIDED, in_place=True), Operand(STRIDED)
    rows, axes, chains = constants.SMALL_KERNEL_ROWS, len(view.axes), view.order.chains
    spec = GemmSpec(isa, *names, rows, 1, False, axes, a, b, STRIDED, chains=chains)
    yield spec, (OPERAND[problem.solves_for], "weights")


def _specs(kind: type[GemmSpec], problem: Problem, view: ForwardNest, isa: Isa) -> Iterator[GemmSpec]:
    names = (problem.operand_format.name, problem.output_format.name)
    packed_a, packed_b, out = contiguous_axes(view, *names)
    places = PLACES.get(names[0], (False,)) if packed_a.contiguous == CHANNELS else (False,)
    near = rows_in_cache(view.axes[-1].data)
    if (crowded(view) or near < max(rows for rows, _ in isa.micro_tiles)) and False not in places:
        places = (*places, False)
    if reached_bytes(view, [1] * len(view.axes)) > shared.MAX_OUTPUT_BLOCK_BYTES:
        places = (True,)  # the packed A of one position would be too large
    choices_of_a, b_in_place = [replace(packed_a, in_place=place) for place in places], replace(packed_b, in_place=True)
    f32, chains = problem.operand_format is F32, view.order.chains
    ways = [
        (many, tile, False) for many in k_per_add_choices(problem, isa) for tile in isa.micro_tiles_of(many, chains)
    ]
    if isa.tiles and chains == 2:
        ways += [(2, (2 * SIDE, 2), True), (2, (2 * SIDE, 1), True)]
    for k_per_add, (max_rows, vectors), amx_tiles in ways:
        few = view.positions <= constants.MAX_TILES_B_IN_PLACE * max_rows
        portions = k_per_add * chains == 4 and not amx_tiles  # pairs of k and k + 2, of each chain
        wide = few or portions or (kind is TransposedGemmSpec and f32)  # otherwise panels of two vectors are best
        if (vectors > 2 and not wide) or (vectors - 1) * isa.lanes >= view.n:
            continue
        whole = view.n >= vectors * isa.lanes and not problem.accumulate
        masked = view.n < vectors * isa.lanes
        readable = packed_b.contiguous == CHANNELS_OUT and view.tap_step is not None and k_per_add == 1
        choices_of_b = (packed_b, b_in_place) if readable and wide and (whole or masked) else (packed_b,)
        remainder = view.n % (vectors * isa.lanes)
        for rows in _heights(max_rows, near):
            single_vector = vectors > 1 and 0 < remainder <= isa.lanes
            for a, b in product(choices_of_a, choices_of_b):
                if a.in_place and a.contiguous == CHANNELS and rows > near:
                    continue
                if a.in_place and not f32 and not amx_tiles and chains * rows * vectors > isa.registers - 2 * isa.spare:
                    continue
                if not _multiplies(view, problem.operand_format is BF16, (k_per_add, chains, amx_tiles), a, b):
                    continue
                yield kind(
                    isa,
                    *names,
                    rows,
                    vectors,
                    single_vector and not b.in_place,
                    len(view.axes),
                    a,
                    b,
                    out,
                    k_per_add=k_per_add,
                    chains=chains,
                    amx_tiles=amx_tiles,
                    masked=b.in_place and masked,
                )


def _multiplies(view: ForwardNest, bf16: bool, way: tuple[int, int, bool], a: Operand, b: Operand) -> bool:
    """Return whether a kernel can read A and B as they are for ``way``: k per multiply-add, chains, and tiles."""
    k_per_add, chains, amx_tiles = way
    if amx_tiles:
        return not (a.in_place or b.in_place)  # packing fills blocks with zeros, and packed rows are 1.1 times as fast
    if k_per_add == 2 and chains == 2:  # pairs of k and k + 2
        return not a.in_place and view.k % 4 == 0
    if k_per_add == 2 and (view.k == 1 or (a.in_place and a.contiguous != CHANNELS)):  # no k to pair
        return False
    # Packing swaps the two k of each bf16 pair of A, but B in place is not swapped.
    return not (b.in_place and bf16 and chains == 1 and not a.in_place)


def _heights(maximum: int, near: int) -> list[int]:
    """Return the rows of micro-tiles to try, descending: ``maximum`` or a few less, and ``near`` or a few less."""
    fewer, firsts = shared.FEWER_ROWS_POSITIONS, (maximum, min(maximum, near))
    return sorted({rows for first in firsts for rows in range(first, max(1, first - fewer), -1)}, reverse=True)


def may_be_padded(view: ForwardNest) -> bool:
    """Return whether kernels may multiply zeros where taps read padding, because these are not too many."""
    adds = prod(axis.uncut.meetings for axis in view.axes)
    return view.existing_taps < adds <= constants.MAX_PADDED_ADDS * view.existing_taps


def contiguous_axes(view: ForwardNest, operand: str, output: str) -> tuple[Operand, Operand, str]:
    """Return A and B of a nest, both packed, and the contiguous axis of the output."""
    size, out_size = FORMATS[operand].itemsize, FORMATS[output].itemsize
    last_axis = view.axes[-1]
    a = Operand(*positions_axis(last_axis.data, size))
    if view.data[1] == size or view.channels == 1:
        a = Operand(CHANNELS)
    _, n, k = view.weights
    if n == size or view.n == 1 == view.taps:
        b = Operand(CHANNELS_OUT)
    elif k == size:
        b = Operand(CHANNELS_IN)
    else:
        b = Operand(TAPS if view.taps > 1 and view.tap_step == size else STRIDED)
    if view.out[1] == out_size and view.n > 1:
        out = CHANNELS
    elif last_axis.out == out_size:
        out = SPATIAL
    else:
        out = CHANNELS if view.n == 1 else STRIDED
    return a, b, out
