"""The compiled driver: claims tasks and walks chunks, panels, taps and blocks by the tables of a schedule."""

from __future__ import annotations

from collections.abc import Mapping

from convgrad.engines.llvm import strips
from convgrad.engines.llvm.arguments import (
    ENTRY_BYTES,
    INDEX_BYTES,
    JOIN_BYTES,
    SEGMENT_BYTES,
    TAP_BYTES,
    Arguments,
    bit,
    columns,
    going,
)
from convgrad.engines.llvm.emit import Function, Loop, Module, Value
from convgrad.engines.llvm.finish import finish
from convgrad.engines.llvm.join import carry, climb, gather, keep, when_all_ended
from convgrad.engines.llvm.pack import clear, pack, pack_groups
from convgrad.engines.llvm.tile import LINE_ROW_BYTES, tile
from convgrad.plan.joins import JOIN
from convgrad.plan.recipe import F32_BYTES, STRIP, KernelSpec
from convgrad.plan.schedule import CHUNK
from convgrad.plan.taps import TAP
from convgrad.plan.tasks import TASK


def weights_module(spec: KernelSpec) -> str:
    """Return the IR of ``driver(arguments, scratch)`` for weight gradients, and of all it calls."""
    module = Module()
    if spec.body == STRIP:
        strips.task(module, spec)
    else:
        _packed_task(module, spec)
    _driver(module, spec)
    return str(module)


def _packed_task(module: Module, spec: KernelSpec) -> None:
    """Emit ``task`` and what it calls, where operands are packed before they are multiplied."""
    if spec.groups_in_lanes:
        pack_groups(module, spec, "pack_rows", spec.rows.lies, spec.rows.items)
        pack_groups(module, spec, "pack_lanes", spec.lanes.lies, spec.lanes.items)
    else:
        if not spec.rows.in_place:
            pack(module, spec, "pack_rows", spec.rows.lies, spec.tile.rows)
        if not spec.lanes.in_place:
            pack(module, spec, "pack_lanes", spec.lanes.lies, spec.width)
    if spec.tile.inner_taps > 1:
        clear(module, spec)
    for vectors in tile_widths(spec):
        tile(module, spec, vectors)
    carry(module, spec)
    gather(module, spec)
    finish(module, spec)
    _task(module, spec)


def tile_widths(spec: KernelSpec) -> list[int]:
    """Return the tiles' vectors, the full ones first: panels of channels at the end may be narrower.

    >>> from convgrad.plan.machine import ISAS
    >>> from convgrad.plan.recipe import ITEMS, TILE, KernelSpec, Read, Tile
    >>> read = Read(ITEMS, 8)
    >>> [tile_widths(KernelSpec(ISAS["avx2"], "f32", "f32", TILE, Tile(1, v), read, read)) for v in (4, 3)]
    [[4, 2, 1], [3, 2, 1]]
    """
    vectors = spec.tile.vectors
    if spec.groups_in_lanes:
        return [vectors]
    return [vectors, *(1 << i for i in reversed(range((vectors - 1).bit_length())))]


def _driver(module: Module, spec: KernelSpec) -> None:
    """Claim tasks until none is left; ``active`` counts the threads that are at it."""
    f = module.function("driver", public=True, arguments="ptr", scratch="ptr")
    a = Arguments(f)
    f.op("i64", f"atomicrmw add {a.active}, i64 1 seq_cst")
    saved = f.op("ptr", "alloca i64, align 8")
    enter, leave = _FLOATING_POINT[spec.isa.architecture]
    enter(f, saved)
    with f.loop(a.task_count):
        task = f.op("i64", f"atomicrmw add {a.counter}, i64 1 monotonic")
        with f.when(task < a.task_count):
            f.call("task", f.arguments, f.scratch, f.at(a.tasks, task * (8 * len(TASK))))
    leave(f, saved)
    f.op("i64", f"atomicrmw sub {a.active}, i64 1 seq_cst")
    f.done()


def _task(module: Module, spec: KernelSpec) -> None:
    """Do a task chunk by chunk, group by group: pack a chunk, then multiply it, one panel of lanes after the other.

    Where lanes hold groups, all groups of a task are packed first: what lies together is read together.
    """
    f = module.function("task", arguments="ptr", scratch="ptr", task="ptr")
    a, t = Arguments(f), columns(f, f.task, TASK)
    with f.loop(t["chunks"], chunk=f.at(a.chunks, t["chunk"] * (8 * len(CHUNK)))) as chunk:
        with f.when(going(f, a)):
            c = columns(f, chunk.chunk, CHUNK)
            if spec.groups_in_lanes:
                _pack_groups(f, spec, a, t, c)
            with f.loop(t["groups"], sums=f.at(f.scratch, a.sums_at)) as group:
                g = {**t, "group": t["group"] + group.index}
                if spec.groups_in_lanes:
                    x = f.at(f.scratch, a.row_at + group.index * a.row_panel)
                    y = f.at(f.scratch, a.lane_at + group.index * a.lane_panel)
                else:
                    x, y = _pack(f, spec, a, g, c)
                with f.loop(t["lanes"], sums=group.sums) as lane:
                    with f.when(going(f, a)):
                        _lane_panel(f, spec, a, g, c, t["lane"] + lane.index, group.index, lane, x, y)
                    lane.next(sums=f.at(lane.sums, t["rows"] * t["taps"] * a.panel_sums))
                group.next(sums=lane.sums)
        chunk.next(chunk=f.at(chunk.chunk, 8 * len(CHUNK)))
    with when_all_ended(f, a, t):
        _gather(f, spec, a, t)
    f.done()


def _gather(f: Function, spec: KernelSpec, a: Arguments, t: Mapping[str, Value]) -> None:
    """Join the units' sums of a part of the weights, which become output."""
    sums = f.at(f.scratch, a.sums_at)
    with f.loop(t["groups"], kept=f.at(a.kept, t["kept"])) as group:
        g = {**t, "group": t["group"] + group.index}
        with f.loop(t["lanes"], kept=group.kept) as lane:
            with f.loop(t["rows"], kept=lane.kept) as row:
                with f.loop(t["taps"], kept=row.kept, sums=sums) as tap:
                    f.call("gather", f.arguments, tap.sums, tap.kept)
                    tap.next(kept=f.at(tap.kept, a.kept_step), sums=f.at(tap.sums, a.gather_step))
                there = f.at(sums, a.gather_top)
                _finish(f, spec, a, g, t["lane"] + lane.index, t["row"] + row.index, there, a.gather_step)
                row.next(kept=tap.kept)
            lane.next(kept=row.kept)
        group.next(kept=lane.kept)


def _groups_left(f: Function, spec: KernelSpec, a: Arguments, t: Mapping[str, Value]) -> Value:
    """Return how many lanes hold a group in a task."""
    return f.least(a.group_count - t["group"] * spec.isa.lanes, spec.isa.lanes)


def _first_row(f: Function, spec: KernelSpec, a: Arguments, panel: Value) -> Value:
    """Return the first channel of a row panel; the last panel overlaps the one before rather than run over."""
    return f.least(panel * spec.tile.rows, a.row_channels - spec.tile.rows)


def _first_lane(f: Function, spec: KernelSpec, a: Arguments, panel: Value) -> Value:
    """Return the first channel of a lane panel: where lanes hold groups, the last one overlaps the one before too."""
    first = panel * spec.lane_items
    return f.least(first, a.lane_channels - spec.lane_items) if spec.groups_in_lanes else first


def _pack(
    f: Function, spec: KernelSpec, a: Arguments, t: Mapping[str, Value], c: Mapping[str, Value]
) -> tuple[Value, Value]:
    """Pack a chunk of one group, and return where its rows and its lanes lie."""
    x = f.at(f.at(a.rows, t["group"] * a.row_group), c["image"] * a.row_n)
    if not spec.rows.in_place:
        x = _pack_rows(f, spec, a, t, c, x)
    y = f.at(f.at(a.lanes, t["group"] * a.lane_group), c["image"] * a.lane_n)
    if not spec.lanes.in_place:
        y = _pack_lanes(f, spec, a, t, c, y)
    return x, y


def _pack_groups(f: Function, spec: KernelSpec, a: Arguments, t: Mapping[str, Value], c: Mapping[str, Value]) -> None:
    """Pack a chunk of all groups of a task, rows and lanes."""
    groups = f.least(a.group_count - t["group"] * spec.isa.lanes, t["groups"] * spec.isa.lanes)
    for side, moves in (("row", spec.rows.moves), ("lane", spec.lanes.moves)):
        n, step, apart, channel, from_, to_ = (
            getattr(a, f"{side}_{word}") for word in ("n", "i", "g", "c", "group", "panel")
        )
        entries = f.at(getattr(a, f"{side}_entries"), c[f"{side}_entry"] * ENTRY_BYTES)
        source = f.at(f.at(getattr(a, f"{side}s"), t["group"] * from_), c["image"] * n)
        size = spec.term_bytes(spec.rows) if side == "row" else spec.term_bytes(spec.lanes)
        with f.loop(c["images"], to=f.at(f.scratch, getattr(a, f"{side}_at")), source=source) as image:
            with f.loop(c[f"{side}_entries"], to=image.to, entry=entries) as entry:
                where, count = f.at(image.source, f.load("i64", entry.entry)), f.load("i64", entry.entry, 8)
                rest = (where, count, step, apart, channel, groups, from_, to_)
                to = _packed(f, spec, a, entry.to, count * size, moves, f"pack_{side}s", rest, (t["groups"], to_))
                entry.next(to=to, entry=f.at(entry.entry, ENTRY_BYTES))
            image.next(to=f.at(image.to, getattr(a, f"{side}_image")), source=f.at(image.source, n))


def _pack_rows(
    f: Function, spec: KernelSpec, a: Arguments, t: Mapping[str, Value], c: Mapping[str, Value], x: Value
) -> Value:
    """Pack a chunk's rows, panel by panel, and return where they lie."""
    begin, entries = f.at(f.scratch, a.row_at), f.at(a.row_entries, c["row_entry"] * ENTRY_BYTES)
    with f.loop(t["rows"], to=begin) as panel:
        source = f.at(x, _first_row(f, spec, a, t["row"] + panel.index) * a.row_c)
        with f.loop(c["images"], to=panel.to, source=source) as image:
            with f.loop(c["row_entries"], to=image.to, entry=entries) as entry:
                where, count = f.at(image.source, f.load("i64", entry.entry)), f.load("i64", entry.entry, 8)
                to = _packed(f, spec, a, entry.to, count * spec.term_bytes(spec.rows), spec.rows.moves, "pack_rows",
                             (where, count, a.row_i, a.row_c, spec.tile.rows))  # fmt: skip
                entry.next(to=to, entry=f.at(entry.entry, ENTRY_BYTES))
            image.next(to=f.at(image.to, a.row_image), source=f.at(image.source, a.row_n))
        panel.next(to=f.at(panel.to, a.row_panel))
    return begin


def _pack_lanes(
    f: Function, spec: KernelSpec, a: Arguments, t: Mapping[str, Value], c: Mapping[str, Value], y: Value
) -> Value:
    """Pack a chunk's lanes, panel by panel, and return where they lie."""
    begin, entries = f.at(f.scratch, a.lane_at), f.at(a.lane_entries, c["lane_entry"] * ENTRY_BYTES)
    with f.loop(t["lanes"], to=begin) as panel:
        first = _first_lane(f, spec, a, t["lane"] + panel.index)
        channels = f.least(a.lane_channels - first, spec.width)
        with f.loop(c["images"], to=panel.to, source=f.at(y, first * a.lane_c)) as image:
            with f.loop(c["lane_entries"], to=image.to, entry=entries) as entry:
                where, count = f.at(image.source, f.load("i64", entry.entry)), f.load("i64", entry.entry, 8)
                to = _packed(f, spec, a, entry.to, count * spec.term_bytes(spec.lanes), spec.lanes.moves, "pack_lanes",
                             (where, count, a.lane_i, a.lane_c, channels))  # fmt: skip
                entry.next(to=to, entry=f.at(entry.entry, ENTRY_BYTES))
            image.next(to=f.at(image.to, a.lane_image), source=f.at(image.source, a.lane_n))
        panel.next(to=f.at(panel.to, a.lane_panel))
    return begin


def _packed(
    f: Function, spec: KernelSpec, a: Arguments, to: Value, size: Value, moves: bool, name: str,
    arguments: tuple[Value | int, ...], panels: tuple[Value | int, Value | int] = (1, 0),
) -> Value:  # fmt: skip
    """Pack one entry, of one panel or some a step apart, and return where the next goes.

    For tiles of several taps a row of src has zeros on both sides: their product with what is finite is what an absent
    tap contributes.
    """
    if spec.tile.inner_taps == 1 or not moves:
        f.call(name, to, *arguments)
        return f.at(to, size)
    f.call("clear", to, a.src_left, *panels)
    inside = f.at(to, a.src_left)
    f.call(name, inside, *arguments)
    behind = f.at(inside, size)
    f.call("clear", behind, a.src_right, *panels)
    return f.at(behind, a.src_right)


def _lane_panel(
    f: Function, spec: KernelSpec, a: Arguments, t: Mapping[str, Value], c: Mapping[str, Value],
    panel: Value, group: Value, lane: Loop, x: Value, y: Value,
) -> None:  # fmt: skip
    """All rows and taps of a task under one panel of lanes; in the last chunk their sums are finished."""
    first_tap, left = f.at(a.taps, t["tap"] * TAP_BYTES), _lanes_left(f, spec, a, t, panel)
    if spec.groups_in_lanes:
        y = f.at(y, _first_lane(f, spec, a, panel) * (spec.isa.lanes * F32_BYTES))
    elif spec.lanes.in_place:
        y = f.at(y, _first_lane(f, spec, a, panel) * F32_BYTES)
    else:
        y = f.at(y, lane.index * a.lane_panel)
    with f.loop(t["rows"], sums=lane.sums) as row:
        first_row = _first_row(f, spec, a, t["row"] + row.index)
        if spec.groups_in_lanes:
            at = first_row * (spec.isa.lanes * F32_BYTES)
        else:
            at = first_row * F32_BYTES if spec.rows.in_place else row.index * a.row_panel
        with f.when(going(f, a)), f.loop(t["taps"], sums=row.sums, tap=first_tap) as tap:
            number = ((group * t["lanes"] + lane.index) * t["rows"] + row.index) * t["taps"] + tap.index
            kept = f.at(f.at(a.kept, t["kept"]), number * a.kept_step)
            _blocks(f, spec, a, c, tap.tap, tap.sums, f.at(x, at), y, left, kept)
            tap.next(sums=f.at(tap.sums, a.sums_step), tap=f.at(tap.tap, TAP_BYTES))
        with f.when(f.compare("ne", c["last"], 0)):
            _finish(f, spec, a, t, panel, t["row"] + row.index, f.at(row.sums, a.top), a.sums_step)
        row.next(sums=f.at(row.sums, t["taps"] * a.panel_sums))


def _lanes_left(f: Function, spec: KernelSpec, a: Arguments, t: Mapping[str, Value], panel: Value) -> Value:
    """Return how many lanes of a panel's tile are output."""
    if spec.groups_in_lanes:
        return _groups_left(f, spec, a, t)
    return f.least(a.lane_channels - _first_lane(f, spec, a, panel), spec.width)


def _finish(
    f: Function, spec: KernelSpec, a: Arguments, t: Mapping[str, Value], panel: Value, row: Value, sums: Value,
    sums_step: Value,
) -> None:  # fmt: skip
    """Write what one panel of lanes and one of rows have under a task's taps."""
    first_lane, first_row = _first_lane(f, spec, a, panel), _first_row(f, spec, a, row)
    skip_row, skip_lane = row * spec.tile.rows - first_row, panel * spec.lane_items - first_lane
    lane_step = a.out_g if spec.groups_in_lanes else a.lane_out
    vector_step = a.lane_out if spec.groups_in_lanes else a.lane_out * spec.isa.lanes
    outs = f.at(a.outs, t["tap"] * (8 * spec.tile.taps))
    out = f.at(f.at(f.at(a.out, t["group"] * a.out_group), first_lane * a.lane_out), first_row * a.row_out)
    f.call("finish", sums, sums_step, outs, t["taps"], out, skip_row, skip_lane, _lanes_left(f, spec, a, t, panel),
           a.row_out, vector_step, lane_step, a.taps_together, a.accumulate)  # fmt: skip


def _blocks(
    f: Function, spec: KernelSpec, a: Arguments, c: Mapping[str, Value], tap: Value, sums: Value, x: Value, y: Value,
    left: Value, kept: Value,
) -> None:  # fmt: skip
    """All blocks of a chunk under one tap: the tile, then the carries that the tree of sums has after each block."""
    k = columns(f, tap, TAP)
    index = f.at(a.line_index, c["index"] * INDEX_BYTES)
    shifts = f.at(a.shifts, k["outer"] * (8 * spec.tile.outer_taps))
    joins = f.at(a.joins, c["join"] * JOIN_BYTES)
    x, y = f.at(x, k["x"]), f.at(y, k["y"])
    whole, segments = (f.at(a.segments, k[name] * SEGMENT_BYTES) for name in ("whole", "segment"))
    with f.loop(c["blocks"], entry=index, joins=joins, x=x, y=y, images=c["images"]) as block:
        lines = f.at(a.lines, f.load("i64", block.entry) * LINE_ROW_BYTES)
        line_count = f.load("i64", block.entry, 8)
        j = columns(f, block.joins, JOIN)
        firsts, carries = j["firsts"], j["carries"]
        images = f.least(block.images, a.block_images)
        _by_width(f, spec, left, (sums, bit(f, firsts), block.x, block.y, images, a.row_image, a.lane_image, lines,
                                  line_count, a.places, shifts, a.mask_bytes, a.swapped, whole,
                                  segments, k["segments"], a.masks, a.row_step, a.lane_step,
                                  a.tap_step, a.row_next))  # fmt: skip
        keep(f, spec, j["unit"], climb(f, spec, sums, firsts >> 1, carries), kept)
        block.next(
            entry=f.at(block.entry, a.index_step), joins=f.at(block.joins, JOIN_BYTES),
            x=f.at(block.x, a.block_step * a.row_image), y=f.at(block.y, a.block_step * a.lane_image),
            images=block.images - a.block_step,
        )  # fmt: skip


def _by_width(f: Function, spec: KernelSpec, left: Value, arguments: tuple[Value, ...]) -> None:
    """Call the narrowest tile that covers the lanes left."""
    if spec.groups_in_lanes:
        f.call(f"tile{spec.tile.vectors}", *arguments)
        return

    def narrower(widths: list[int]) -> None:
        if len(widths) == 1:
            f.call(f"tile{widths[0]}", *arguments)
            return
        with f.when(f.compare("sgt", left, widths[1] * spec.isa.lanes)):
            f.call(f"tile{widths[0]}", *arguments)
        with f.otherwise():
            narrower(widths[1:])

    narrower(tile_widths(spec))


# -- the floating-point control register ---------------------------------------------------------------------------
# Wheels built with fast-math set flush-to-zero for their process: kernels run with the default set, and put it back.


def _enter_x86(f: Function, saved: Value) -> None:
    f.intrinsic("void", "llvm.x86.sse.stmxcsr", saved)
    ours = f.op("ptr", "alloca i32, align 4")
    f.say(f"store i32 {0x1F80}, {ours}")
    f.intrinsic("void", "llvm.x86.sse.ldmxcsr", ours)


def _leave_x86(f: Function, saved: Value) -> None:
    f.intrinsic("void", "llvm.x86.sse.ldmxcsr", saved)


def _enter_aarch64(f: Function, saved: Value) -> None:
    f.store(f.intrinsic("i64", "llvm.aarch64.get.fpcr"), saved)
    f.intrinsic("void", "llvm.aarch64.set.fpcr", f.value(0))


def _leave_aarch64(f: Function, saved: Value) -> None:
    f.intrinsic("void", "llvm.aarch64.set.fpcr", f.load("i64", saved))


_FLOATING_POINT = {"x86_64": (_enter_x86, _leave_x86), "aarch64": (_enter_aarch64, _leave_aarch64)}
