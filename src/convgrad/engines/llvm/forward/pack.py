"""Packs: weights as [tap][term][lane], data as [position][term], in f32 and in the order in which chains take terms."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from convgrad.engines.llvm.arguments import Named
from convgrad.engines.llvm.convert import BYTES, read
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.forward.arguments import along, arguments
from convgrad.engines.llvm.transpose import transposed
from convgrad.plan.forward.recipe import ForwardSpec
from convgrad.plan.forward.spatial_stencil import SpatialStencilSpec
from convgrad.plan.recipe import CHANNELS, CHANNELS_IN, CHANNELS_OUT, F32_BYTES, SPATIAL, TAPS


def weights(module: Module, spec: ForwardSpec) -> None:
    """Emit ``pack_weights``: a panel of ``left`` results or more, to[tap][term][lane]; lanes beyond are anything."""
    f = module.function("pack_weights", arguments="ptr", to="ptr", source="ptr", left="i64")
    a = arguments(f, spec)
    axes = along(a, spec)
    pitch = spec.pitch * F32_BYTES
    left = f.min(f.left, spec.width)
    if spec.weights == TAPS:
        with f.loop(a.terms, source=f.source) as term:
            to = f.at(f.to, taken(f, spec, term.index, a.terms) * pitch)
            _squares(f, spec, term.source, to, a.taps, lambda number: number * (a.terms * pitch), a.weights_item, left)
            term.next(source=f.at(term.source, a.weights_term))
        f.done()
        return

    def of_term(number: Value) -> Value:
        return taken(f, spec, number, a.terms) * pitch

    def one_tap(source: Value, to: Value) -> Value:
        if spec.weights == CHANNELS_OUT:
            _lines(f, spec, a, source, to, left)
        elif spec.weights == CHANNELS_IN:
            _squares(f, spec, source, to, a.terms, of_term, a.weights_item, left)
        elif spec.window and spec.window.apart:
            _values_of_groups(f, spec, a, source, to, left)
        else:
            _values(f, spec, a, source, to, left)
        return f.at(to, a.terms * pitch)

    _each(f, [(axis.kernel, axis.tap) for axis in axes], f.source, f.to, one_tap)
    f.done()


def _each(
    f: Function, loops: Sequence[tuple[Value, Value]], source: Value, to: Value, body: Callable[[Value, Value], Value]
) -> Value:
    """Visit some axes row-major, so many of each and so far apart; return where the last body ended."""
    if not loops:
        return body(source, to)
    (count, step), *inner = loops
    with f.loop(count, source=source, to=to) as each:
        ended = _each(f, inner, each.source, each.to, body)
        each.next(source=f.at(each.source, step), to=ended)
    return each.to


def taken(f: Function, spec: ForwardSpec | SpatialStencilSpec, term: Value, terms: Value) -> Value:
    """Return at which place a term of a tap is taken: those of a pair change places."""
    if not spec.pairs:
        return term
    other = f.op("i64", f"xor {term}, 1")
    return f.select(f.compare("slt", other, terms), other, term)


def _lines(f: Function, spec: ForwardSpec, a: Named, source: Value, to: Value, left: Value) -> None:
    """Results lie together: vectors of them, masked in the last panel."""
    lanes, size, pitch = spec.isa.lanes, BYTES[spec.operand], spec.pitch * F32_BYTES

    def copied(masks: list[Value] | None) -> None:
        with f.loop(a.terms, source=source) as term:
            place = f.at(to, taken(f, spec, term.index, a.terms) * pitch)
            for v in range(spec.vectors):
                here = f.at(term.source, v * lanes * size)
                f.store(read(f, spec.operand, here, lanes, masks[v] if masks else None), place, v * lanes * F32_BYTES)
            term.next(source=f.at(term.source, a.weights_term))

    with f.when(left >= spec.pitch):
        copied(None)
    with f.otherwise():
        copied([f.mask(left - v * lanes, lanes) for v in range(spec.vectors)])


def _squares(
    f: Function, spec: ForwardSpec, source: Value, to: Value, count: Value, place: Callable[[Value], Value],
    item: Value, left: Value,
) -> None:  # fmt: skip
    """Terms, or taps, lie together, so many: squares of them and of results are transposed in registers."""
    lanes = spec.isa.lanes
    for v in range(spec.vectors):
        first = f.value(v * lanes)
        with f.when(f.compare("sgt", left, v * lanes)):
            places = [f.at(source, f.min(first + i, left - 1) * item) for i in range(lanes)]
            with f.loop((count + (lanes - 1)) >> (lanes.bit_length() - 1), along=f.value(0)) as square:
                rest = count - square.along
                with f.when(rest >= lanes):
                    rows = [_row(f, spec, each, square.along) for each in places]
                    for p, column in enumerate(transposed(f, rows, lanes)):
                        f.store(column, f.at(to, place(square.along + p)), v * lanes * F32_BYTES)
                with f.otherwise():
                    for p, column in enumerate(_columns(f, spec, places, square.along, rest)):
                        with f.when(f.compare("sgt", rest, p)):
                            f.store(column, f.at(to, place(square.along + p)), v * lanes * F32_BYTES)
                square.next(along=square.along + lanes)


def _columns(f: Function, spec: ForwardSpec, places: Sequence[Value], along: Value, rest: Value) -> list[Value]:
    """Return the columns of a square whose rows begin ``along`` values behind some places, ``rest`` of them there."""
    lanes, size = spec.isa.lanes, BYTES[spec.operand]
    mask = f.mask(rest, lanes)
    rows = [read(f, spec.operand, f.at(place, along * size), lanes, mask) for place in places]
    return transposed(f, rows, lanes)


def _values(f: Function, spec: ForwardSpec, a: Named, source: Value, to: Value, left: Value) -> None:
    """Weights of a tap lie anyhow."""
    with f.loop(a.terms, source=source) as term:
        place = f.at(to, taken(f, spec, term.index, a.terms) * (spec.pitch * F32_BYTES))
        with f.loop(left, source=term.source, to=place) as lane:
            f.store(read(f, spec.operand, lane.source), lane.to)
            lane.next(source=f.at(lane.source, a.weights_item), to=f.at(lane.to, F32_BYTES))
        term.next(source=f.at(term.source, a.weights_term))


def _values_of_groups(f: Function, spec: ForwardSpec, a: Named, source: Value, to: Value, left: Value) -> None:
    """Weights of a tap lie anyhow, and results of a group otherwise than groups."""
    assert spec.window is not None
    results = spec.window.results
    with f.loop(a.terms, source=source) as term:
        place = f.at(to, taken(f, spec, term.index, a.terms) * (spec.pitch * F32_BYTES))
        with f.loop(f.op("i64", f"udiv {left}, {results}"), source=term.source, to=place) as group:
            with f.loop(results, source=group.source, to=group.to) as lane:
                f.store(read(f, spec.operand, lane.source), lane.to)
                lane.next(source=f.at(lane.source, a.weights_item), to=f.at(lane.to, F32_BYTES))
            group.next(source=f.at(group.source, a.weights_group), to=lane.to)
        term.next(source=f.at(term.source, a.weights_term))


def data(module: Module, spec: ForwardSpec) -> None:
    """Emit ``pack_line``: ``count`` positions of the last axis, to[position][term]."""
    f = module.function("pack_line", arguments="ptr", to="ptr", source="ptr", count="i64")
    a = arguments(f, spec)
    step, pitch = along(a, spec)[-1].given, a.channels * F32_BYTES
    if spec.data == CHANNELS:
        with f.loop(f.count, source=f.source, to=f.to) as position:
            _copy(f, spec, a.channels, position.source, position.to)
            position.next(source=f.at(position.source, step), to=f.at(position.to, pitch))
    elif spec.data == SPATIAL:
        _transposed_line(f, spec, a, pitch)
    else:
        with f.loop(f.count, source=f.source, to=f.to) as position:
            with f.loop(a.channels, source=position.source) as term:
                place = f.at(position.to, _packed(f, spec, term.index, a.channels) * F32_BYTES)
                f.store(read(f, spec.operand, term.source), place)
                term.next(source=f.at(term.source, a.data_item))
            position.next(source=f.at(position.source, step), to=f.at(position.to, pitch))
    f.done()


def _packed(f: Function, spec: ForwardSpec, term: Value, terms: Value) -> Value:
    """Return at which place a term of a position is packed: windows take those of a group in their order themselves."""
    return taken(f, spec, term, terms) if spec.packs_pairs else term


def _copy(f: Function, spec: ForwardSpec, count: Value, source: Value, to: Value) -> None:
    """Terms lie together: vectors of them, those of each pair swapped where the order has them so."""
    lanes, size = spec.isa.lanes, BYTES[spec.operand]
    shift = lanes.bit_length() - 1
    with f.loop(count >> shift, source=source, to=to) as many:
        raw = read(f, spec.operand, many.source, lanes)
        f.store(_swapped(f, spec, raw), many.to)
        many.next(source=f.at(many.source, lanes * size), to=f.at(many.to, lanes * F32_BYTES))
    rest = count - (count >> shift) * lanes
    with f.when(f.compare("sgt", rest, 0)):
        mask = f.mask(rest, lanes)
        raw = read(f, spec.operand, many.source, lanes, mask)
        if spec.packs_pairs:  # an odd last one stays
            paired = f.mask(rest - (rest & 1), lanes)
            swapped = _swapped(f, spec, raw)
            raw = f.op(raw.type, f"select {paired}, {swapped}, {raw}")
        f.masked_store(raw, many.to, mask)


def _swapped(f: Function, spec: ForwardSpec, values: Value) -> Value:
    return f.shuffle(values, values, [lane ^ 1 for lane in range(spec.isa.lanes)]) if spec.packs_pairs else values


def _transposed_line(f: Function, spec: ForwardSpec, a: Named, pitch: Value) -> None:
    """Positions lie together: squares of terms by positions are transposed in registers."""
    lanes = spec.isa.lanes
    shift = lanes.bit_length() - 1
    with f.loop((a.channels + (lanes - 1)) >> shift, term=f.value(0)) as chunk:
        there = a.channels - chunk.term
        places = []
        for i in range(lanes):
            number = _packed(f, spec, f.min(chunk.term + i, a.channels - 1), a.channels)
            places.append(f.at(f.source, number * a.data_item))
        to = f.at(f.to, chunk.term * F32_BYTES)
        mask = f.mask(there, lanes)
        with f.loop((f.count + (lanes - 1)) >> shift, along=f.value(0), to=to) as square:
            rest = f.count - square.along
            full = f.compare("sge", rest, lanes) & f.compare("sge", there, lanes)
            with f.when(full):
                rows = [_row(f, spec, place, square.along) for place in places]
                for p, column in enumerate(transposed(f, rows, lanes)):
                    f.store(column, f.at(square.to, pitch * p))
            with f.otherwise():
                for p, column in enumerate(_columns(f, spec, places, square.along, rest)):
                    with f.when(f.compare("sgt", rest, p)):
                        f.masked_store(column, f.at(square.to, pitch * p), mask)
            square.next(along=square.along + lanes, to=f.at(square.to, pitch * lanes))
        chunk.next(term=chunk.term + lanes)


def _row(f: Function, spec: ForwardSpec, place: Value, along: Value) -> Value:
    return read(f, spec.operand, f.at(place, along * BYTES[spec.operand]), spec.isa.lanes)
