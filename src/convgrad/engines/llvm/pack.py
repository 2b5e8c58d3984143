"""Packs: panels of channels, converted to f32, in the order the tile reads them."""

from __future__ import annotations

from convgrad.engines.llvm.convert import BYTES, stored, widen
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.plan.recipe import CHANNELS, F32_BYTES, POSITIONS, STRIDED, KernelSpec


AHEAD = 128


def pack(module: Module, spec: KernelSpec, name: str, layout: str, width: int) -> None:
    """Emit a pack of panels: to[position][channel] = source[position * step + channel * channel_step], in f32.

    It reads ``channels`` channels of ``count`` positions and no byte else, and writes ``width`` lanes a position; what
    lies in lanes beyond the channels is never used.
    """
    f = module.function(name, to="ptr", source="ptr", count="i64", step="i64", channel_step="i64", channels="i64")
    _PACKS[layout](f, spec, width, width * F32_BYTES)
    f.done()


def pack_groups(module: Module, spec: KernelSpec, name: str, layout: str, items: int, spread: int) -> None:
    """Emit a pack of groups: to[position][item][group] = source[position * step + item * item_step + group * group_step].

    ``groups`` groups are read; of channels that are neighbours, ``spread`` lie between a group and the next.
    """
    lanes = spec.isa.lanes
    pitch = items * lanes * F32_BYTES
    item = f"{name}_item"
    f = module.function(
        name, to="ptr", source="ptr", count="i64", step="i64", group_step="i64", item_step="i64", groups="i64"
    )
    if layout == CHANNELS and spread > 1:
        _interleaved(f, spec, items, spread)
    else:
        with f.loop(items, to=f.to, source=f.source) as one:
            f.call(item, one.to, one.source, f.count, f.step, f.group_step, f.groups)
            one.next(to=f.at(one.to, lanes * F32_BYTES), source=f.at(one.source, f.item_step))
    f.done()
    if layout != CHANNELS or spread == 1:
        f = module.function(item, to="ptr", source="ptr", count="i64", step="i64", channel_step="i64", channels="i64")
        _PACKS[layout](f, spec, lanes, pitch)
        f.done()


def clear(module: Module, spec: KernelSpec) -> None:
    """Emit ``clear``: zeros in ``size`` bytes, a multiple of what a packed position of src takes."""
    lanes = spec.isa.lanes
    wide = spec.moving_bytes % (lanes * F32_BYTES) == 0
    kind, step = (f"<{lanes} x float>", lanes * F32_BYTES) if wide else ("float", F32_BYTES)
    f = module.function("clear", to="ptr", size="i64")
    with f.loop(f.size >> (step.bit_length() - 1), to=f.to) as loop:
        f.store(f.zeros(kind), loop.to)
        loop.next(to=f.at(loop.to, step))
    f.done()


def look(module: Module, spec: KernelSpec) -> None:
    """Emit ``look``: raise a flag if some packed values are not all finite, which times 0 are not 0."""
    lanes = spec.isa.lanes
    kind, step = f"<{lanes} x float>", lanes * F32_BYTES
    f = module.function("look", flag="ptr", values="ptr", size="i64")
    whole = f.size >> (step.bit_length() - 1)
    with f.loop(whole, values=f.values, sum=f.zeros(kind)) as many:
        many.next(values=f.at(many.values, step), sum=f.fma(f.load(kind, many.values), f.zeros(kind), many.sum))
    with f.loop((f.size - whole * step) >> 2, values=many.values, sum=f.zeros("float")) as one:
        one.next(values=f.at(one.values, 4), sum=f.fma(f.load("float", one.values), f.zeros("float"), one.sum))
    total = f.intrinsic("float", f"llvm.vector.reduce.fadd.v{lanes}f32", one.sum, many.sum)
    with f.when(f.op("i1", f"fcmp uno {total}, 0.0")):
        f.store(f.value(1), f.flag)
    f.done()


def _interleaved(f: Function, spec: KernelSpec, items: int, spread: int) -> None:
    """Groups lie ``spread`` channels apart in one stretch: load it, and pick each item's lanes out of its vectors."""
    lanes, size = spec.isa.lanes, BYTES[spec.operand]
    present = (f.groups - 1) * spread + items  # values from the first group's first item to the last one's last
    count = -(-((lanes - 1) * spread + items) // lanes)
    masks = [f.mask(present - v * lanes, lanes) for v in range(count)]
    with f.loop(f.count, source=f.source, to=f.to) as position:
        vectors = [
            widen(f, spec.operand, _masked(f, spec, f.at(position.source, v * lanes * size), mask))
            for v, mask in enumerate(masks)
        ]
        for line in range(0, count * lanes * size, 64):
            f.prefetch(f.at(position.source, f.step * AHEAD + line))
        for item in range(items):
            wanted = [lane * spread + item for lane in range(lanes)]
            f.store(_picked(f, vectors, wanted, lanes), position.to, item * lanes * F32_BYTES)
        position.next(source=f.at(position.source, f.step), to=f.at(position.to, items * lanes * F32_BYTES))


def _picked(f: Function, vectors: list[Value], wanted: list[int], lanes: int) -> Value:
    """Return a vector of values by their places in several vectors, put together two vectors at a time."""
    held = {v: [w if w // lanes == v else -1 for w in wanted] for v in {w // lanes for w in wanted}}
    parts = [(vectors[v], [w % lanes if w >= 0 else -1 for w in places]) for v, places in sorted(held.items())]
    while len(parts) > 1:
        merged = []
        for (a, in_a), (b, in_b) in zip(parts[::2], parts[1::2], strict=False):
            picks = [x if x >= 0 else y + lanes if y >= 0 else -1 for x, y in zip(in_a, in_b, strict=True)]
            merged.append((f.shuffle(a, b, picks), [lane if p >= 0 else -1 for lane, p in enumerate(picks)]))
        parts = merged + parts[len(merged) * 2 :]
    ((value, places),) = parts
    return value if places == list(range(lanes)) else f.shuffle(value, value, places)


def _masked(f: Function, spec: KernelSpec, pointer: Value, mask: Value) -> Value:
    """Load stored values under a mask."""
    lanes, integers = spec.isa.lanes, {"f32": "float"}.get(spec.operand, "i16")
    raw = f.masked_load(f"<{lanes} x {integers}>", pointer, mask)
    kind = stored(spec.operand, lanes)
    return raw if raw.type == kind else f.op(kind, f"bitcast {raw} to {kind}")


def _from_channels(f: Function, spec: KernelSpec, width: int, pitch: int) -> None:
    """Channels are neighbours: copy them in pieces of a power of two, the last overlapping the one before."""
    piece = min(spec.isa.lanes, 1 << (width.bit_length() - 1))
    starts = [*range(0, width - piece + 1, piece)]
    if starts[-1] + piece < width:
        starts.append(width - piece)
    with f.when(f.channels >= width), f.loop(f.count, source=f.source, to=f.to) as position:
        for c in starts:
            raw = f.load(stored(spec.operand, piece), position.source, c * BYTES[spec.operand])
            f.store(widen(f, spec.operand, raw), position.to, c * F32_BYTES)
        f.prefetch(f.at(position.source, f.step * AHEAD))
        position.next(source=f.at(position.source, f.step), to=f.at(position.to, pitch))
    with f.otherwise():
        _some_channels(f, spec, width, pitch)


def _some_channels(f: Function, spec: KernelSpec, width: int, pitch: int) -> None:
    """Channels are neighbours, but fewer than the panel is wide: loads are masked."""
    lanes = spec.isa.lanes
    starts = range(0, width, lanes)
    masks = [f.mask(f.channels - c, lanes) for c in starts]
    with f.loop(f.count, source=f.source, to=f.to) as position:
        for c, mask in zip(starts, masks, strict=True):
            raw = _masked(f, spec, f.at(position.source, c * BYTES[spec.operand]), mask)
            f.store_first(widen(f, spec.operand, raw), min(lanes, width - c), position.to, c * F32_BYTES)
        position.next(source=f.at(position.source, f.step), to=f.at(position.to, pitch))


def _from_positions(f: Function, spec: KernelSpec, width: int, pitch: int) -> None:
    """Positions are neighbours: transpose squares in registers; the last square overlaps the one before."""
    lanes = spec.isa.lanes
    with f.when(f.count >= lanes):
        squares = (f.count + (lanes - 1)) >> (lanes.bit_length() - 1)
        with f.loop(squares) as square:
            first = f.least(square.index * lanes, f.count - lanes)
            source, to = f.at(f.source, first * f.step), f.at(f.to, first * pitch)
            for c0 in range(0, width, lanes):
                taken = range(c0, min(c0 + lanes, width))
                rows = [
                    f.load(
                        stored(spec.operand, lanes), f.at(source, f.least(f.value(c), f.channels - 1) * f.channel_step)
                    )
                    for c in taken
                ]
                columns = transposed(f, [widen(f, spec.operand, row) for row in rows], lanes)
                for p, column in enumerate(columns):
                    f.store_first(column, len(taken), to, p * pitch + c0 * F32_BYTES)
    with f.otherwise():
        _one_by_one(f, spec, width, pitch)


def transposed(f: Function, rows: list[Value], lanes: int) -> list[Value]:
    """Return the columns of a square matrix; rows that are not given are anything."""
    kind = f"<{lanes} x float>"
    square = rows + [Value(f, kind, "poison")] * (lanes - len(rows))
    distance = 1
    while distance < lanes:  # exchange the off-diagonal quarters of all squares of 2 * distance
        for i in (i for i in range(lanes) if not i & distance):
            a, b = square[i], square[i + distance]
            low = [j if not j & distance else lanes + j - distance for j in range(lanes)]
            high = [j + distance if not j & distance else lanes + j for j in range(lanes)]
            square[i], square[i + distance] = f.shuffle(a, b, low), f.shuffle(a, b, high)
        distance *= 2
    return square


def _one_by_one(f: Function, spec: KernelSpec, width: int, pitch: int) -> None:
    """Any layout, channel by channel; the rest of the panel is zero, so that its sums stay ordinary numbers."""
    with f.loop(f.count, source=f.source, to=f.to) as position:
        with f.loop(f.channels, source=position.source, to=position.to) as channel:
            f.store(widen(f, spec.operand, f.load(stored(spec.operand), channel.source)), channel.to)
            channel.next(source=f.at(channel.source, f.channel_step), to=f.at(channel.to, F32_BYTES))
        with f.loop(f.value(width) - f.channels, to=channel.to) as rest:
            f.store(f.zeros("float"), rest.to)
            rest.next(to=f.at(rest.to, F32_BYTES))
        position.next(source=f.at(position.source, f.step), to=f.at(position.to, pitch))


_PACKS = {CHANNELS: _from_channels, POSITIONS: _from_positions, STRIDED: _one_by_one}
