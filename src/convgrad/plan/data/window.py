"""Windows: forwards and data gradients of small groups, whose lanes are channels of several; and what they cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, gcd, prod

from convgrad.plan import rates
from convgrad.plan.data.cuts import parts_of
from convgrad.plan.data.heights import tiles
from convgrad.plan.data.recipe import DataSpec, Window
from convgrad.plan.data.sides import lies
from convgrad.plan.data.view import Gather
from convgrad.plan.machine import Isa
from convgrad.plan.recipe import ITEMS, NEITHER
from convgrad.plan.stretches import Part
from convgrad.spec.order import BLOCK
from convgrad.spec.problem import Problem

WINDOW_WIDTHS = (1, 2)  # vectors of a panel


def windows(problem: Problem, view: Gather, isa: Isa) -> Iterator[DataSpec]:
    """Yield the kernels whose lanes are channels of several groups, where these are small enough."""
    groups = min(isa.lanes // view.results, view.groups)
    parts = [part for part in view.axes[-1].uncut if part.taps]
    if view.groups == 1 or groups == 0 or groups * view.terms > rates.WINDOW_VECTORS * isa.lanes or not parts:
        return
    if parts[0].taps.step * view.terms > BLOCK:
        return  # there may be blocks that none of a row's taps is in
    names = (problem.operand_format.name, problem.output_format.name)
    data, weights, out = lies(view.with_merged_groups, *names)
    whole = groups * max(view.results, view.terms) % isa.lanes == 0
    for vectors in WINDOW_WIDTHS:
        panel = vectors * groups
        if vectors > 1 and (groups * view.results < isa.lanes or panel > view.groups):
            continue
        window = _window(view, groups, parts, masked=not whole or view.groups % panel > 0)
        held, room = max(window.sizes) * view.terms, isa.registers // vectors
        most = min(rates.WINDOW_ROWS, room - rates.WINDOW_OTHERS // vectors - (held if held <= room // 2 else 0))
        narrow = vectors > 1 and 0 < view.groups % panel <= groups
        for rows in range(most, max(1, most // 2) - 1, -1):
            yield DataSpec(
                isa, *names, rows, vectors, narrow, len(view.axes), data, NEITHER if window.apart else weights, out,
                data == ITEMS, window=window,
            )  # fmt: skip


def _window(view: Gather, groups: int, parts: Sequence[Part], masked: bool) -> Window:
    """Return the numbers of windows of so many groups a vector, under phases of the last axis."""
    one, most = parts[0], max(1, rates.WINDOW_WEIGHTS // view.terms)
    unit = gcd(one.by_position, one.by_tap)
    counts, in_blocks = {len(part.taps) for part in parts}, view.order.blocks > 1
    sizes = {min(n, most) for n in counts} | {n % most for n in counts if n > most} | ({1} if in_blocks else set())
    group, item, _ = view.weights
    return Window(
        view.results, view.terms, groups, one.by_position // unit, one.by_tap // unit, one.taps.step,
        tuple(sorted(sizes - {0}, reverse=True)), guarded=in_blocks or max(counts) > most,
        apart=view.results > 1 and group != view.results * item, masked=masked,
    )  # fmt: skip


def cycles(view: Gather, spec: DataSpec, slab: Sequence[int]) -> float:
    """Return the cycles of all windows of a view whose groups are merged, by slabs of such a size."""
    *outer, last = (parts_of(axis, size) for axis, size in zip(view.axes, slab, strict=True))
    positions = prod(axis.extent for axis in view.axes[:-1])
    rows_of_taps = prod(sum(len(part.positions) * len(part.taps) for part in parts) for parts in outer)
    panels = ceil(view.results / spec.width)
    found = 0.0
    for part in last:
        rows, many, _ = tiles(len(part.positions), spec.rows, spec.vectors)
        found += many * positions * (rates.WINDOW_CYCLES + rates.WINDOW_ROW_CYCLES * rows * spec.vectors)
        if part.taps:
            found += many * rows_of_taps * _row_cycles(spec, rows, len(part.taps))
    boxes = prod(len(parts) for parts in (*outer, last))
    return found * panels + rates.BOX_CYCLES * boxes


def _row_cycles(spec: DataSpec, rows: int, taps: int) -> float:
    """Return the cycles of a row of taps: two multiply-adds or loads each, a vector spread over its lanes each."""
    window = spec.window
    assert window is not None
    found = 0.0
    for size in window.sizes:
        times, taps = divmod(taps, size)
        products = rows * size * window.terms * spec.vectors
        met = min(window.reach(rows, size), rows * size) * spec.vectors
        held = (size * window.terms + rows) * spec.vectors + rates.WINDOW_OTHERS <= spec.isa.registers
        loads = met * ceil(window.groups * window.terms / spec.isa.lanes) + (0 if held else products)
        spread = met * window.terms if window.results * window.terms > 1 else 0
        found += times * max(products / 2, loads / 2, spread)
    return found + rates.WINDOW_RUN_CYCLES
