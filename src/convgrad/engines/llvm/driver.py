"""The compiled driver: claims tasks and walks chunks, panels, taps and blocks by the tables of a schedule."""

from __future__ import annotations

from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.finish import TAP_BYTES, finish
from convgrad.engines.llvm.pack import pack
from convgrad.engines.llvm.tile import F32_BYTES, carry, tile
from convgrad.plan.recipe import IN_PLACE, KernelSpec
from convgrad.plan.schedule import FIELDS, TABLES

_FIELD = {name: 8 * at for at, name in enumerate(FIELDS)}


def weights_module(spec: KernelSpec) -> str:
    """Return the IR of ``driver(arguments, scratch)`` for dense weight gradients, and of all it calls."""
    module = Module()
    if spec.row_layout != IN_PLACE:
        pack(module, spec, "pack_rows", spec.row_layout, spec.tile.rows)
    if spec.lane_layout != IN_PLACE:
        pack(module, spec, "pack_lanes", spec.lane_layout, spec.width)
    for vectors in tile_widths(spec):
        tile(module, spec, vectors)
    carry(module, spec)
    finish(module, spec)
    _task(module, spec)
    _driver(module, spec)
    return str(module)


def tile_widths(spec: KernelSpec) -> list[int]:
    """Return the tiles' vectors, the full ones first: panels at the end may be narrower.

    >>> [[1 << i for i in reversed(range(v.bit_length()))] for v in (4, 2)]
    [[4, 2, 1], [2, 1]]
    """
    return [1 << i for i in reversed(range(spec.tile.vectors.bit_length()))]


class _Arguments:
    """The arguments of the driver by name; each is loaded where it is used."""

    def __init__(self, f: Function) -> None:
        self.f = f

    def __getattr__(self, name: str) -> Value:
        pointer = name in ("counter", "stop", "rows", "lanes", "out", *TABLES)
        return self.f.load("ptr" if pointer else "i64", self.f.arguments, _FIELD[name])


def _driver(module: Module, spec: KernelSpec) -> None:
    f = module.function("driver", public=True, arguments="ptr", scratch="ptr")
    a = _Arguments(f)
    saved = f.op("ptr", "alloca i64, align 8")
    enter, leave = _FLOATING_POINT[spec.isa.architecture]
    enter(f, saved)
    with f.loop(a.task_count):
        task = f.op("i64", f"atomicrmw add {a.counter}, i64 1 monotonic")
        with f.when(task < a.task_count):
            f.call("task", f.arguments, f.scratch, f.at(a.tasks, task * 56))
    leave(f, saved)
    f.done()


def _task(module: Module, spec: KernelSpec) -> None:
    """A task is a group, ranges of row panels, lane panels and taps; it is done chunk by chunk."""
    f = module.function("task", arguments="ptr", scratch="ptr", task="ptr")
    a = _Arguments(f)
    group, row0, rows, lane0, lanes, tap0, taps = (f.load("i64", f.task, 8 * i) for i in range(7))
    x = f.at(a.rows, group * a.row_group)
    y = f.at(a.lanes, group * a.lane_group)
    out = f.at(a.out, group * a.out_group)
    with f.loop(a.chunk_count, chunk=a.chunks) as chunk:
        with f.when(_going(f, a)):
            _chunk(f, spec, a, chunk.chunk, x, y, out, row0, rows, lane0, lanes, tap0, taps)
        chunk.next(chunk=f.at(chunk.chunk, 8 * len(CHUNK)))
    f.done()


def _going(f: Function, a: _Arguments) -> Value:
    """Tell whether nobody has raised the stop flag: a call that is interrupted ends within milliseconds."""
    return f.op("i1", f"icmp eq {f.op('i32', f'load atomic i32, {a.stop} monotonic, align 4')}, 0")


CHUNK = ("image", "images", "blocks", "join", "index", "row_entry", "row_entries", "lane_entry", "lane_entries", "last")


def _chunk(
    f: Function, spec: KernelSpec, a: _Arguments, chunk: Value, x: Value, y: Value, out: Value,
    row0: Value, rows: Value, lane0: Value, lanes: Value, tap0: Value, taps: Value,
) -> None:  # fmt: skip
    c = {name: f.load("i64", chunk, 8 * i) for i, name in enumerate(CHUNK)}
    r_from, l_from = f.at(x, c["image"] * a.row_n), f.at(y, c["image"] * a.lane_n)
    if spec.row_layout != IN_PLACE:
        to = f.at(f.scratch, a.row_at)
        with f.loop(rows, to=to) as panel:
            first = f.least((row0 + panel.index) * spec.tile.rows, a.row_channels - spec.tile.rows)
            source = f.at(r_from, first * a.row_c)
            width = f.value(spec.tile.rows)
            entries = f.at(a.row_entries, c["row_entry"] * 16)
            _pack_panel(f, "pack_rows", panel.to, source, c["images"], entries, c["row_entries"], width, spec.tile.rows,
                        a.row_image, a.row_n, a.row_i, a.row_c)  # fmt: skip
            panel.next(to=f.at(panel.to, a.row_panel))
    to = f.at(f.scratch, a.lane_at)
    with f.loop(lanes, to=to) as panel:
        first = (lane0 + panel.index) * spec.width
        source = f.at(l_from, first * a.lane_c)
        width = f.least(a.lane_channels - first, spec.width)
        entries = f.at(a.lane_entries, c["lane_entry"] * 16)
        _pack_panel(f, "pack_lanes", panel.to, source, c["images"], entries, c["lane_entries"], width, spec.width,
                    a.lane_image, a.lane_n, a.lane_i, a.lane_c)  # fmt: skip
        panel.next(to=f.at(panel.to, a.lane_panel))
    row_base = r_from if spec.row_layout == IN_PLACE else f.at(f.scratch, a.row_at)
    lane_base = f.at(f.scratch, a.lane_at)
    with f.loop(lanes, sums=f.at(f.scratch, a.sums_at), y=lane_base) as lane:
        with f.when(_going(f, a)):
            _lane_panel(f, spec, a, c, lane0 + lane.index, lane.sums, row_base, lane.y, out, row0, rows, tap0, taps)
        lane.next(sums=f.at(lane.sums, rows * taps * a.panel_sums), y=f.at(lane.y, a.lane_panel))


def _lane_panel(
    f: Function, spec: KernelSpec, a: _Arguments, c: dict[str, Value], lane: Value, sums: Value, row_base: Value,
    y: Value, out: Value, row0: Value, rows: Value, tap0: Value, taps: Value,
) -> None:  # fmt: skip
    """All rows and taps of a task under one panel of lanes; in the last chunk their sums are finished."""
    lane_first, first_tap = lane * spec.width, f.at(a.taps, tap0 * TAP_BYTES)
    left = f.least(a.lane_channels - lane_first, spec.width)
    with f.loop(rows, sums=sums) as row:
        wanted = (row0 + row.index) * spec.tile.rows
        row_first = f.least(wanted, a.row_channels - spec.tile.rows)
        in_place = spec.row_layout == IN_PLACE
        x = f.at(row_base, row_first * F32_BYTES if in_place else row.index * a.row_panel)
        with f.loop(taps, sums=row.sums, tap=first_tap) as tap:
            _blocks(f, spec, a, c, tap.tap, tap.sums, x, y, left)
            tap.next(sums=f.at(tap.sums, a.sums_step), tap=f.at(tap.tap, TAP_BYTES))
        with f.when(f.compare("ne", c["last"], 0)):
            out_panel = f.at(f.at(out, lane_first * a.out_lane), row_first * a.out_row)
            f.call("finish", f.at(row.sums, a.top), a.sums_step, first_tap, taps, out_panel, wanted - row_first,
                   left, a.out_row, a.out_lane, a.accumulate)  # fmt: skip
        row.next(sums=f.at(row.sums, taps * a.panel_sums))


def _pack_panel(
    f: Function, name: str, to: Value, source: Value, images: Value, entries: Value, entry_count: Value,
    channels: Value, width: int, image_bytes: Value, n_step: Value, step: Value, channel_step: Value,
) -> None:  # fmt: skip
    with f.loop(images, to=to, source=source) as image:
        with f.loop(entry_count, to=image.to, entry=entries) as entry:
            count = f.load("i64", entry.entry, 8)
            where = f.at(image.source, f.load("i64", entry.entry))
            f.call(name, entry.to, where, count, step, channel_step, channels)
            entry.next(to=f.at(entry.to, count * (width * F32_BYTES)), entry=f.at(entry.entry, 16))
        image.next(to=f.at(image.to, image_bytes), source=f.at(image.source, n_step))


def _blocks(
    f: Function, spec: KernelSpec, a: _Arguments, c: dict[str, Value], tap: Value, sums: Value, x: Value, y: Value,
    left: Value,
) -> None:  # fmt: skip
    """All blocks of a chunk under one tap: the tile, then the carries that the tree of sums has after each block."""
    outer, x_tap, y_tap, low, high = (f.load("i64", tap, 8 * i) for i in range(5))
    x, y = f.at(x, x_tap), f.at(y, y_tap)
    level = spec.tile.rows * spec.width * F32_BYTES
    index = f.at(a.run_index, (c["index"] + outer) * 16)
    joins = f.at(a.joins, c["join"] * 16)
    with f.loop(c["blocks"], entry=index, joins=joins, x=x, y=y, images=c["images"]) as block:
        runs = f.at(a.runs, f.load("i64", block.entry) * 32)
        run_count = f.load("i64", block.entry, 8)
        firsts, carries = f.load("i64", block.joins), f.load("i64", block.joins, 8)
        images = f.least(block.images, a.block_images)
        _by_width(f, spec, left, (sums, _bit(f, firsts), block.x, block.y, images, a.row_image, a.lane_image,
                                  runs, run_count, low, high, a.row_step, a.lane_step, a.row_next))  # fmt: skip
        with f.loop(carries, child=sums, firsts=firsts) as join:
            above, parent = join.firsts >> 1, f.at(join.child, level)
            f.call("carry", join.child, parent, _bit(f, above))
            join.next(child=parent, firsts=above)
        block.next(
            entry=f.at(block.entry, a.index_step), joins=f.at(block.joins, 16),
            x=f.at(block.x, a.block_step * a.row_image), y=f.at(block.y, a.block_step * a.lane_image),
            images=block.images - a.block_step,
        )  # fmt: skip


def _bit(f: Function, bits: Value) -> Value:
    return f.op("i1", f"trunc {bits} to i1")


def _by_width(f: Function, spec: KernelSpec, left: Value, arguments: tuple[Value, ...]) -> None:
    """Call the narrowest tile that covers the lanes left."""

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
