"""The IR of drivers that add results of maps, and products of two results, per channel, in the specified order.

Each driver writes one f64 per section and channel. ``_rows`` reads tensors whose positions are contiguous, and keeps
the chains in the lanes of vectors. ``_columns`` reads tensors whose channels are contiguous: its vectors have
neighbouring channels, and the chains of a strip of channels are in scratch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from convgrad.engines.llvm.arguments import Named
from convgrad.engines.llvm.convert import BYTES, read, store_masked, write
from convgrad.engines.llvm.elementwise.arithmetic import Vector, VectorOperations, narrowed, widened
from convgrad.engines.llvm.elementwise.maps import digits_from, record_of
from convgrad.engines.llvm.emit import Function, Value
from convgrad.engines.tensors import PER_ROW
from convgrad.formats import F32
from convgrad.plan.machine import Isa
from convgrad.plan.records import Record, addresses
from convgrad.spec.elementwise.sums import CHAINS, SECTION
from convgrad.spec.elementwise.table import MAPS

STRIP = 1024  # channels of a task of ``_columns``, at most: wide strips read memory in long pieces
WIDTH = CHAINS  # channels of a vector of ``_columns``
PREFETCH_BYTES = 2048  # from a row of ``_rows`` to its prefetch, because automatic ones end with each page
IN_TURN = 4  # positions of a chain that ``_columns`` adds before it stores the chain
F64_BYTES = 8
_WIDE = f"<{CHAINS} x double>"


@dataclass(frozen=True)
class SumsSpec:
    """What the code depends on; the fields are those of ``Summands``, with the formats of all its tensors."""

    isa: Isa
    name: str
    formats: tuple[str, ...]
    channels_last: bool
    plain: bool
    products: bool
    stored: bool
    by_rows: bool = False  # whether a task has all sections of some channels; only for ``_rows``

    @property
    def sums(self) -> int:
        """The number of sums per channel."""
        return self.plain + self.products


def arguments_of(spec: SumsSpec) -> Record:
    """Return the arguments of the tasks. A group has ``group`` images, and an image ``sections`` sections."""
    numbers = Record("images", "group", "groups", "sections", "positions", "channels", "all_sections")
    numbers += Record("task_units", "strips", "strip", "chain")
    return record_of(len(spec.formats), addresses("out"), numbers)


def emit_task(f: Function, spec: SumsSpec, a: Named, task: Value) -> None:
    """Emit the sums of sections and channels."""
    (_columns if spec.channels_last else _rows)(f, spec, a, task)


def _added(
    f: Function, spec: SumsSpec, sums: list[Value], pointers: list[Value], mask: Value | None = None
) -> list[Value]:
    """Return the sums with the vectors at ``pointers`` added; terms become f64, so that products are exact.

    Terms outside of ``mask`` are 0, also if the map of 0 is not.
    """
    of_map, elements = MAPS[spec.name], []
    for at, fmt in zip(pointers[: _operands(spec)], spec.formats, strict=False):
        if fmt == PER_ROW:
            value = f.splat(f.load("double" if of_map.wide else "float", at), CHAINS)
        else:
            value = read(f, fmt, at, CHAINS, mask)
            value = widened(f, value) if of_map.wide else value
        elements.append(Vector(f, (value,)))
    arithmetic = VectorOperations(f, CHAINS, of_map.wide)
    terms = of_map.definition(arithmetic, *elements)
    values = [term.values[0] for term in (terms if isinstance(terms, tuple) else (terms,))][: 1 + spec.products]
    values = [narrowed(f, value) for value in values] if of_map.wide else values
    if spec.stored:
        write(f, F32.name, values[:1], pointers[-1], mask)
    if mask is not None:
        values = [f.select(mask, term, f.zeros(term.type)) for term in values]
    wide = [widened(f, term) for term in values]
    totals = []
    if spec.plain:
        totals.append(f.add(sums[0], wide[0]))
    if spec.products:
        totals.append(f.fma(wide[0], wide[1], sums[-1]))
    return totals


def _operands(spec: SumsSpec) -> int:
    return len(spec.formats) - spec.stored


def _sides(a: Named, spec: SumsSpec) -> list[Named]:
    """Return the arguments of each tensor."""
    return [a.of(f"t{number}") for number in range(len(spec.formats))]


def _images_of(f: Function, a: Named, group: Value) -> Value:
    """Return the number of images of a group."""
    return f.min(a.group, a.images - group * a.group)


# -- positions are contiguous --------------------------------------------------------------------------------------


def _rows(f: Function, spec: SumsSpec, a: Named, task: Value) -> None:
    """Emit the sums of the units of a task: of sections of a channel, or of channels if ``by_rows``."""
    first, channels, first_channel = task * a.task_units, a.channels, f.value(0)
    if spec.by_rows:
        first, first_channel = f.value(0), first
        channels = f.min(a.task_units, a.channels - first_channel)
        count = a.groups * channels * a.sections
    else:
        count = f.min(a.task_units, a.all_sections * a.channels - first)
    with digits_from(f, first, count, channels, a.sections) as (group, inner, inside):  # in the order of memory
        channel = first_channel + inner
        section = group * a.sections + inside
        begin = inside * SECTION
        length = f.min(a.positions - begin, SECTION)
        zeros = {f"s{s}": f.zeros(_WIDE) for s in range(spec.sums)}
        with f.loop(_images_of(f, a, group), **zeros) as image:
            pointers = []
            for side, fmt in zip(_sides(a, spec), spec.formats, strict=True):
                start = f.at(side.data, (group * a.group + image.index) * side.outer + channel * side.row)
                pointers.append(f.at(start, begin * BYTES[fmt]) if fmt else start)
            image.next(**_named(_chains(f, spec, pointers, length, [*image.carried.values()])))
        for s, total in enumerate(image.carried.values()):
            there = (a.all_sections * s + section) * a.channels + channel
            f.store(_halved(f, total), f.at(a.out, there * F64_BYTES))


def _named(sums: list[Value]) -> dict[str, Value]:
    return {f"s{s}": value for s, value in enumerate(sums)}


def _chains(f: Function, spec: SumsSpec, pointers: list[Value], length: Value, sums: list[Value]) -> list[Value]:
    """Return the chains with the elements of a row added: CHAINS elements at a time, then the last ones by a mask."""

    def there(at: Value) -> list[Value]:
        return [
            f.at(pointer, at * BYTES[fmt]) if fmt else pointer
            for pointer, fmt in zip(pointers, spec.formats, strict=True)
        ]

    whole = length >> CHAINS.bit_length() - 1
    with f.loop(whole, **_named(sums)) as loop:
        places = there(loop.index * CHAINS)
        for pointer, fmt in zip(places, spec.formats, strict=True):
            if fmt:
                f.prefetch(f.at(pointer, PREFETCH_BYTES))
        added = _added(f, spec, [*loop.carried.values()], places)
        loop.next(**_named(added))
    left = length - whole * CHAINS
    with f.loop(f.min(left, 1), **loop.carried) as last:
        mask = f.mask(left, CHAINS)
        last.next(**_named(_added(f, spec, [*last.carried.values()], there(whole * CHAINS), mask)))
    return [*last.carried.values()]


def _halved(f: Function, chains: Value) -> Value:
    """Return the sum of the chains: chain j + chain j + half, until one is left."""
    lanes = CHAINS
    while lanes > 1:
        lanes //= 2
        low, high = (f.shuffle(chains, chains, [first + lane for lane in range(lanes)]) for first in (0, lanes))
        chains = f.add(low, high)
    return f.op("double", f"extractelement {chains}, i64 0")


# -- channels are contiguous ---------------------------------------------------------------------------------------


def _columns(f: Function, spec: SumsSpec, a: Named, task: Value) -> None:
    """Emit the sums of a strip of channels over a section."""
    section, strip = f.divided(task, a.strips)
    group, inside = f.divided(section, a.sections)
    begin, first = inside * SECTION, strip * a.strip
    width = f.min(a.channels - first, a.strip)
    length = f.min(a.positions - begin, SECTION)
    _reset(f, spec, a, _count_of_vectors(width))
    with f.loop(_images_of(f, a, group)) as image:
        number = group * a.group + image.index
        pointers = []
        for side, fmt in zip(_sides(a, spec), spec.formats, strict=True):
            start = f.at(side.data, number * side.outer + begin * side.row)
            pointers.append(f.at(start, first * BYTES[fmt]) if fmt else start)
        _add_positions(f, spec, a, pointers, length, width)
    for s in range(spec.sums):
        out = f.at(a.out, ((a.all_sections * s + section) * a.channels + first) * F64_BYTES)
        _store_strip(f, a, s, width, out)


def _chain_at(f: Function, a: Named, s: int, chain: Value, channel: Value) -> Value:
    """Return the address of a chain of sum ``s``, at a channel. ``a.chain`` are the bytes between two chains."""
    return f.at(f.scratch, (chain + s * CHAINS) * a.chain + channel * F64_BYTES)


def _reset(f: Function, spec: SumsSpec, a: Named, vectors: Value) -> None:
    with f.loop(CHAINS * spec.sums) as chain, f.loop(vectors) as vector:  # the chains of all sums are consecutive
        f.store(f.zeros(_WIDE), _chain_at(f, a, 0, chain.index, vector.index * WIDTH))


def _count_of_vectors(width: Value) -> Value:
    """Return the number of vectors of a strip, the last of which may not be whole."""
    return width + (WIDTH - 1) >> WIDTH.bit_length() - 1


def _vectors(f: Function, width: Value, emit: Callable[[Value, Value | None], None]) -> None:
    """Emit code for the vectors of a strip of channels; the last one has a mask if it is not whole."""
    whole = width >> WIDTH.bit_length() - 1
    with f.loop(whole) as loop:
        emit(loop.index * WIDTH, None)
    left = width - whole * WIDTH
    with f.loop(f.min(left, 1)):
        emit(whole * WIDTH, f.mask(left, WIDTH))


def _add_positions(f: Function, spec: SumsSpec, a: Named, pointers: list[Value], length: Value, width: Value) -> None:
    """Emit the additions of the positions of a section of one image."""
    rows = [side.row for side in _sides(a, spec)]
    tile = CHAINS * IN_TURN

    def add(first: Value, chain: Value, positions: int | Value) -> None:
        """Emit the additions of positions that are CHAINS apart to their chain; the code of an int is unrolled."""
        starts = [f.at(pointer, first * row) for pointer, row in zip(pointers, rows, strict=True)]

        def emit(channel: Value, mask: Value | None) -> None:
            def added(sums: list[Value], number: int | Value) -> list[Value]:
                places = []
                for start, row, fmt in zip(starts, rows, spec.formats, strict=True):
                    here = f.at(start, row * CHAINS * number)
                    places.append(f.at(here, channel * BYTES[fmt]) if fmt else here)
                    if fmt:
                        f.prefetch(f.at(places[-1], row * tile), 2)  # strips are too short for automatic prefetches
                return _added(f, spec, sums, places, mask)

            there = [_chain_at(f, a, s, chain, channel) for s in range(spec.sums)]
            sums = [f.load(_WIDE, at) for at in there]
            if isinstance(positions, int):
                for number in range(positions):
                    sums = added(sums, number)
            else:
                with f.loop(positions, **_named(sums)) as loop:
                    loop.next(**_named(added([*loop.carried.values()], loop.index)))
                sums = [*loop.carried.values()]
            for at, total in zip(there, sums, strict=True):
                f.store(total, at)

        _vectors(f, width, emit)

    tiles = length >> tile.bit_length() - 1
    with f.loop(tiles) as loop, f.loop(CHAINS) as chain:
        add(loop.index * tile + chain.index, chain.index, IN_TURN)
    done = tiles * tile
    left = length - done
    with f.loop(f.min(left, CHAINS)) as chain:  # fewer than IN_TURN positions of each chain, or as many
        add(done + chain.index, chain.index, left - chain.index + (CHAINS - 1) >> CHAINS.bit_length() - 1)


def _store_strip(f: Function, a: Named, s: int, width: Value, out: Value) -> None:
    """Emit the halving tree over the chains of sum ``s``, and the stores of the strip's sums."""
    half = CHAINS
    while half > 1:
        half //= 2
        with f.loop(half) as chain, f.loop(_count_of_vectors(width)) as vector:
            at = _chain_at(f, a, s, chain.index, vector.index * WIDTH)
            f.store(f.add(f.load(_WIDE, at), f.load(_WIDE, f.at(at, a.chain * half))), at)

    def store(channel: Value, mask: Value | None) -> None:
        total = f.load(_WIDE, _chain_at(f, a, s, f.value(0), channel))
        store_masked(f, total, f.at(out, channel * F64_BYTES), mask)

    _vectors(f, width, store)
