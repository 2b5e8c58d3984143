"""The grouped stencil: forwards and data gradients of small groups, with channels of several groups in a vector."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import ceil, gcd, lcm

from convgrad.plan import constants
from convgrad.plan.forward.dense import contiguous_axes
from convgrad.plan.forward.nest import OPERAND, ForwardNest
from convgrad.plan.forward.recipe import ForwardSpec, StencilShape
from convgrad.plan.machine import Isa
from convgrad.plan.pairs import steps
from convgrad.plan.recipe import CHANNELS, STRIDED, Operands
from convgrad.plan.regions import Parts
from convgrad.spec.order import BLOCK
from convgrad.spec.problem import Problem


def unsupported(problem: Problem, view: ForwardNest, isa: Isa) -> str:
    """Return why the grouped stencil does not support a problem, or the empty string if it does."""
    if view.groups == 1:
        return "there is one group"
    if view.n > isa.lanes:
        return f"a group has {view.n} output channels; at most {isa.lanes} fit in a vector"
    parts = view.with_merged_groups.axes[-1].parts
    if not parts.max_taps:
        return "no tap exists at any position"
    # A row of taps may span several chains, but the kernel needs at least one tap of the row in each chain.
    return "" if parts.tap_step * view.k <= BLOCK else f"taps of a row are more than {BLOCK} products apart"


def kernels(problem: Problem, view: ForwardNest, isa: Isa) -> Iterator[tuple[ForwardSpec, Operands]]:
    """Yield the grouped stencils, one per panel size and number of rows of a micro-tile."""
    merged = view.with_merged_groups
    parts = merged.axes[-1].parts
    names = (problem.operand_format.name, problem.output_format.name)
    data, weights, out, stride = contiguous_axes(merged, *names)
    for step, (groups, vectors) in product(steps(problem, isa), _panels(view, isa)):
        if view.k % step:
            continue  # a bf16 pair would have channels of two groups
        stencil = _stencil(view, isa, groups, vectors, parts, step)
        remainder = view.groups % groups * view.n
        for rows in _heights(isa, stencil, vectors, step):
            spec = ForwardSpec(
                isa, *names, rows, vectors, vectors > 1 and 0 < remainder <= isa.lanes, len(view.axes), data,
                STRIDED if stencil.strided_groups else weights, out, data == CHANNELS, stencil=stencil, step=step,
                stride=stride,
            )  # fmt: skip
            yield spec, (OPERAND[problem.solves_for], "weights")


def _panels(view: ForwardNest, isa: Isa) -> Iterator[tuple[int, int]]:
    """Yield (groups, vectors) per panel: groups that fit in one vector, that fill whole vectors, or twice as many."""
    some, whole = isa.lanes // view.n, lcm(view.n, isa.lanes) // view.n
    for groups in sorted({min(some, view.groups), whole, 2 * whole}):
        vectors = ceil(groups * view.n / isa.lanes)
        met = ceil(groups * view.k / vectors / isa.lanes)
        if (
            groups <= view.groups
            and vectors <= constants.GROUPED_MAX_VECTORS
            and met <= constants.GROUPED_MAX_READ_VECTORS
        ):
            yield groups, vectors


def _heights(isa: Isa, stencil: StencilShape, vectors: int, step: int) -> range:
    """Return the numbers of rows of micro-tiles whose sums fit in registers, with the weights too if these are few."""
    steps_of_tap = stencil.in_channels // step
    room, held = isa.registers // vectors, max(stencil.sizes) * steps_of_tap
    spread = (
        min(steps_of_tap * vectors, constants.GROUPED_MAX_SPREAD_REGISTERS)
        if stencil.in_channels * stencil.out_channels > 1
        else 0
    )
    rows = room - (constants.GROUPED_OTHER_REGISTERS + spread) // vectors - (held if held <= room // 2 else 0)
    rows = min(constants.GROUPED_MAX_ROWS, max(1, rows))
    return range(rows, max(1, rows // 2) - 1, -1)


def _stencil(view: ForwardNest, isa: Isa, groups: int, vectors: int, parts: Parts, step: int) -> StencilShape:
    """Return the shape of a stencil whose panels have ``groups`` groups in ``vectors`` vectors."""
    taps, unit = max(1, constants.GROUPED_MAX_WEIGHTS * step // view.k), gcd(parts.by_position, parts.by_tap)
    counts, in_chains = {*parts.taps.tolist()} - {0}, view.order.blocks > 1
    sizes = {min(n, taps) for n in counts} | {n % taps for n in counts if n > taps} | ({1} if in_chains else set())
    of_group, of_result, _ = view.weights
    stencil = StencilShape(
        view.n, view.k, groups, parts.by_position // unit, parts.by_tap // unit, parts.tap_step,
        tuple(sorted(sizes - {0}, reverse=True)), guarded=in_chains or max(counts) > taps,
        strided_groups=view.n > 1 and of_group != view.n * of_result, masked=False,
    )  # fmt: skip
    met = [stencil.reads(isa.lanes, v, step)[-1] for v in range(vectors)]
    over = any(first + count * step > groups * view.k for first, count in met)
    remainder = view.groups % groups * view.n
    alone = vectors > 1 and remainder == isa.lanes  # computed by micro-tiles of one vector
    return replace(stencil, masked=over or (remainder > 0 and not alone))
