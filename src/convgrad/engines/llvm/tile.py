"""The tile: one block of terms of an outer product of channels, summed in registers and joined into a partial sum."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product

from convgrad.engines.llvm.emit import Function, Loop, Module, Value
from convgrad.plan.lines import LINE, NOWHERE
from convgrad.plan.rates import TILE_AHEAD
from convgrad.plan.recipe import F32_BYTES, KernelSpec
from convgrad.plan.taps import SEGMENT

LINE_ROW_BYTES = 8 * len(LINE)


def tile(module: Module, spec: KernelSpec, vectors: int) -> None:
    """Emit ``tile<vectors>``: sum[t][r][v] = sum over images, lines, positions of x[r] * y[v], joined into ``partial``.

    A line is a row of dst, or a stretch of one, and a segment one of the positions under which the same taps of the
    tile exist: what a line and a segment share is summed. What a line meets by an outer tap lies at a place, in bytes
    at position 0, so that a tap is just another offset of the operand that moves with it. One tap has one segment, and
    is never absent in it. Of several, the block is summed as if all of them existed wherever one does, as src has zeros
    on its padding; only where that gives a sum that is not finite it is summed again by ``segments``: where taps are
    absent, sums stay.
    """
    f = module.function(
        f"tile{vectors}",
        partial="ptr", first="i1", x="ptr", y="ptr", images="i64", x_image="i64", y_image="i64",
        lines_at="ptr", line_count="i64", places="ptr", shifts="ptr", mask_bytes="i64", swapped="i64", whole="ptr",
        segments="ptr", segment_count="i64", masks="ptr",
        x_step="i64", y_step="i64", tap_step="i64", x_next="i64",
    )  # fmt: skip
    tile, kind = spec.tile, f"<{spec.isa.lanes} x float>"
    names = [f"sum{t}_{r}_{v}" for t, r, v in product(range(tile.taps), range(tile.rows), range(vectors))]
    zeros, one = {name: f.zeros(kind) for name in names}, f.value(1)
    if tile.taps == 1:
        sums = _images(f, spec, vectors, f.images, (f.whole, one), zeros)
    else:
        with f.loop(f.hidden(f.value(2)), images=f.images, segments=f.whole, number=one, **zeros) as attempt:
            found = _images(f, spec, vectors, attempt.images, (attempt.segments, attempt.number), _of(attempt, names))
            again = f.compare("eq", attempt.index, 0) & _some_is_not_finite(f, list(found.values()))
            attempt.next(
                images=f.select(again, f.images, f.value(0)), segments=f.segments, number=f.segment_count,
                **{name: f.select(again, zeros[name], found[name]) for name in names},
            )  # fmt: skip
        sums = _of(attempt, names)
    _join(f, spec, vectors, list(sums.values()))
    f.done()


def outer_taps(f: Function, spec: KernelSpec, places: Value, shifts: Value) -> list[Value]:
    """Return where in the table of places what each of a tile's outer taps meets begins."""
    return [f.at(places, f.load("i64", shifts, 8 * u)) for u in range(spec.tile.outer_taps)]


class Met:
    """A line: its positions, none where no outer tap of the tile exists, and what it meets.

    An outer tap that does not exist, beside one that does, has the place of another: what is read there is dropped.
    """

    def __init__(self, f: Function, line: Value, taps: list[Value]) -> None:
        self.first, end, self.fixed, number = (f.load("i64", line, 8 * at) for at in range(len(LINE)))
        found = [f.load("i64", f.at(tap, number)) for tap in taps]
        some = reduce(f.most, found)
        self.end = f.select(f.compare("eq", some, NOWHERE), self.first, end)
        self.missing = [f.compare("eq", place, NOWHERE) for place in found]
        self.places = [f.select(missing, some, place) for missing, place in zip(self.missing, found, strict=True)]
        self.f = f

    def absent(self, mask_bytes: Value) -> Value:
        """Return how far in the table of masks those are that tell which of several outer taps exist."""
        if len(self.missing) == 1:
            return self.f.value(0)
        bits = (self.f.select(one, mask_bytes * (1 << u), self.f.value(0)) for u, one in enumerate(self.missing))
        return reduce(lambda a, b: a + b, bits)


def _images(
    f: Function, spec: KernelSpec, vectors: int, images: Value, segments: tuple[Value, Value], sums: dict[str, Value]
) -> dict[str, Value]:
    """Sum all images by some segments; return the sums after them."""
    names, one = list(sums), _segment(f, segments[0]) if spec.tile.taps == 1 else None
    taps = outer_taps(f, spec, f.places, f.shifts)
    with f.loop(images, x=f.x, y=f.y, **sums) as image:
        with f.loop(f.line_count, line=f.lines_at, **_of(image, names)) as line:
            met = Met(f, line.line, taps)
            if one is not None:
                after = _stretch(f, spec, vectors, image, met, 0, one, _of(line, names))
            else:
                absent = met.absent(f.mask_bytes)
                with f.loop(segments[1], segment=segments[0], **_of(line, names)) as segment:
                    words = _segment(f, segment.segment)
                    done = _stretch(f, spec, vectors, image, met, absent, words, _of(segment, names))
                    segment.next(segment=f.at(segment.segment, 8 * len(SEGMENT)), **done)
                after = _of(segment, names)
            line.next(line=f.at(line.line, LINE_ROW_BYTES), **after)
        image.next(x=f.at(image.x, f.x_image), y=f.at(image.y, f.y_image), **_of(line, names))
    return _of(image, names)


def _some_is_not_finite(f: Function, sums: list[Value]) -> Value:
    """Tell whether a sum is NaN or infinite, or all together too large: times 0 their sum is not 0."""
    while len(sums) > 1:
        sums = [f.add(a, b) for a, b in zip(sums[::2], sums[1::2], strict=False)] + sums[len(sums) // 2 * 2 :]
    kind = sums[0].type
    lanes = kind[1:].split(" x ")[0]
    zero = f.fma(sums[0], f.zeros(kind), f.zeros(kind))
    odd = f.op(f"<{lanes} x i1>", f"fcmp uno {zero}, zeroinitializer")
    return f.intrinsic("i1", f"llvm.vector.reduce.or.v{lanes}i1", odd)


def _of(loop: Loop, names: list[str]) -> dict[str, Value]:
    return {name: loop.carried[name] for name in names}


def _segment(f: Function, segment: Value) -> dict[str, Value]:
    return {name: f.load("i64", segment, 8 * at) for at, name in enumerate(SEGMENT)}


def _stretch(
    f: Function, spec: KernelSpec, vectors: int, image: Loop, met: Met, absent_outer: Value | int,
    segment: dict[str, Value], sums: dict[str, Value],
) -> dict[str, Value]:  # fmt: skip
    """The positions that a line and a segment share, all taps there or some absent; return the sums after them."""
    begin = f.most(met.first, segment["low"])
    count = f.least(met.end, segment["high"]) - begin
    moving, fixed = met.places, met.fixed
    if spec.tile.taps == 1:  # its kernel is the same whichever operand its rows are from
        swapped = f.compare("ne", f.swapped, 0)
        moving, fixed = [f.select(swapped, fixed, moving[0])], f.select(swapped, moving[0], fixed)
    offsets = (moving, [fixed]) if spec.rows.moves else ([fixed], moving)
    x, y = (
        {f"{name}{at}": f.at(start, offset + begin * step) for at, offset in enumerate(found)}
        for name, start, found, step in zip("xy", (image.x, image.y), offsets, (f.x_step, f.y_step), strict=True)
    )
    if spec.tile.taps == 1:
        return _positions(f, spec, vectors, count, x, y, sums, None)
    absent = segment["absent"] + absent_outer
    whole = f.select(f.compare("eq", absent, 0), count, f.value(0))
    sums = _positions(f, spec, vectors, whole, x, y, sums, None)
    return _positions(f, spec, vectors, count - whole, x, y, sums, f.at(f.masks, absent))


def _positions(
    f: Function, spec: KernelSpec, vectors: int, count: Value, x: dict[str, Value], y: dict[str, Value],
    sums: dict[str, Value], masks: Value | None,
) -> dict[str, Value]:  # fmt: skip
    """A loop over positions; under ``masks`` the sums of absent taps are kept."""
    tile, lanes = spec.tile, spec.isa.lanes
    there = [None] * tile.taps if masks is None else [_there(f, masks, t, lanes) for t in range(tile.taps)]
    inner = [k * spec.term_bytes(spec.moving) if spec.adjacent else f.tap_step * k for k in range(tile.inner_taps)]
    with f.loop(count, **x, **y, **sums) as at:
        rows, columns = ([at.carried[name] for name in side] for side in (x, y))
        if spec.lanes.moves:
            held = _row(f, spec, rows[0], 0)
        else:
            columns_here = _columns(f, spec, columns[0], vectors, 0)
        if tile.taps == 1:
            _prefetch(f, spec, rows[0], columns[0], vectors)
        for t, (outer, k) in enumerate(product(range(tile.outer_taps), inner)):
            if spec.lanes.moves:
                columns_here = _columns(f, spec, columns[outer], vectors, k)
            for r in range(tile.rows):
                row = _item(f, spec, rows[outer], r, k) if spec.rows.moves else held[r]
                for v in range(vectors):
                    name = f"sum{t}_{r}_{v}"
                    total = f.fma(row, columns_here[v], at.carried[name])
                    mask = there[t]
                    at.next(**{name: total if mask is None else f.select(mask, total, at.carried[name])})
        at.next(**{n: f.at(at.carried[n], f.x_step) for n in x}, **{n: f.at(at.carried[n], f.y_step) for n in y})
    return _of(at, list(sums))


def _there(f: Function, masks: Value, tap: int, lanes: int) -> Value:
    """Return a mask of all lanes or none: whether a tap exists."""
    word = f.splat(f.load("i32", masks, tap * 4), lanes)
    return f.op(f"<{lanes} x i1>", f"icmp ne {word}, zeroinitializer")


def _item(f: Function, spec: KernelSpec, rows: Value, r: int, shift: Value | int) -> Value:
    """Load an item of the rows: a channel's value in all lanes, or a channel of each lane's group."""
    lanes = spec.isa.lanes
    place = f.at(rows, shift)
    if spec.groups_in_lanes:
        return f.load(f"<{lanes} x float>", place, r * lanes * F32_BYTES)
    return f.splat(f.load("float", place, r * F32_BYTES), lanes)


def _row(f: Function, spec: KernelSpec, rows: Value, shift: int) -> list[Value]:
    return [_item(f, spec, rows, r, shift) for r in range(spec.tile.rows)]


def _columns(f: Function, spec: KernelSpec, lanes: Value, vectors: int, shift: Value | int) -> list[Value]:
    place, bytes_ = f.at(lanes, shift), spec.isa.lanes * F32_BYTES
    return [f.load(f"<{spec.isa.lanes} x float>", place, v * bytes_) for v in range(vectors)]


def _prefetch(f: Function, spec: KernelSpec, x: Value, y: Value, vectors: int) -> None:
    for line in range(0, vectors * spec.isa.lanes * F32_BYTES, 64):
        f.prefetch(f.at(y, f.y_step * TILE_AHEAD + line))
    if spec.rows.in_place:
        f.prefetch(f.at(x, f.x_step * TILE_AHEAD))
        f.prefetch(f.at(x, f.x_next), locality=2)  # what the next chunk will read here


def _places(spec: KernelSpec, vectors: int) -> Sequence[int]:
    tile = spec.tile
    return [
        ((t * tile.rows + r) * tile.vectors + v) * spec.isa.lanes * F32_BYTES
        for t, r, v in product(range(tile.taps), range(tile.rows), range(vectors))
    ]


def _join(f: Function, spec: KernelSpec, vectors: int, sums: list[Value]) -> None:
    """The first child of a parent is stored, a later one added: parent + child, left to right."""
    places = _places(spec, vectors)
    with f.when(f.first):
        for value, place in zip(sums, places, strict=True):
            f.store(value, f.partial, place)
    with f.otherwise():
        for value, place in zip(sums, places, strict=True):
            f.store(f.add(f.load(value.type, f.partial, place), value), f.partial, place)
