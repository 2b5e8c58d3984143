"""Depthwise weight gradients read where they lie: row after row of dst, all groups of a row, then the next.

A lane is a group of one channel each way. The chains of a block wait in scratch while the other groups have their
turn, so that memory is read as it lies. In the middle of a row all taps exist, and what one position met by a tap the
next one meets by another, which stays in a register; at the edges what an absent tap would meet is neither read nor
added.
"""

from __future__ import annotations

from itertools import product

from convgrad.engines.llvm.arguments import (
    INDEX_BYTES,
    JOIN_BYTES,
    SEGMENT_BYTES,
    TAP_BYTES,
    Arguments,
    columns,
    going,
)
from convgrad.engines.llvm.convert import BYTES, load_masked, stored, widen
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.finish import finish
from convgrad.engines.llvm.join import carry, climb, gather, keep, when_all_ended
from convgrad.engines.llvm.tile import LINE_ROW_BYTES, Met, outer_taps
from convgrad.plan.joins import JOIN
from convgrad.plan.rates import STRIP_PANELS
from convgrad.plan.recipe import F32_BYTES, KernelSpec
from convgrad.plan.schedule import CHUNK
from convgrad.plan.taps import SEGMENT, TAP
from convgrad.plan.tasks import TASK

SCALES = 3  # an address adds an index times 1, 2, 4 or 8
Values = dict[str, Value]


def task(module: Module, spec: KernelSpec) -> None:
    """Emit ``task``: its groups in all chunks, block by block; then the sums of each become output."""
    strip(module, spec)
    carry(module, spec)
    gather(module, spec)
    finish(module, spec)
    f = module.function("task", arguments="ptr", scratch="ptr", task="ptr")
    a, t = Arguments(f), columns(f, f.task, TASK)
    sums = f.at(f.scratch, a.sums_at)
    with f.loop(t["chunks"], chunk=f.at(a.chunks, t["chunk"] * (8 * len(CHUNK)))) as chunk:
        c = columns(f, chunk.chunk, CHUNK)
        index, joins = f.at(a.line_index, c["index"] * INDEX_BYTES), f.at(a.joins, c["join"] * JOIN_BYTES)
        with f.loop(c["blocks"], entry=index, joins=joins, image=c["image"], images=c["images"]) as block:
            with f.when(going(f, a)):
                images = f.least(block.images, a.block_images)
                _block(f, spec, a, t, sums, block.entry, block.joins, block.image, images)
            block.next(
                entry=f.at(block.entry, a.index_step), joins=f.at(block.joins, JOIN_BYTES),
                image=block.image + a.block_step, images=block.images - a.block_step,
            )  # fmt: skip
        chunk.next(chunk=f.at(chunk.chunk, 8 * len(CHUNK)))
    with f.when(f.compare("eq", a.image_parts, 1) & going(f, a)):
        _finish(f, spec, a, t, f.at(sums, a.top), a.sums_step)
    with when_all_ended(f, a, t):
        with f.loop(t["groups"] * t["taps"], sums=sums, kept=f.at(a.kept, t["kept"])) as each:
            f.call("gather", f.arguments, each.sums, each.kept)
            each.next(sums=f.at(each.sums, a.gather_step), kept=f.at(each.kept, a.kept_step))
        _finish(f, spec, a, t, f.at(sums, a.gather_top), a.gather_step)
    f.done()


def _block(
    f: Function, spec: KernelSpec, a: Arguments, t: Values, sums: Value, entry: Value, joins: Value, first: Value,
    images: Value,
) -> None:  # fmt: skip
    """One block of all groups of a task: its chains, then the carries that the tree of sums has after it.

    Under several tiles of taps, few panels of groups at a time: their rows are met again in the first cache.
    """
    first_line, lines = f.load("i64", entry), f.load("i64", entry, 8)
    panel_sums = t["taps"] * a.sums_step
    one_tile = f.compare("eq", t["taps"], 1)
    together = f.select(one_tile, t["groups"], f.value(STRIP_PANELS))
    pieces = f.select(one_tile, f.value(1), (t["groups"] + (STRIP_PANELS - 1)) >> (STRIP_PANELS.bit_length() - 1))
    with f.loop(images) as image:
        x, y = (f.at(start, (first + image.index) * n) for start, n in ((a.rows, a.row_n), (a.lanes, a.lane_n)))
        with f.loop(lines, line=f.at(a.lines, first_line * LINE_ROW_BYTES)) as line:
            begins = f.compare("eq", image.index + line.index, 0)
            with f.loop(pieces) as piece:
                begin = piece.index * together
                panels, there = f.least(t["groups"] - begin, together), f.at(sums, begin * panel_sums)
                with f.loop(t["taps"], sums=there, tap=f.at(a.taps, t["tap"] * TAP_BYTES)) as tap:
                    k = columns(f, tap.tap, TAP)
                    shifts = f.at(a.shifts, k["outer"] * (8 * spec.tile.outer_taps))
                    segments = f.at(a.segments, k["whole"] * SEGMENT_BYTES)
                    f.call("strip", f.arguments, tap.sums, panel_sums, begins, f.at(x, k["x"]), y,
                           line.line, shifts, segments, t["group"] + begin, panels)  # fmt: skip
                    tap.next(sums=f.at(tap.sums, a.sums_step), tap=f.at(tap.tap, TAP_BYTES))
            line.next(line=f.at(line.line, LINE_ROW_BYTES))
    j = columns(f, joins, JOIN)
    with f.loop(t["groups"] * t["taps"], sums=sums, kept=f.at(a.kept, t["kept"])) as each:
        keep(f, spec, j["unit"], climb(f, spec, each.sums, j["firsts"], j["carries"] + 1), each.kept)
        each.next(sums=f.at(each.sums, a.sums_step), kept=f.at(each.kept, a.kept_step))


def _finish(f: Function, spec: KernelSpec, a: Arguments, t: Values, sums: Value, sums_step: Value) -> None:
    """The last panel of groups overlaps the one before: what that one has is not written again."""
    outs = f.at(a.outs, t["tap"] * (8 * spec.tile.taps))
    with f.loop(t["groups"], sums=sums) as panel:
        group = (t["group"] + panel.index) * spec.isa.lanes
        again = group - _first(f, spec, a, group)
        out, left = f.at(a.out, group * a.out_g), f.least(a.group_count - group, spec.isa.lanes)
        f.call("finish", f.at(panel.sums, again * F32_BYTES), sums_step, outs, t["taps"], out, 0, 0, left, 0, 0,
               a.out_g, a.taps_together, a.accumulate)  # fmt: skip
        panel.next(sums=f.at(panel.sums, t["taps"] * sums_step))


def _first(f: Function, spec: KernelSpec, a: Arguments, group: Value) -> Value:
    """Return the first group of the panel that begins with a group, or earlier rather than run over."""
    return f.least(group, a.group_count - spec.isa.lanes)


def strip(module: Module, spec: KernelSpec) -> None:
    """Emit ``strip``: a line under a tile of taps, group panel by panel: chain[t] = fma(x[t], y, chain[t]).

    A line is a stretch of dst positions in a row. Its segments are where all inner taps of the tile exist, then where
    each of them does. An outer tap that does not exist meets some other row, and that is dropped.
    """
    f = module.function(
        "strip", arguments="ptr", chain="ptr", chain_step="i64", begins="i1", x="ptr", y="ptr", line="ptr",
        shifts="ptr", segments="ptr", group="i64", panels="i64",
    )  # fmt: skip
    a, kind = Arguments(f), f"<{spec.isa.lanes} x float>"
    steps = {"x": a.row_step, "y": a.lane_step, "tap": a.tap_step, "x ahead": a.row_ahead, "y ahead": a.lane_ahead}
    met = Met(f, f.line, outer_taps(f, spec, a.places, f.shifts))
    first, end = met.first, met.end
    low, high = f.load("i64", f.segments), f.load("i64", f.segments, 8)
    left = f.least(f.most(low, first), end)
    right = f.least(f.most(high, left), end)
    begin = {f"x{u}": f.at(f.at(f.x, offset), first * steps["x"]) for u, offset in enumerate(met.places)}
    begin["y"] = f.at(f.at(f.y, met.fixed), first * steps["y"])
    with f.loop(f.panels, chain=f.chain) as panel:
        group = _first(f, spec, a, (f.group + panel.index) * spec.isa.lanes)
        here = {name: f.at(place, group * BYTES[spec.operand]) for name, place in begin.items()}
        for t in range(spec.tile.taps):
            before = f.load(kind, panel.chain, t * spec.tap_bytes)
            here[f"sum{t}"] = f.select(f.begins, f.zeros(kind), before)
        here = _edge(f, spec, steps, first, left - first, here)
        here = _middle(f, spec, steps, right - left, here)
        here = _edge(f, spec, steps, right, end - right, here)
        for u, missing in enumerate(met.missing):
            taps = range(u * spec.tile.inner_taps, (u + 1) * spec.tile.inner_taps)
            with f.when(missing), f.when(f.begins):
                for t in taps:
                    f.store(f.zeros(kind), panel.chain, t * spec.tap_bytes)
            with f.otherwise():
                for t in taps:
                    f.store(here[f"sum{t}"], panel.chain, t * spec.tap_bytes)
        panel.next(chain=f.at(panel.chain, f.chain_step))
    f.done()


def _middle(f: Function, spec: KernelSpec, steps: Values, count: Value, here: Values) -> Values:
    """Positions where all taps exist; what the next one meets too is held."""
    tile = spec.tile
    held = [(u, k) for u in range(tile.outer_taps) for k in range(tile.inner_taps - spec.slide)] if spec.slide else []
    with f.loop(f.least(count, 1), **here) as some:  # nothing is read where there is no position
        kept = {f"held{u}_{k}": _read(f, spec, some.carried[f"x{u}"], steps["tap"] * k) for u, k in held}
        with f.loop(count, **some.carried, **kept) as at:
            y = _read(f, spec, at.y, 0)
            newest = at.carried[f"x{tile.outer_taps - 1}"]
            f.prefetch(f.at(at.y, steps["y ahead"]), locality=2)
            f.prefetch(f.at(newest, steps["x ahead"]), locality=2)
            shifts = _shifts(f, spec, steps["tap"])
            met = {}
            for u, k in product(range(tile.outer_taps), range(tile.inner_taps)):
                known = at.carried.get(f"held{u}_{k}")
                met[u, k] = _read(f, spec, at.carried[f"x{u}"], shifts[k]) if known is None else known
            for t, place in enumerate(met):
                at.next(**{f"sum{t}": f.fma(met[place], y, at.carried[f"sum{t}"])})
            at.next(**_moved(f, steps, at.carried), **{f"held{u}_{k}": met[u, k + spec.slide] for u, k in held})
        some.next(**{name: at.carried[name] for name in here})
    return dict(some.carried)


def _edge(f: Function, spec: KernelSpec, steps: Values, first: Value, count: Value, here: Values) -> Values:
    """Positions where some inner taps are absent, by their segments."""
    tile, lanes = spec.tile, spec.isa.lanes
    with f.loop(count, **here) as at:
        position, y = first + at.index, _read(f, spec, at.y, 0)
        inner = []
        for k in range(tile.inner_taps):
            begin, end = (f.load("i64", f.segments, 8 * (len(SEGMENT) * (1 + k) + word)) for word in (0, 1))
            inner.append(f.splat(f.compare("ult", position - begin, end - begin), lanes))
        for t, (u, k) in enumerate(product(range(tile.outer_taps), range(tile.inner_taps))):
            there = inner[k]
            place = f.at(at.carried[f"x{u}"], steps["tap"] * k)
            x = widen(f, spec.operand, load_masked(f, spec.operand, lanes, place, there))
            total = f.fma(x, y, at.carried[f"sum{t}"])
            at.next(**{f"sum{t}": f.select(there, total, at.carried[f"sum{t}"])})
        at.next(**_moved(f, steps, at.carried))
    return dict(at.carried)


def _read(f: Function, spec: KernelSpec, pointer: Value, offset: Value | int) -> Value:
    return widen(f, spec.operand, f.load(stored(spec.operand, spec.isa.lanes), f.at(pointer, offset)))


def _shifts(f: Function, spec: KernelSpec, step: Value) -> list[Value | int]:
    """Return the bytes to each of the neighbouring taps, for addresses: few multiples of the step, scaled.

    They are hidden from LLVM, which would keep a pointer for every tap and count all of them up.
    """
    multiples: dict[int, Value] = {}
    shifts: list[Value | int] = [0]
    for k in range(1, spec.tile.inner_taps):
        scale = min((k & -k).bit_length() - 1, SCALES)
        if spec.slide and k < spec.tile.inner_taps - spec.slide:
            shifts.append(0)  # held
            continue
        if k >> scale not in multiples:
            multiples[k >> scale] = f.hidden(step * (k >> scale))
        shifts.append(multiples[k >> scale] * (1 << scale))
    return shifts


def _moved(f: Function, steps: Values, here: Values) -> Values:
    """Return the pointers at the next position."""
    return {name: f.at(value, steps[name[0]]) for name, value in here.items() if name[0] in ("x", "y")}
