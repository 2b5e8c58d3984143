"""Packing of portions of 32 positions for tiles of AMX, and what packing for vectors shares with it.

The positions of a portion may be in several rows and images.

If channels are contiguous, a portion's positions have addresses, which are those of zeros where a tap reads padding. If
positions are contiguous, or every second one is read, a portion has segments of positions of a row, which are loaded
under masks. A panel of A has the positions of each channel in a row of 64 bytes; a panel of B has pairs of neighbouring
positions. The minimum exponents of a panel follow it. Before them are the maxima of dst, because zeros times dst add
nothing only if dst is finite.
"""

from __future__ import annotations

from itertools import product

from convgrad.engines.llvm.arguments import Named, columns
from convgrad.engines.llvm.emit import Function, Loop, Module, Value
from convgrad.engines.llvm.microkernel import Values
from convgrad.engines.llvm.pairs import BF16_BYTES, all_finite, greater, halves, lesser, minima_of, nothing_yet
from convgrad.engines.llvm.split_k.nest import SplitKNest, TaskOperand
from convgrad.plan.machine import LINE_BYTES
from convgrad.plan.recipe import CHANNELS, SPATIAL
from convgrad.plan.split_k.portions import ADDRESS_BYTES, PORTIONS_CHAIN, SEGMENT_BITS
from convgrad.plan.split_k.recipe import SplitKOperand, SplitKSpec
from convgrad.plan.tiling import SIDE
from convgrad.spec.order import SPLIT_TERMS

PAIRS = SPLIT_TERMS // 2  # of a portion
PAIRS_AT_ONCE = 4  # of a panel of B that are packed before those of the next panel
ADDRESSES_AT_ONCE = 8
POSITIONS_BYTES = SPLIT_TERMS * ADDRESS_BYTES  # of a portion in the table of a tensor
BITS_BYTES = 8  # of a portion in the table of a tap
WORDS = f"<{SIDE} x i32>"


def lists(module: Module, spec: SplitKSpec) -> None:
    """Emit the functions that list the addresses or the segments of a portion."""
    if CHANNELS in (spec.a.contiguous, spec.b.contiguous):
        addresses(module)
    for name, operand in (("a", spec.a), ("b", spec.b)):
        if operand.contiguous == SPATIAL:
            segments(module, name, operand)


def of_tiles(module: Module, spec: SplitKSpec) -> None:
    """Emit ``pack_a`` and ``pack_b`` for tiles."""
    (pack_rows if spec.a.contiguous == CHANNELS else copy_rows)(module, spec)
    (pack_pairs if spec.b.contiguous == CHANNELS else transpose_rows)(module, spec)


def portion_bytes(spec: SplitKSpec, operand: SplitKOperand) -> int:
    """Return the bytes of a portion in a packed panel."""
    return SPLIT_TERMS * spec.k_bytes(operand)


def finite(n: SplitKNest, a: Value, b: Value) -> Value:
    """Return 0 if dst in panels of A and B is not finite and a tap reads padding, else -1."""
    f = n.f
    x, panel = (n.b, b) if n.a.operand.moves else (n.a, a)
    of_dst = all_finite(f, n.spec.isa, f.at(minima_of(f, panel, x.args.panel), -LINE_BYTES))
    harmless = f.op("i1", f"or {f.compare('eq', n.args.padded, 0)}, {of_dst.name}")
    return f.select(harmless, f.value(-1), f.value(0))


def panels(n: SplitKNest, x: TaskOperand, block: Named, group: Value, own: Values, tap: Value | None) -> None:
    """Pack all panels of an operand for a cache block: src at the positions that a tap reads, or dst."""
    f, args, t = n.f, n.args, n.task
    begin = f.at(f.scratch, x.args.at)
    with f.loop(x.task.count, panel=begin) as panel:
        minima = minima_of(f, panel.panel, x.args.panel)
        nothing_yet(f, n.spec.isa, minima)
        f.store(f.zeros(halves(n.spec.isa.lanes)), minima, -LINE_BYTES)
        panel.next(panel=f.at(panel.panel, x.args.panel))
    shift = f.value(0) if tap is None else f.load("i64", f.at(args.taps, tap * 8))
    source = f.at(f.at(x.args.data, (t.group + group) * x.args.group), shift)
    of_chains = {"chain": f.at(args.chains, block.chain * PORTIONS_CHAIN.bytes), "to": begin}
    with f.loop(block.chains, **of_chains) as iteration:
        chain = columns(f, iteration.chain, PORTIONS_CHAIN)
        first = f.at(source, chain.image * x.args.image)
        spatial = x.operand.contiguous == SPATIAL
        positions_bytes = x.args.segments * SEGMENT_BITS.bytes if spatial else f.value(POSITIONS_BYTES)
        of_portions = {
            "positions": f.at(x.args.packed, chain.portion * positions_bytes),
            "existing": f.at(args.existing, ((tap or f.value(0)) * args.portions + chain.portion) * BITS_BYTES),
            "to": iteration.to,
        }
        with f.loop(chain.portions, left=chain.terms, **of_portions) as portion:
            bits = within(f, portion.left)
            if tap is not None:
                bits = bits & f.load("i64", portion.existing)
            of_portion = {"to": own["addresses"], "first": first, "positions": portion.positions, "existing": bits}
            if spatial:
                f.call(f"segments_{x.name}", **of_portion, count=x.args.segments, count_at=own["count"])
                more = {"segments": f.load("i64", own["count"]), "channel": x.args.channel}
                more |= {} if n.spec.amx_tiles and x.name == "a" else {"rows": own["rows"]}
            else:
                f.call("addresses", **of_portion, absent=own["zeros"])
                more = {"prefetch_bytes": x.args.prefetch} if n.spec.amx_tiles and x.name == "a" else {}
            channel = n.first(x, x.task.first)
            f.call(
                f"pack_{x.name}",
                to=portion.to,
                addresses=own["addresses"],
                offset=channel * x.args.channel,
                left=x.args.channels - channel,
                panels=x.task.count,
                step=x.args.panel,
                minima=minima_of(f, begin, x.args.panel),
                **more,
            )
            portion.next(
                left=portion.left - SPLIT_TERMS,
                positions=f.at(portion.positions, positions_bytes),
                existing=f.at(portion.existing, BITS_BYTES),
                to=f.at(portion.to, portion_bytes(n.spec, x.operand)),
            )
        iteration.next(chain=f.at(iteration.chain, PORTIONS_CHAIN.bytes), to=portion.to)


def within(f: Function, terms: Value) -> Value:
    """Return the bits of a portion's terms, of which ``terms`` are left in the chain."""
    bits = f.op("i64", f"shl i64 1, {f.min(terms, SPLIT_TERMS).name}")
    return bits - 1


def addresses(module: Module) -> None:
    """Emit ``addresses``, which lists the address of each position of a portion, or of zeros if it does not exist."""
    f = module.function("addresses", False, to="ptr", first="ptr", positions="ptr", existing="i64", absent="ptr")
    numbers = (f.op("i64", f"ptrtoint {place} to i64") for place in (f.first, f.absent))
    first, absent = (f.splat(number, ADDRESSES_AT_ONCE) for number in numbers)
    for at in range(0, SPLIT_TERMS, ADDRESSES_AT_ONCE):
        places = f.op(first.type, f"add {first}, {f.load(first.type, f.positions, at * ADDRESS_BYTES).name}")
        bits = f.op(f"i{ADDRESSES_AT_ONCE}", f"trunc {f.existing >> at} to i{ADDRESSES_AT_ONCE}")
        exist = f.op(f"<{ADDRESSES_AT_ONCE} x i1>", f"bitcast {bits} to <{ADDRESSES_AT_ONCE} x i1>")
        f.store(f.select(exist, places, absent), f.to, at * ADDRESS_BYTES)
    f.done()


def segments(module: Module, name: str, operand: SplitKOperand) -> None:
    """Emit ``segments_a`` or ``segments_b``, which lists the segments of a portion that exist.

    It stores their number at ``count_at``. If every second position is read, bits are spread, so that there is one for
    each position.
    """
    parameters = {"first": "ptr", "positions": "ptr", "existing": "i64", "count": "i64", "count_at": "ptr"}
    f = module.function(f"segments_{name}", False, to="ptr", **parameters)
    with f.loop(f.count, place=f.positions, to=f.to, number=f.value(0)) as segment:
        offset, bits = (f.load("i64", segment.place, SEGMENT_BITS.at(column)) for column in SEGMENT_BITS.columns)
        existing = bits & f.existing
        f.store(f.at(f.first, offset), segment.to, SEGMENT_BITS.at("offset"))
        f.store(existing if operand.stride == 1 else _spread(f, existing), segment.to, SEGMENT_BITS.at("bits"))
        count = f.select(f.compare("ne", existing, 0), f.value(1), f.value(0))
        to = f.at(segment.to, count * SEGMENT_BITS.bytes)
        segment.next(place=f.at(segment.place, SEGMENT_BITS.bytes), to=to, number=segment.number + count)
    f.store(segment.number, f.count_at)
    f.done()


def _spread(f: Function, bits: Value) -> Value:
    """Return 32 bits as every second bit of 64, the first of which is the lowest."""
    for distance in (16, 8, 4, 2, 1):
        kept = sum(((1 << distance) - 1) << at for at in range(0, 64, 2 * distance))
        both = f.op("i64", f"or {bits}, {f.op('i64', f'shl {bits}, {distance}').name}")
        bits = both & (kept - (kept >> 63 << 64))
    return bits


PACKING = {
    "to": "ptr",
    "addresses": "ptr",  # of positions, or the segments
    "offset": "i64",  # of the first channel
    "left": "i64",  # channels from there on
    "panels": "i64",
    "step": "i64",  # bytes from a panel to the next
    "minima": "ptr",  # of the first panel
}
PREFETCH = {"prefetch_bytes": "i64"}  # bytes to the memory that is prefetched
SEGMENTS = {"segments": "i64", "channel": "i64"}  # the number of segments, and the bytes from a channel to the next


def copy_rows(module: Module, spec: SplitKSpec) -> None:
    """Emit ``pack_a`` for contiguous positions. The last panel may overlap the one before."""
    f, width = module.function("pack_a", False, **PACKING, **SEGMENTS), spec.a.width
    with f.loop(f.panels, to=f.to, minima=f.minima) as panel:
        first = f.offset + f.min(panel.index * width, f.left - width) * f.channel
        by_segments(f, spec.a, (panel.to, panel.minima), f.value(width), first)
        panel.next(to=f.at(panel.to, f.step), minima=f.at(panel.minima, f.step))
    f.done()


def transpose_rows(module: Module, spec: SplitKSpec) -> None:
    """Emit ``pack_b`` for contiguous positions. ``rows`` is memory for rows, which are transposed."""
    f, vectors = module.function("pack_b", False, **PACKING, **SEGMENTS, rows="ptr"), spec.micro_tile.nr
    with f.loop(f.panels, to=f.to, minima=f.minima, offset=f.offset, left=f.left) as panel:
        for v in range(vectors):
            count = f.min(panel.left - v * SIDE, SIDE)
            by_segments(f, spec.b, (f.rows, panel.minima), count, panel.offset + f.channel * (v * SIDE))
            square = f.transposed([f.load(WORDS, f.rows, row * LINE_BYTES) for row in range(SIDE)], SIDE)
            for pair, vector in enumerate(square):
                f.store(vector, panel.to, (pair * vectors + v) * LINE_BYTES)
        panel.next(
            to=f.at(panel.to, f.step),
            minima=f.at(panel.minima, f.step),
            offset=panel.offset + f.channel * (vectors * SIDE),
            left=panel.left - vectors * SIDE,
        )
    f.done()


def by_segments(f: Function, operand: SplitKOperand, places: tuple[Value, Value], count: Value, offset: Value) -> None:
    """Copy the positions of ``count`` channels, the first of which has the ``offset``, to rows.

    ``places`` are the addresses of the rows and of the minima. ``f`` has the parameters PACKING and SEGMENTS.
    """
    kind, lanes, (to, smallest) = halves(SIDE), SPLIT_TERMS * operand.stride, places
    with f.loop(count, to=to, offset=offset) as row:
        with f.loop(f.segments, place=f.addresses, some=f.zeros(kind)) as segment:
            first = f.at(f.load("ptr", segment.place, SEGMENT_BITS.at("offset")), row.offset)
            bits = f.load(f"i{lanes}", segment.place, SEGMENT_BITS.at("bits"))
            mask = f.op(f"<{lanes} x i1>", f"bitcast {bits} to <{lanes} x i1>")
            values = f.masked_load(f"<{lanes} x i16>", first, mask)
            if operand.stride > 1:
                values = f.shuffle(values, values, list(range(0, lanes, operand.stride)))
            some = f.op(kind, f"or {segment.some}, {values.name}")
            segment.next(place=f.at(segment.place, SEGMENT_BITS.bytes), some=some)
        f.store(segment.some, row.to)
        extremes = Extremes(f, SIDE, smallest, of_dst=not operand.moves)
        extremes.add(segment.some)
        extremes.store()
        row.next(to=f.at(row.to, LINE_BYTES), offset=row.offset + f.channel)


def pack_rows(module: Module, spec: SplitKSpec) -> None:
    """Emit ``pack_a``, which packs a portion of all panels of A: the positions of each channel in a row.

    Channels are contiguous. The last panel may overlap the one before.
    """
    f, width = module.function("pack_a", False, **PACKING, **PREFETCH), spec.a.width
    with f.loop(f.panels, to=f.to, minima=f.minima) as panel:
        first = f.offset + f.min(panel.index * width, f.left - width) * BF16_BYTES
        extremes = Extremes(f, SIDE, panel.minima, of_dst=not spec.a.moves)
        for row in range(0, width, SIDE):
            count = min(SIDE, width - row)
            mask = f.mask(f.value(count), SIDE) if count < SIDE else None
            here, vectors = first + row * BF16_BYTES, []
            for pair in range(PAIRS):
                places = f.at(f.addresses, pair * 2 * ADDRESS_BYTES)
                vectors.append(_words(f, places, here, mask, f.prefetch_bytes if not row else None))
            for vector in vectors:
                extremes.add(vector)
            for number, vector in enumerate(f.transposed(vectors, SIDE)[:count]):
                f.store(vector, panel.to, (row + number) * LINE_BYTES)
        extremes.store()
        panel.next(to=f.at(panel.to, f.step), minima=f.at(panel.minima, f.step))
    f.done()


def pack_pairs(module: Module, spec: SplitKSpec) -> None:
    """Emit ``pack_b``, which packs a portion of all panels of B: pairs of positions of all channels.

    Channels are contiguous. Panels are the inner loop, so that memory is read in its order.
    """
    f, vectors = module.function("pack_b", False, **PACKING), spec.micro_tile.nr

    def packed(panel: Loop, masks: list[Value | None]) -> None:
        extremes = Extremes(f, SIDE, panel.minima, of_dst=not spec.b.moves)
        for n, (v, mask) in product(range(PAIRS_AT_ONCE), enumerate(masks)):
            places = f.at(panel.places, n * 2 * ADDRESS_BYTES)
            words = _words(f, places, panel.offset + v * SIDE * BF16_BYTES, mask)
            f.store(words, panel.to, (n * vectors + v) * LINE_BYTES)
            extremes.add(words)
        extremes.store()

    whole = f.min(f.panels, f.op("i64", f"sdiv {f.left}, {vectors * SIDE}"))
    with f.loop(PAIRS // PAIRS_AT_ONCE, to=f.to, addresses=f.addresses) as pairs:
        begin = {"to": pairs.to, "minima": f.minima, "offset": f.offset, "places": pairs.addresses}
        with f.loop(whole, **begin) as panel:
            packed(panel, [None] * vectors)
            panel.next(
                to=f.at(panel.to, f.step),
                minima=f.at(panel.minima, f.step),
                offset=panel.offset + vectors * SIDE * BF16_BYTES,
            )
        with f.loop(f.panels - whole, **panel.carried) as last:
            remainder = f.left - whole * (vectors * SIDE)
            packed(last, [f.mask(remainder - v * SIDE, SIDE) for v in range(vectors)])
        pairs.next(
            to=f.at(pairs.to, PAIRS_AT_ONCE * vectors * LINE_BYTES),
            addresses=f.at(pairs.addresses, PAIRS_AT_ONCE * 2 * ADDRESS_BYTES),
        )
    f.done()


class Extremes:
    """The minima of a panel of pairs, and the maxima of a panel of dst, which more bf16 values lower and raise."""

    def __init__(self, f: Function, lanes: int, minima: Value, of_dst: bool, of_pairs: bool = True) -> None:
        self.f, self.lanes, self.minima, self.maxima = f, lanes, minima, f.at(minima, -LINE_BYTES)
        self.smallest = f.load(halves(lanes), minima) if of_pairs else None
        self.largest = f.load(halves(lanes), self.maxima) if of_dst else None

    def add(self, words: Value) -> None:
        """Take the values of a vector of ``lanes`` words, each of which has two."""
        f = self.f
        if self.smallest is not None:
            self.smallest = lesser(f, self.lanes, self.smallest, words)
        if self.largest is not None:
            self.largest = greater(f, self.lanes, self.largest, words)

    def store(self) -> None:
        """Store the new minima and maxima."""
        if self.smallest is not None:
            self.f.store(self.smallest, self.minima)
        if self.largest is not None:
            self.f.store(self.largest, self.maxima)


def _words(f: Function, places: Value, offset: Value, mask: Value | None, prefetch_bytes: Value | None = None) -> Value:
    """Load a vector of channels at two positions, whose addresses are at ``places``, as pairs of positions.

    With ``prefetch_bytes``, prefetch the memory that many bytes after them.
    """
    kind, halves_of_words = f"<{SIDE} x i16>", []
    for n in range(2):
        place = f.at(f.load("ptr", places, n * ADDRESS_BYTES), offset)
        if prefetch_bytes is not None:
            f.prefetch(f.at(place, prefetch_bytes))
        values = f.load(kind, place) if mask is None else f.masked_load(kind, place, mask)
        halves_of_words.append(f.op(WORDS, f"zext {values} to {WORDS}"))
    low, high = halves_of_words
    high = f.op(WORDS, f"shl {high}, {f.everywhere(WORDS, 16).name}")
    return f.op(WORDS, f"or {low}, {high.name}")
