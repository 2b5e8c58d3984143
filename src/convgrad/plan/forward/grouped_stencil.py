"""The grouped stencil: forwards and data gradients of small groups, whose lanes are channels of several."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import ceil, gcd, lcm

from convgrad.plan import constants
from convgrad.plan.forward.dense import contiguous_axes
from convgrad.plan.forward.nest import OPERAND, ForwardNest
from convgrad.plan.forward.recipe import ForwardSpec, GroupedStencil
from convgrad.plan.machine import Isa
from convgrad.plan.pairs import steps
from convgrad.plan.recipe import CHANNELS, STRIDED, Operands
from convgrad.plan.regions import Parts
from convgrad.spec.order import BLOCK
from convgrad.spec.problem import Problem


def unsupported(problem: Problem, view: ForwardNest, isa: Isa) -> str:
    """Return why not; nothing where it applies."""
    if view.groups == 1:
        return "there is one group"
    if view.n > isa.lanes:
        return f"a group has {view.n} results; at most {isa.lanes} fit a vector"
    parts = view.with_merged_groups.axes[-1].parts
    if not parts.max_taps:
        return "no position meets a tap"
    # else a chain may have none of a row's taps
    return "" if parts.tap_step * view.k <= BLOCK else f"taps of a row are more than {BLOCK} terms apart"


def windows(problem: Problem, view: ForwardNest, isa: Isa) -> Iterator[tuple[ForwardSpec, Operands]]:
    """Yield the kernels whose lanes are channels of several groups."""
    merged = view.with_merged_groups
    parts = merged.axes[-1].parts
    names = (problem.operand_format.name, problem.output_format.name)
    data, weights, out = contiguous_axes(merged, *names)
    for step, (groups, vectors) in product(steps(problem, isa), _panels(view, isa)):
        if view.k % step:
            continue  # the last pair of an odd group would be of two groups
        window = _window(view, isa, groups, vectors, parts, step)
        rest = view.groups % groups * view.n
        for rows in _heights(isa, window, vectors, step):
            spec = ForwardSpec(
                isa, *names, rows, vectors, vectors > 1 and 0 < rest <= isa.lanes, len(view.axes), data,
                STRIDED if window.strided_groups else weights, out, data == CHANNELS, stencil=window, step=step,
            )  # fmt: skip
            yield spec, (OPERAND[problem.solves_for], "weights")


def _panels(view: ForwardNest, isa: Isa) -> Iterator[tuple[int, int]]:
    """Yield groups and vectors of panels: as many groups as a vector takes, or as fill one, or several, to the end."""
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


def _heights(isa: Isa, window: GroupedStencil, vectors: int, step: int) -> range:
    """Return the rows of windows that registers hold, beside weights if these are few."""
    terms = window.in_channels // step
    room, held = isa.registers // vectors, max(window.sizes) * terms
    spread = (
        min(terms * vectors, constants.GROUPED_MAX_SPREAD_REGISTERS)
        if window.in_channels * window.out_channels > 1
        else 0
    )
    most = room - (constants.GROUPED_OTHER_REGISTERS + spread) // vectors - (held if held <= room // 2 else 0)
    most = min(constants.GROUPED_MAX_ROWS, max(1, most))
    return range(most, max(1, most // 2) - 1, -1)


def _window(view: ForwardNest, isa: Isa, groups: int, vectors: int, parts: Parts, step: int) -> GroupedStencil:
    """Return the numbers of windows of so many groups and vectors a panel, under phases of the last axis."""
    most, unit = max(1, constants.GROUPED_MAX_WEIGHTS * step // view.k), gcd(parts.by_position, parts.by_tap)
    counts, in_blocks = {*parts.taps.tolist()} - {0}, view.order.blocks > 1
    sizes = {min(n, most) for n in counts} | {n % most for n in counts if n > most} | ({1} if in_blocks else set())
    group, item, _ = view.weights
    window = GroupedStencil(
        view.n, view.k, groups, parts.by_position // unit, parts.by_tap // unit, parts.tap_step,
        tuple(sorted(sizes - {0}, reverse=True)), guarded=in_blocks or max(counts) > most,
        strided_groups=view.n > 1 and group != view.n * item, masked=False,
    )  # fmt: skip
    met = [window.reads(isa.lanes, v, step)[-1] for v in range(vectors)]
    over = any(first + count * step > groups * view.k for first, count in met)
    rest = view.groups % groups * view.n
    alone = vectors > 1 and rest == isa.lanes  # a full vector, which tiles of one take
    return replace(window, masked=over or (rest > 0 and not alone))
