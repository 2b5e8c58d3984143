"""Packs: panels of channels, converted to f32, in the order the tile reads them."""

from __future__ import annotations

from convgrad.engines.llvm.convert import BYTES, stored, widen
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.tile import F32_BYTES
from convgrad.plan.recipe import CHANNELS, POSITIONS, STRIDED, KernelSpec


def pack(module: Module, spec: KernelSpec, name: str, layout: str, width: int) -> None:
    """Emit a pack of panels: to[position][channel] = source[position * step + channel * channel_step], in f32.

    It reads ``channels`` channels of ``count`` positions and no byte else, and writes ``width`` lanes a position; what
    lies in lanes beyond the channels is never used.
    """
    f = module.function(name, to="ptr", source="ptr", count="i64", step="i64", channel_step="i64", channels="i64")
    _PACKS[layout](f, spec, width)
    f.done()


def _from_channels(f: Function, spec: KernelSpec, width: int) -> None:
    """Channels are neighbours: copy them in pieces of a power of two, the last overlapping the one before."""
    piece = min(spec.isa.lanes, 1 << (width.bit_length() - 1))
    starts = [*range(0, width - piece + 1, piece)]
    if starts[-1] + piece < width:
        starts.append(width - piece)
    with f.when(f.channels >= width), f.loop(f.count, source=f.source, to=f.to) as position:
        for c in starts:
            raw = f.load(stored(spec.operand, piece), position.source, c * BYTES[spec.operand])
            f.store(widen(f, spec.operand, raw), position.to, c * F32_BYTES)
        position.next(source=f.at(position.source, f.step), to=f.at(position.to, width * F32_BYTES))
    with f.otherwise():
        _some_channels(f, spec, width)


def _some_channels(f: Function, spec: KernelSpec, width: int) -> None:
    """Channels are neighbours, but fewer than the panel is wide: loads are masked."""
    lanes, integers = spec.isa.lanes, {"f32": "float"}.get(spec.operand, "i16")
    starts = range(0, width, lanes)
    masks = [f.mask(f.channels - c, lanes) for c in starts]
    with f.loop(f.count, source=f.source, to=f.to) as position:
        for c, mask in zip(starts, masks, strict=True):
            raw = f.masked_load(f"<{lanes} x {integers}>", f.at(position.source, c * BYTES[spec.operand]), mask)
            kind = stored(spec.operand, lanes)
            value = widen(f, spec.operand, raw if raw.type == kind else f.op(kind, f"bitcast {raw} to {kind}"))
            f.store_first(value, min(lanes, width - c), position.to, c * F32_BYTES)
        position.next(source=f.at(position.source, f.step), to=f.at(position.to, width * F32_BYTES))


def _from_positions(f: Function, spec: KernelSpec, width: int) -> None:
    """Positions are neighbours: transpose squares in registers; the last square overlaps the one before."""
    lanes, pitch = spec.isa.lanes, width * F32_BYTES
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
        _one_by_one(f, spec, width)


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


def _one_by_one(f: Function, spec: KernelSpec, width: int) -> None:
    """Any layout, channel by channel; the rest of the panel is zero, so that its sums stay ordinary numbers."""
    with f.loop(f.count, source=f.source, to=f.to) as position:
        with f.loop(f.channels, source=position.source, to=position.to) as channel:
            f.store(widen(f, spec.operand, f.load(stored(spec.operand), channel.source)), channel.to)
            channel.next(source=f.at(channel.source, f.channel_step), to=f.at(channel.to, F32_BYTES))
        with f.loop(f.value(width) - f.channels, to=channel.to) as rest:
            f.store(f.zeros("float"), rest.to)
            rest.next(to=f.at(rest.to, F32_BYTES))
        position.next(source=f.at(position.source, f.step), to=f.at(position.to, width * F32_BYTES))


_PACKS = {CHANNELS: _from_channels, POSITIONS: _from_positions, STRIDED: _one_by_one}
