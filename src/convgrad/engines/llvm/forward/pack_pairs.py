"""Words of two terms of bf16, the second above the first: of packed weights and data; and the least of data in place.

Data whose terms are neighbours are words as they lie. Other packs leave terms in f32, those of a pair exchanged; words
take half of that. The last word of an odd number of terms has its term below, and nothing above.
"""

from __future__ import annotations

from convgrad.engines.llvm.arguments import Named
from convgrad.engines.llvm.convert import load_masked
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.forward.arguments import along, arguments
from convgrad.engines.llvm.pairs import halves, lesser
from convgrad.plan.forward.recipe import ForwardSpec
from convgrad.plan.pairs import WORD_BYTES
from convgrad.plan.recipe import CHANNELS, F32_BYTES


def words(module: Module, spec: ForwardSpec) -> None:
    """Emit ``weight_words``, and what is done with a line of data: ``line_words``, or, in place, ``line_least``."""
    _weights(module, spec)
    if spec.in_place:
        _least(module, spec)
    elif spec.data == CHANNELS:
        _copied(module, spec)
    else:
        _line(module, spec)


def _upper(f: Function, values: Value) -> Value:
    """Return values of bf16, in the upper halves of words, in the lower ones."""
    return f.op(values.type, f"lshr {values}, {f.everywhere(values.type, 16).name}")


def _parted(f: Function, two: list[Value], first: int) -> Value:
    """Return every second lane of two vectors."""
    lanes = 2 * int(two[0].type[1:].split(" x ")[0])
    return f.shuffle(two[0], two[1], list(range(first, lanes, 2)))


def _weights(module: Module, spec: ForwardSpec) -> None:
    """Emit ``weight_words``: a packed panel, [tap][term][lane], becomes [tap][pair][lane], where it is.

    Lanes beyond those that are left are anything, and do not count.
    """
    f = module.function("weight_words", arguments="ptr", panel="ptr", left="i64", leasts="ptr")
    a, lanes, pitch = arguments(f, spec), spec.isa.lanes, spec.pitch * F32_BYTES
    kind = f"<{lanes} x i32>"
    places = [v * lanes * F32_BYTES for v in range(spec.vectors)]
    counted = [f.mask(f.left - v * lanes, lanes) for v in range(spec.vectors)]
    found = f.everywhere(halves(spec.isa.lanes), -1)
    with f.loop(a.taps, source=f.panel, to=f.panel, found=found) as tap:
        with f.loop(a.terms >> 1, source=tap.source, to=tap.to, found=tap.found) as pair:
            found = pair.found
            for place, mask in zip(places, counted, strict=True):
                second, first = (f.load(kind, pair.source, place + n * pitch) for n in range(2))
                both = f.op(kind, f"or {second}, {_upper(f, first).name}")
                f.store(both, pair.to, place)
                found = lesser(f, spec.isa.lanes, found, f.select(mask, both, f.zeros(kind)))
            pair.next(source=f.at(pair.source, 2 * pitch), to=f.at(pair.to, pitch), found=found)
        with f.loop(a.terms & 1, source=pair.source, to=pair.to, found=pair.found) as last:
            found = last.found
            for place, mask in zip(places, counted, strict=True):
                word = _upper(f, f.load(kind, last.source, place))
                f.store(word, last.to, place)
                found = lesser(f, spec.isa.lanes, found, f.select(mask, word, f.zeros(kind)))
            last.next(source=f.at(last.source, pitch), to=f.at(last.to, pitch), found=found)
        tap.next(source=last.source, to=last.to, found=last.found)
    f.store(tap.found, f.leasts)
    f.done()


def _line(module: Module, spec: ForwardSpec) -> None:
    """Emit ``line_words``: ``count`` positions of a line, [position][term], become [position][pair]."""
    f = module.function("line_words", arguments="ptr", to="ptr", source="ptr", count="i64", leasts="ptr")
    a, lanes = arguments(f, spec), spec.isa.lanes
    kind, shift = f"<{lanes} x i32>", (2 * lanes).bit_length() - 1
    pitch = (a.channels + 1 >> 1) * WORD_BYTES
    full = a.channels >> shift
    rest = a.channels - full * (2 * lanes)
    with f.loop(f.count, source=f.source, to=f.to, found=f.load(halves(spec.isa.lanes), f.leasts)) as position:
        with f.loop(full, source=position.source, to=position.to, found=position.found) as many:
            two = [f.load(kind, many.source, n * lanes * F32_BYTES) for n in range(2)]
            second, first = _parted(f, two, 0), _parted(f, two, 1)
            both = f.op(kind, f"or {second}, {_upper(f, first).name}")
            f.store(both, many.to)
            many.next(
                source=f.at(many.source, 2 * lanes * F32_BYTES), to=f.at(many.to, lanes * WORD_BYTES),
                found=lesser(f, spec.isa.lanes, many.found, both),
            )  # fmt: skip
        with f.loop(f.min(rest, 1), found=many.found) as last:
            two = [
                f.masked_load(kind, f.at(many.source, n * lanes * F32_BYTES), f.mask(rest - n * lanes, lanes))
                for n in range(2)
            ]
            second, first = _parted(f, two, 0), _parted(f, two, 1)
            both = f.op(kind, f"or {second}, {_upper(f, first).name}")
            both = f.select(f.mask(rest >> 1, lanes), both, _upper(f, second))
            f.masked_store(both, many.to, f.mask(rest + 1 >> 1, lanes))
            last.next(found=lesser(f, spec.isa.lanes, last.found, both))
        position.next(
            source=f.at(position.source, a.channels * F32_BYTES), to=f.at(position.to, pitch), found=last.found
        )
    f.store(position.found, f.leasts)
    f.done()


def _copied(module: Module, spec: ForwardSpec) -> None:
    """Emit ``line_words``: ``count`` positions of a line as they lie become [position][pair]."""
    f = module.function("line_words", arguments="ptr", to="ptr", source="ptr", count="i64", leasts="ptr")
    a, lanes = arguments(f, spec), spec.isa.lanes
    kind, shift, size = f"<{lanes} x i32>", (2 * lanes).bit_length() - 1, lanes * WORD_BYTES
    pitch = (a.channels + 1 >> 1) * WORD_BYTES
    full = a.channels >> shift
    rest = a.channels - full * (2 * lanes)
    with f.loop(f.count, source=f.source, to=f.to, found=f.load(halves(spec.isa.lanes), f.leasts)) as position:
        with f.loop(full, source=position.source, to=position.to, found=position.found) as many:
            here = f.load(kind, many.source)
            f.store(here, many.to)
            found = lesser(f, spec.isa.lanes, many.found, here)
            many.next(source=f.at(many.source, size), to=f.at(many.to, size), found=found)
        with f.loop(f.min(rest, 1), found=many.found) as last:
            some = load_masked(f, spec.operand, 2 * lanes, many.source, f.mask(rest, 2 * lanes))
            here = f.op(kind, f"bitcast {some} to {kind}")
            f.masked_store(here, many.to, f.mask(rest + 1 >> 1, lanes))
            last.next(found=lesser(f, spec.isa.lanes, last.found, here))
        position.next(source=f.at(position.source, _step(spec, a)), to=f.at(position.to, pitch), found=last.found)
    f.store(position.found, f.leasts)
    f.done()


def _least(module: Module, spec: ForwardSpec) -> None:
    """Emit ``line_least``: the least of ``count`` positions in place, of all at once if nothing is between."""
    f = module.function("line_least", arguments="ptr", source="ptr", count="i64", leasts="ptr")
    a, lanes = arguments(f, spec), 2 * spec.isa.lanes
    shift, size = lanes.bit_length() - 1, spec.item_bytes
    kind, step = halves(spec.isa.lanes), _step(spec, a)
    dense = f.compare("eq", step, a.terms * size)
    positions, terms = f.select(dense, f.value(1), f.count), f.select(dense, f.count * a.terms, a.terms)
    full = terms >> shift
    rest = terms - full * lanes
    with f.loop(positions, source=f.source, found=f.load(kind, f.leasts)) as position:
        with f.loop(full, source=position.source, found=position.found) as many:
            many.next(
                source=f.at(many.source, lanes * size),
                found=lesser(f, spec.isa.lanes, many.found, f.load(kind, many.source)),
            )
        with f.loop(f.min(rest, 1), found=many.found) as last:
            here = load_masked(f, spec.operand, lanes, many.source, f.mask(rest, lanes))
            last.next(found=lesser(f, spec.isa.lanes, last.found, here))
        position.next(source=f.at(position.source, step), found=last.found)
    f.store(position.found, f.leasts)
    f.done()


def _step(spec: ForwardSpec, a: Named) -> Value:
    return along(a, spec)[-1].given
