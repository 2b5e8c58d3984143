"""Windows: forwards and data gradients of small groups, whose lanes are channels of several; and what they cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil, gcd, lcm, prod

from convgrad.plan import constants
from convgrad.plan.forward.cuts import parts_of
from convgrad.plan.forward.heights import tiles
from convgrad.plan.forward.recipe import ForwardSpec, GroupedStencil
from convgrad.plan.forward.sides import contiguous_axes
from convgrad.plan.forward.view import ForwardNest
from convgrad.plan.machine import Isa
from convgrad.plan.recipe import CHANNELS, STRIDED
from convgrad.plan.stretches import Parts
from convgrad.spec.order import BLOCK
from convgrad.spec.problem import Problem


def windows(problem: Problem, view: ForwardNest, isa: Isa) -> Iterator[ForwardSpec]:
    """Yield the kernels whose lanes are channels of several groups, where these are small enough."""
    merged = view.with_merged_groups
    parts = merged.axes[-1].parts
    if view.groups == 1 or view.results > isa.lanes or not parts.most_taps:
        return
    if parts.tap_step * view.terms > BLOCK:
        return  # there may be blocks that none of a row's taps is in
    names = (problem.operand_format.name, problem.output_format.name)
    data, weights, out = contiguous_axes(merged, *names)
    for groups, vectors in _panels(view, isa):
        window = _window(view, isa, groups, vectors, parts)
        rest = view.groups % groups * view.results
        for rows in _heights(isa, window, vectors):
            yield ForwardSpec(
                isa, *names, rows, vectors, vectors > 1 and 0 < rest <= isa.lanes, len(view.axes), data,
                STRIDED if window.apart else weights, out, data == CHANNELS, window=window,
            )  # fmt: skip


def _panels(view: ForwardNest, isa: Isa) -> Iterator[tuple[int, int]]:
    """Yield groups and vectors of panels: as many groups as a vector takes, or as fill one, or several, to the end."""
    some, whole = isa.lanes // view.results, lcm(view.results, isa.lanes) // view.results
    for groups in sorted({min(some, view.groups), whole, 2 * whole}):
        vectors = ceil(groups * view.results / isa.lanes)
        met = ceil(groups * view.terms / vectors / isa.lanes)
        if groups <= view.groups and vectors <= constants.WINDOW_WIDEST and met <= constants.WINDOW_VECTORS:
            yield groups, vectors


def _heights(isa: Isa, window: GroupedStencil, vectors: int) -> range:
    """Return the rows of windows that registers hold, beside weights if these are few."""
    room, held = isa.registers // vectors, max(window.sizes) * window.terms
    spread = min(window.terms * vectors, constants.WINDOW_SPREAD) if window.terms * window.results > 1 else 0
    most = room - (constants.WINDOW_OTHERS + spread) // vectors - (held if held <= room // 2 else 0)
    most = min(constants.WINDOW_ROWS, max(1, most))
    return range(most, max(1, most // 2) - 1, -1)


def _window(view: ForwardNest, isa: Isa, groups: int, vectors: int, parts: Parts) -> GroupedStencil:
    """Return the numbers of windows of so many groups and vectors a panel, under phases of the last axis."""
    most, unit = max(1, constants.WINDOW_WEIGHTS // view.terms), gcd(parts.by_position, parts.by_tap)
    counts, in_blocks = {*parts.taps.tolist()} - {0}, view.order.blocks > 1
    sizes = {min(n, most) for n in counts} | {n % most for n in counts if n > most} | ({1} if in_blocks else set())
    group, item, _ = view.weights
    window = GroupedStencil(
        view.results, view.terms, groups, parts.by_position // unit, parts.by_tap // unit, parts.tap_step,
        tuple(sorted(sizes - {0}, reverse=True)), guarded=in_blocks or max(counts) > most,
        apart=view.results > 1 and group != view.results * item, masked=False,
    )  # fmt: skip
    met = [window.channels(isa.lanes, v) for v in range(vectors)]
    over = any(each.start + ceil(len(each) / isa.lanes) * isa.lanes > groups * view.terms for each in met)
    rest = view.groups % groups * view.results
    alone = vectors > 1 and rest == isa.lanes  # a full vector, which tiles of one take
    return replace(window, masked=over or (rest > 0 and not alone))


def cycles(view: ForwardNest, spec: ForwardSpec, slab: Sequence[int]) -> float:
    """Return the cycles of all windows of a view whose groups are merged, by slabs of such a size."""
    *outer, last = (parts_of(axis, size) for axis, size in zip(view.axes, slab, strict=True))
    positions = prod(axis.extent for axis in view.axes[:-1])
    rows_of_taps = prod(parts.meetings for parts in outer)
    panels = ceil(view.results / spec.width)
    found = 0.0
    for (count, taps), parts in last.alike:
        rows, each, _ = tiles(count, spec.rows, spec.vectors)
        many = each * parts
        found += many * positions * (constants.WINDOW_CYCLES + constants.WINDOW_ROW_CYCLES * rows * spec.vectors)
        if taps:
            found += many * rows_of_taps * _row_cycles(spec, rows, taps)
    boxes = prod(len(parts) for parts in (*outer, last))
    assert spec.window is not None
    if spec.window.groups == spec.isa.lanes and spec.in_place and panels > 1:
        found *= constants.WINDOW_ALONE
    return found * panels + constants.BOX_CYCLES * boxes


def _row_cycles(spec: ForwardSpec, rows: int, taps: int) -> float:
    """Return the cycles of a row of taps: two multiply-adds or loads each, and a vector spread over its lanes each."""
    window = spec.window
    assert window is not None
    found = 0.0
    for size in window.sizes:
        times, taps = divmod(taps, size)
        products = rows * size * window.terms * spec.vectors
        met = min(window.reach(rows, size), rows * size) * spec.vectors
        held = spec.holds(window, rows, size, spec.vectors)
        of_a_vector = ceil(window.groups * window.terms / spec.vectors / spec.isa.lanes)
        loads = met * of_a_vector + (0 if held else products)
        spread = met * window.terms * of_a_vector if window.results * window.terms > 1 else 0
        found += times * (max(products / 2, loads * constants.LOADS_CYCLES) + spread)
    return found + constants.WINDOW_RUN_CYCLES
