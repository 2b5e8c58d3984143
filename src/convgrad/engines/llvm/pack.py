"""Packs: panels of channels, converted to f32, in the order the tile reads them."""

from __future__ import annotations

from collections.abc import Iterator

from convgrad.engines.llvm.convert import BYTES, load_masked, stored, widen
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.transpose import transposed
from convgrad.plan.rates import PACK_AHEAD, PACK_AHEAD_BYTES
from convgrad.plan.recipe import F32_BYTES, ITEMS, NEITHER, TERMS, KernelSpec


def pack(module: Module, spec: KernelSpec, name: str, layout: str, width: int) -> None:
    """Emit a pack of panels: to[position][channel] = source[position * step + channel * channel_step], in f32.

    It reads ``channels`` channels of ``count`` positions and no byte else, and writes ``width`` lanes a position:
    beyond the channels zeros, or channels again, as a tile of several taps looks whether all its sums are finite.
    """
    f = module.function(name, to="ptr", source="ptr", count="i64", step="i64", channel_step="i64", channels="i64")
    _PACKS[layout](f, spec, width, width * F32_BYTES)
    f.done()


def pack_groups(module: Module, spec: KernelSpec, name: str, layout: str, channels: int) -> None:
    """Emit a pack of groups, some panels of as many as there are lanes: to[panel][position][channel][group], in f32.

    Its source is source[panel * panel_from + position * step + channel * channel_step + group * group_step], of
    ``groups`` groups of ``channels`` channels each; it reads no byte else.
    """
    lanes = spec.isa.lanes
    shift = lanes.bit_length() - 1
    f = module.function(
        name, to="ptr", source="ptr", count="i64", step="i64", group_step="i64", channel_step="i64",
        groups="i64", panel_from="i64", panel_to="i64",
    )  # fmt: skip
    if layout == ITEMS:
        _from_groups(f, spec, channels)
        f.done()
        return
    one = f"{name}_channel"
    with f.loop((f.groups + (lanes - 1)) >> shift, to=f.to, source=f.source) as panel:
        left = f.least(f.groups - panel.index * lanes, lanes)
        with f.loop(channels, to=panel.to, source=panel.source) as channel:
            f.call(one, channel.to, channel.source, f.count, f.step, f.group_step, left)
            channel.next(to=f.at(channel.to, lanes * F32_BYTES), source=f.at(channel.source, f.channel_step))
        panel.next(to=f.at(panel.to, f.panel_to), source=f.at(panel.source, f.panel_from))
    f.done()
    f = module.function(one, to="ptr", source="ptr", count="i64", step="i64", channel_step="i64", channels="i64")
    _PACKS[layout](f, spec, lanes, channels * lanes * F32_BYTES)
    f.done()


def _from_groups(f: Function, spec: KernelSpec, channels: int) -> None:
    """All channels are neighbours: position by position, as they lie in memory; a last panel of few groups by masks."""
    lanes, size = spec.isa.lanes, BYTES[spec.operand]
    full = f.groups >> (lanes.bit_length() - 1)
    rest = f.groups - full * lanes
    pitch = channels * lanes * F32_BYTES
    with f.loop(f.count, source=f.source, to=f.to) as position:
        with f.loop(full, source=position.source, to=position.to) as panel:
            raw = [f.load(stored(spec.operand, lanes), panel.source, v * lanes * size) for v in range(channels)]
            values = [widen(f, spec.operand, value) for value in raw]
            _apart(f, spec, values, panel.to)
            for line in range(0, channels * lanes * size, 64):
                f.prefetch(f.at(panel.source, PACK_AHEAD_BYTES + line))
            panel.next(source=f.at(panel.source, f.panel_from), to=f.at(panel.to, f.panel_to))
        with f.when(f.compare("ne", rest, 0)):
            masks = [f.mask(rest * channels - v * lanes, lanes) for v in range(channels)]
            raw = [
                load_masked(f, spec.operand, lanes, f.at(panel.source, v * lanes * size), mask)
                for v, mask in enumerate(masks)
            ]
            values = [widen(f, spec.operand, value) for value in raw]
            _apart(f, spec, values, panel.to)
        position.next(source=f.at(position.source, f.step), to=f.at(position.to, pitch))


def _apart(f: Function, spec: KernelSpec, vectors: list[Value], to: Value) -> None:
    """Store vectors in which the channels of a group are neighbours so that those of a channel are."""
    lanes, channels = spec.isa.lanes, len(vectors)
    for channel in range(channels):
        wanted = [group * channels + channel for group in range(lanes)]
        f.store(_picked(f, vectors, wanted, lanes), to, channel * lanes * F32_BYTES)


def clear(module: Module, spec: KernelSpec) -> None:
    """Emit ``clear``: zeros in ``size`` bytes, a multiple of what a packed position of src takes, of each panel."""
    lanes = spec.isa.lanes
    wide = spec.term_bytes(spec.moving) % (lanes * F32_BYTES) == 0
    kind, step = (f"<{lanes} x float>", lanes * F32_BYTES) if wide else ("float", F32_BYTES)
    f = module.function("clear", to="ptr", size="i64", panels="i64", panel_step="i64")
    with f.loop(f.panels, panel=f.to) as each:
        with f.loop(f.size >> (step.bit_length() - 1), to=each.panel) as loop:
            f.store(f.zeros(kind), loop.to)
            loop.next(to=f.at(loop.to, step))
        each.next(panel=f.at(each.panel, f.panel_step))
    f.done()


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


def _from_channels(f: Function, spec: KernelSpec, width: int, pitch: int) -> None:
    """Channels are neighbours: copy them in pieces of a power of two, the last overlapping the one before."""
    piece = min(spec.isa.lanes, 1 << (width.bit_length() - 1))
    starts = [*range(0, width - piece + 1, piece)]
    if starts[-1] + piece < width:
        starts.append(width - piece)
    thin = width < spec.isa.lanes and pitch == width * F32_BYTES
    dense = f.compare("eq", f.step, width * BYTES[spec.operand]) if thin else None
    if dense is not None:
        with f.when(dense & f.compare("eq", f.channels, width)):
            _all_values(f, spec, f.count * width)
    here = f.channels >= width
    with (
        f.when(here if dense is None else here & f.compare("ne", f.step, width * BYTES[spec.operand])),
        f.loop(f.count, source=f.source, to=f.to) as position,
    ):
        for c in starts:
            raw = f.load(stored(spec.operand, piece), position.source, c * BYTES[spec.operand])
            f.store(widen(f, spec.operand, raw), position.to, c * F32_BYTES)
        f.prefetch(f.at(position.source, f.step * PACK_AHEAD))
        position.next(source=f.at(position.source, f.step), to=f.at(position.to, pitch))
    with f.when(f.channels < width):
        _some_channels(f, spec, width, pitch)


def _all_values(f: Function, spec: KernelSpec, count: Value) -> None:
    """Copy values that lie together."""
    lanes, size = spec.isa.lanes, BYTES[spec.operand]
    kind = stored(spec.operand, lanes)
    with f.loop(count >> (lanes.bit_length() - 1), source=f.source, to=f.to) as many:
        f.store(widen(f, spec.operand, f.load(kind, many.source)), many.to)
        f.prefetch(f.at(many.source, PACK_AHEAD_BYTES))
        many.next(source=f.at(many.source, lanes * size), to=f.at(many.to, lanes * F32_BYTES))
    mask = f.mask(count - (count >> (lanes.bit_length() - 1)) * lanes, lanes)
    f.masked_store(widen(f, spec.operand, load_masked(f, spec.operand, lanes, many.source, mask)), many.to, mask)


def _some_channels(f: Function, spec: KernelSpec, width: int, pitch: int) -> None:
    """Channels are neighbours, but fewer than the panel is wide: loads are masked."""
    lanes = spec.isa.lanes
    starts = range(0, width, lanes)
    masks = [f.mask(f.channels - c, lanes) for c in starts]
    with f.loop(f.count, source=f.source, to=f.to) as position:
        for c, mask in zip(starts, masks, strict=True):
            raw = load_masked(f, spec.operand, lanes, f.at(position.source, c * BYTES[spec.operand]), mask)
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
            for c0, columns in _squares(f, spec, source, width, None):
                for p, column in enumerate(columns):
                    f.store_first(column, min(lanes, width - c0), to, p * pitch + c0 * F32_BYTES)
    with f.otherwise(), f.when(f.count >= 1):
        for c0, columns in _squares(f, spec, f.source, width, f.mask(f.count, lanes)):
            for p, column in enumerate(columns[:-1]):
                with f.when(f.compare("sgt", f.count, p)):
                    f.store_first(column, min(lanes, width - c0), f.to, p * pitch + c0 * F32_BYTES)


def _squares(
    f: Function, spec: KernelSpec, source: Value, width: int, mask: Value | None
) -> Iterator[tuple[int, list[Value]]]:
    """Yield the first channel and the positions, one a vector, of squares of channels by as many positions."""
    lanes = spec.isa.lanes
    for c0 in range(0, width, lanes):
        rows = []
        for c in range(c0, min(c0 + lanes, width)):
            place = f.at(source, f.least(f.value(c), f.channels - 1) * f.channel_step)
            raw = (
                f.load(stored(spec.operand, lanes), place)
                if mask is None
                else load_masked(f, spec.operand, lanes, place, mask)
            )
            rows.append(widen(f, spec.operand, raw))
        yield c0, transposed(f, rows, lanes)


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


_PACKS = {ITEMS: _from_channels, TERMS: _from_positions, NEITHER: _one_by_one}
