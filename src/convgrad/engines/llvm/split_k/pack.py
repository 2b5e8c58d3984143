"""Packing of A and B for weight gradients. Operands are read in place or packed into scratch, panel by panel."""

from __future__ import annotations

from convgrad.engines.llvm.arguments import Named
from convgrad.engines.llvm.convert import BYTES, read
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.packing import Cells, Copy, in_pairs
from convgrad.engines.llvm.pairs import minima_of, minimum, nothing_yet, pair
from convgrad.engines.llvm.split_k.nest import SplitKNest, TaskOperand
from convgrad.plan.constants import PREFETCH_PACK_BYTES
from convgrad.plan.machine import LINE_BYTES
from convgrad.plan.recipe import CHANNELS, F32_BYTES, SPATIAL
from convgrad.plan.split_k.recipe import SplitKOperand, SplitKSpec
from convgrad.plan.split_k.segments import PACKED


def packs(module: Module, spec: SplitKSpec) -> None:
    """Emit the functions that pack operands which are not read in place, such as ``pack_a`` and ``pair``."""
    for name, operand in (("pack_a", spec.a), ("pack_b", spec.b)):
        if spec.groups_in_lanes:
            pack_groups(module, spec, name, operand)
        elif not operand.in_place:
            pack(module, spec, name, operand, operand.width, operand.width * F32_BYTES)
    if spec.micro_tile.inner_taps > 1:
        _clear(module, spec)
    if spec.k_per_add == 2:
        minimum(module, spec.isa)
    if spec.k_per_add == 2 and not spec.compact:
        pair(module, spec.isa)


def groups(n: SplitKNest, x: TaskOperand, block: Named) -> None:
    """Pack a cache block of an operand for all groups of a task."""
    f, t, lanes = n.f, n.task, n.spec.isa.lanes
    many = f.min(n.args.groups - t.group * lanes, t.groups * lanes)
    source = f.at(f.at(x.args.data, t.group * (x.args.group * lanes)), block.image * x.args.image)
    _cache_block(n, x, block, (source, f.at(f.scratch, x.args.at)), many, t.groups)


def where(n: SplitKNest, x: TaskOperand, block: Named, group: Value) -> Value:
    """Return the address of a cache block of a group of the task, after packing it if it is not read in place."""
    f = n.f
    if n.spec.groups_in_lanes:
        return f.at(f.scratch, x.args.at + group * x.args.panel)
    source = f.at(f.at(x.args.data, (n.task.group + group) * x.args.group), block.image * x.args.image)
    if x.operand.in_place:
        return source
    begin = f.at(f.scratch, x.args.at)
    with f.loop(x.task.count, to=begin) as panel:
        first = n.first(x, x.task.first + panel.index)
        channels = f.value(x.width) if x.overlaps else f.min(x.args.channels - first, x.width)
        _cache_block(n, x, block, (f.at(source, first * x.args.channel), panel.to), channels)
        panel.next(to=f.at(panel.to, x.args.panel))
    return begin


def panel(n: SplitKNest, x: TaskOperand, begin: Value, number: Value) -> Value:
    """Return the address of the task's panel with this number in the cache block that begins at ``begin``."""
    if n.spec.groups_in_lanes or x.operand.in_place:
        return n.f.at(begin, n.first(x, x.task.first + number) * (F32_BYTES * n.spec.groups_a_panel))
    return n.f.at(begin, number * x.args.panel)


def min_exponents(n: SplitKNest, x: TaskOperand, begin: Value, number: Value) -> Value:
    """Return the address of the minimum exponents of a panel, which follow the packed panel."""
    first = begin if n.spec.groups_in_lanes else panel(n, x, begin, number)
    return minima_of(n.f, first, x.args.panel)


def _cache_block(
    n: SplitKNest,
    x: TaskOperand,
    block: Named,
    addresses: tuple[Value, Value],
    columns: Value,
    panels: Value | int = 1,
) -> None:
    """Pack the images of a cache block row by row. ``addresses`` are those of the first image and of the panels.

    The result is one panel of ``columns`` channels, or several panels with ``columns`` groups together.
    """
    f, args, rows, (source, to) = n.f, x.args, block.of(x.name), addresses
    first = f.at(args.packed, rows.first * PACKED.bytes)
    if n.spec.k_per_add == 2:
        with f.loop(panels, smallest=f.at(to, args.panel - LINE_BYTES)) as iteration:
            nothing_yet(f, n.spec.isa, iteration.smallest)
            iteration.next(smallest=f.at(iteration.smallest, args.panel))
    with f.loop(block.images, to=to, source=source) as image:
        with f.loop(rows.count, to=image.to, row=first) as iteration:
            here, count = f.at(image.source, f.load("i64", iteration.row)), f.load("i64", iteration.row, 8)
            leasts = f.at(to, args.panel - LINE_BYTES) if n.spec.compact else None
            end = _row(n, x, (here, iteration.to), count, columns, leasts)
            iteration.next(to=end, row=f.at(iteration.row, PACKED.bytes))
        if n.spec.k_per_add == 2 and not n.spec.compact:
            size = f.distance(iteration.to, image.to)
            with f.loop(panels, panel=image.to, smallest=f.at(to, args.panel - LINE_BYTES)) as pair:
                f.call("pair", pair.panel, size, args.read_k * n.spec.chains, pair.smallest)
                pair.next(panel=f.at(pair.panel, args.panel), smallest=f.at(pair.smallest, args.panel))
        image.next(to=f.at(image.to, args.read_image), source=f.at(image.source, args.image))


def _row(
    n: SplitKNest, x: TaskOperand, addresses: tuple[Value, Value], count: Value, columns: Value, leasts: Value | None
) -> Value:
    """Pack ``count`` positions of a row, and return the address after them. ``addresses`` are source and destination.

    For micro-tiles with several taps, a row of src is packed with zeros on both sides. An absent tap multiplies a zero,
    which adds nothing if the other factor is finite.
    """
    f, args, size, (source, to) = n.f, x.args, count * n.spec.k_bytes(x.operand), addresses
    steps = {"row": args.k, "column": args.group if n.spec.groups_in_lanes else args.channel}
    steps["prefetch_at"] = args.prefetch
    if n.spec.groups_in_lanes:
        steps |= {"step": args.channel, "panel": args.panel}
    if leasts is not None:
        steps["leasts"] = leasts
    clears = n.spec.micro_tile.inner_taps > 1 and x.operand.moves
    panels = (n.task.groups, args.panel) if n.spec.groups_in_lanes else (1, 0)
    if clears:
        f.call("clear", to, n.args.left, *panels)
        to = f.at(to, n.args.left)
    f.call(f"pack_{x.name}", to, source, count, columns, **steps)
    to = f.at(to, size)
    if clears:
        f.call("clear", to, n.args.right, *panels)
        to = f.at(to, n.args.right)
    return to


def _clear(module: Module, spec: SplitKSpec) -> None:
    """Emit ``clear``, which zeroes ``size`` bytes of each panel; ``size`` is a multiple of a packed k of src."""
    lanes = spec.isa.lanes
    wide = spec.k_bytes(spec.moving) % (lanes * F32_BYTES) == 0
    kind, step = (f"<{lanes} x float>", lanes * F32_BYTES) if wide else ("float", F32_BYTES)
    f = module.function("clear", to="ptr", size="i64", panels="i64", panel_step="i64")
    with f.loop(f.panels, panel=f.to) as panel:
        with f.loop(f.size >> (step.bit_length() - 1), to=panel.panel) as loop:
            f.store(f.zeros(kind), loop.to)
            loop.next(to=f.at(loop.to, step))
        panel.next(panel=f.at(panel.panel, f.panel_step))
    f.done()


def pack(module: Module, spec: SplitKSpec, name: str, operand: SplitKOperand, width: int, pitch: int) -> None:
    """Emit a function that packs a panel: to[k][index] = source[k * row + index * column], in f32 or in bf16 pairs.

    It reads only ``columns`` columns of ``count`` positions. Other columns of the panel become zeros or repeat a
    column. They must not be undefined, because micro-kernels with several taps check whether all sums are finite. The
    high half of a pair is its first k. The minima at ``leasts`` are lowered to those of the values.
    """
    parameters = {"to": "ptr", "source": "ptr", "count": "i64", "columns": "i64", "row": "i64", "column": "i64"}
    leasts = {"leasts": "ptr"} if spec.compact else {}
    f = module.function(name, False, **parameters, prefetch_at="i64", **leasts)
    cells = Cells(f, spec.operand, spec.isa.lanes, 0 if spec.compact else None, stride=operand.stride)
    copy = Copy(cells, f.count, f.row, f.columns, f.column, pitch, width, prefetch_bytes=f.prefetch_at)
    if operand.contiguous == SPATIAL:
        copy.along_rows(f.source, f.to)
    else:
        way = Copy.along_columns if operand.contiguous == CHANNELS else Copy.one_by_one
        in_pairs(copy, "rows", way, f.source, f.to)
    if spec.compact:
        f.call("minimum", f.to, 1, 0, ((f.count + 1) >> 1) * (2 * width), f.leasts)
    f.done()


def pack_groups(module: Module, spec: SplitKSpec, name: str, operand: SplitKOperand) -> None:
    """Emit a function that packs ``columns`` groups as to[panel][k][channel][group] in f32, one group per lane.

    An element is source[panel * lanes * column + k * row + channel * step + group * column], where a group has
    ``operand.width`` channels. The function reads no other bytes.
    """
    lanes, size = spec.isa.lanes, spec.isa.lanes * F32_BYTES
    if operand.contiguous != CHANNELS:
        pack(module, spec, f"{name}_channel", operand, lanes, spec.k_bytes(operand))
    parameters = {"to": "ptr", "source": "ptr", "count": "i64", "columns": "i64", "row": "i64", "column": "i64"}
    f = module.function(name, False, **parameters, prefetch_at="i64", step="i64", panel="i64")
    panel_from = f.column * lanes
    if operand.contiguous == CHANNELS:
        with f.loop(f.count, source=f.source, to=f.to) as k:
            _spread(f, spec, operand.width, k.source, k.to, panel_from)
            k.next(source=f.at(k.source, f.row), to=f.at(k.to, operand.width * size))
        f.done()
        return
    with f.loop((f.columns + (lanes - 1)) >> (lanes.bit_length() - 1), to=f.to, source=f.source) as panel:
        left = f.min(f.columns - panel.index * lanes, lanes)
        with f.loop(operand.width, to=panel.to, source=panel.source) as channel:
            own = {"to": channel.to, "source": channel.source, "columns": left}
            f.call(f"{name}_channel", **{**f.parameters, **own})
            channel.next(to=f.at(channel.to, size), source=f.at(channel.source, f.step))
        panel.next(to=f.at(panel.to, f.panel), source=f.at(panel.source, panel_from))
    f.done()


def _spread(f: Function, spec: SplitKSpec, channels: int, source: Value, to: Value, panel_from: Value) -> None:
    """Pack one k whose channels are contiguous, so that each packed vector has one channel of each group.

    Only the last panel, which may have fewer groups, needs masks.
    """
    lanes, size = spec.isa.lanes, spec.isa.lanes * BYTES[spec.operand]

    def panel(source: Value, to: Value, left: Value | None) -> None:
        masks = [None if left is None else f.mask(left * channels - v * lanes, lanes) for v in range(channels)]
        vectors = [read(f, spec.operand, f.at(source, v * size), lanes, mask) for v, mask in enumerate(masks)]
        for channel in range(channels):
            f.store(_picked(f, vectors, channel, lanes), to, channel * lanes * F32_BYTES)

    full = f.columns >> (lanes.bit_length() - 1)
    left = f.columns - full * lanes
    with f.loop(full, source=source, to=to) as whole:
        panel(whole.source, whole.to, None)
        for line in range(0, channels * size, LINE_BYTES):
            f.prefetch(f.at(whole.source, PREFETCH_PACK_BYTES + line))
        whole.next(source=f.at(whole.source, panel_from), to=f.at(whole.to, f.panel))
    with f.when(f.compare("ne", left, 0)):
        panel(whole.source, whole.to, left)


def _picked(f: Function, vectors: list[Value], channel: int, lanes: int) -> Value:
    """Return the vector of one channel of each group, picked from vectors of all channels, two vectors at a time."""
    picked = vectors[0]
    for first in range(0, len(vectors), 2):
        two = vectors[first], vectors[min(first + 1, len(vectors) - 1)]
        places = [group * len(vectors) + channel - first * lanes for group in range(lanes)]
        some = f.shuffle(*two, [place if 0 <= place < 2 * lanes else -1 for place in places])
        picks = [lane if place < 0 else lanes + lane for lane, place in enumerate(places)]
        picked = f.shuffle(picked, some, picks) if first else some
    return picked
