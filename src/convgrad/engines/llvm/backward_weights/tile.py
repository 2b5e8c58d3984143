"""The tile of weights: block by block an outer product of items, summed in registers and joined into a partial sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from convgrad.engines.llvm import tree
from convgrad.engines.llvm.arguments import Named, arguments, columns
from convgrad.engines.llvm.backward_weights.lines import Met, outer_taps
from convgrad.engines.llvm.emit import Function, Loop, Module, Value
from convgrad.engines.llvm.intrinsics import PAIR_SUMS, MultiplyAdd, high_sum, low_sum
from convgrad.engines.llvm.microkernel import Values, multiply_add, outer_product, sum_names
from convgrad.plan.backward_weights.lines import LINE
from convgrad.plan.backward_weights.recipe import KernelSpec
from convgrad.plan.backward_weights.taps import SEGMENT, TAP
from convgrad.plan.constants import PREFETCH_POSITIONS
from convgrad.plan.recipe import F32_BYTES


def tile(module: Module, spec: KernelSpec, vectors: int) -> None:
    """Emit ``tile<vectors>``: sum[t][r][v] = sum over images, lines, terms of x[r] * y[v], joined into ``partial``.

    A line is a stretch of terms, as of a row of dst, and a segment one of the terms under which the same taps of the
    tile exist: what a line and a segment share is summed. What a line meets by an outer tap lies at a place, in bytes
    at term 0, so that a tap is just another offset of the operand that moves with it. One tap has one segment, and
    is never absent in it. Of several, the block is summed as if all of them existed wherever one does, as src has zeros
    on its padding; only where that gives a sum that is not finite it is summed again by ``segments``: where taps are
    absent, sums stay.
    """
    given = {"pairs": "i64"} if spec.step == 2 else {}
    f = module.function(
        f"tile{vectors}", False, arguments="ptr", partial="ptr", first="i1", x="ptr", y="ptr", images="i64",
        lines_at="ptr", line_count="i64", tap="ptr", **given,
    )  # fmt: skip
    a, k = arguments(f), columns(f, f.tap, TAP)
    moved = _Moved(
        (a.rows.read_image, a.lanes.read_image), (a.rows.read_term, a.lanes.read_term), a.tap_step, a.rows_next
    )
    taps, masks = outer_taps(f, spec, a.places, a.shifts, k.outer), (a.masks, a.mask_bytes)
    one = _Tile(f, spec, vectors, moved, taps, masks, a.swapped)
    whole, segments = (f.at(a.segments, number * SEGMENT.bytes) for number in (k.whole, k.segment))
    zeros, always = {name: f.zeros(one.kind) for name in one.names}, f.value(1)
    if spec.tile.taps == 1:
        sums = one.summed(f.images, (whole, always), zeros)
    else:
        with f.loop(f.opaque(f.value(2)), images=f.images, segments=whole, number=always, **zeros) as attempt:
            found = one.summed(attempt.images, (attempt.segments, attempt.number), _of(attempt, one.names))
            again = f.compare("eq", attempt.index, 0) & _some_is_not_finite(f, list(found.values()))
            attempt.next(
                images=f.select(again, f.images, f.value(0)), segments=segments, number=k.segments,
                **{name: f.select(again, zeros[name], found[name]) for name in one.names},
            )  # fmt: skip
        sums = _of(attempt, one.names)
    tree.push(f, list(sums.values()), one.places(), f.first)
    f.done()


@dataclass(frozen=True)
class _Moved:
    """Bytes from an image and from a term to the next, of rows and lanes; from a tap; to what is next read."""

    image: tuple[Value, Value]
    term: tuple[Value, Value]
    tap: Value
    next: Value


@dataclass(frozen=True)
class _Tile:
    """A tile being emitted."""

    f: Function
    spec: KernelSpec
    vectors: int
    moved: _Moved
    taps: list[Value]  # where in the table of places its outer taps begin
    masks: tuple[Value, Value]  # the table, and its bytes under one set of outer taps
    swapped: Value

    @property
    def kind(self) -> str:
        """A vector of sums."""
        return f"<{self.spec.isa.lanes} x float>"

    @property
    def names(self) -> list[str]:
        """The sums: of each tap, row and vector."""
        tile = self.spec.tile
        return [name for t in range(tile.taps) for name in sum_names(tile.rows, self.vectors, f"{t}_")]

    def summed(self, images: Value, segments: tuple[Value, Value], sums: Values) -> Values:
        """Sum all images by some segments; return the sums after them."""
        f, names = self.f, self.names
        only = columns(f, segments[0], SEGMENT) if self.spec.tile.taps == 1 else None
        with f.loop(images, x=f.x, y=f.y, **sums) as image:
            with f.loop(f.line_count, line=f.lines_at, **_of(image, names)) as line:
                met = Met(f, line.line, self.taps)
                if only is not None:
                    after = self.shared(image, met, only, _of(line, names))
                else:
                    absent = met.absent(self.masks[1])
                    with f.loop(segments[1], segment=segments[0], **_of(line, names)) as segment:
                        words = columns(f, segment.segment, SEGMENT)
                        done = self.shared(image, met, words, _of(segment, names), absent)
                        segment.next(segment=f.at(segment.segment, SEGMENT.bytes), **done)
                    after = _of(segment, names)
                line.next(line=f.at(line.line, LINE.bytes), **after)
            x, y = (f.at(image.carried[name], step) for name, step in zip("xy", self.moved.image, strict=True))
            image.next(x=x, y=y, **_of(line, names))
        return _of(image, names)

    def shared(self, image: Loop, met: Met, segment: Named, sums: Values, absent_outer: Value | int = 0) -> Values:
        """The terms that a line and a segment share, all taps there or some absent; return the sums after them."""
        f = self.f
        begin = f.max(met.first, segment.low)
        count = f.min(met.end, segment.high) - begin
        moving, fixed = met.places, met.fixed
        if self.spec.tile.taps == 1:  # its kernel is the same whichever operand its rows are from
            swapped = f.compare("ne", self.swapped, 0)
            moving, fixed = [f.select(swapped, fixed, moving[0])], f.select(swapped, moving[0], fixed)
        offsets = (moving, [fixed]) if self.spec.rows.moves else ([fixed], moving)
        x, y = (
            {f"{name}{at}": f.at(start, offset + begin * step) for at, offset in enumerate(found)}
            for name, start, found, step in zip("xy", (image.x, image.y), offsets, self.moved.term, strict=True)
        )
        if self.spec.tile.taps == 1:
            return self.terms(count, x, y, sums, None)
        absent = segment.absent + absent_outer
        whole = f.select(f.compare("eq", absent, 0), count, f.value(0))
        sums = self.terms(whole, x, y, sums, None)
        return self.terms(count - whole, x, y, sums, f.at(self.masks[0], absent))

    def terms(self, count: Value, x: Values, y: Values, sums: Values, masks: Value | None) -> Values:
        """Loops over terms; under ``masks`` the sums of absent taps are kept.

        Of words, pairs where ``pairs`` is -1, and one by one what they leave over; all of them where it is 0: of words
        of every second term both halves, then an odd last one.
        """
        f, single = self.f, (high_sum,)
        if self.spec.step == 1:
            return self.loop(count, x, y, sums, masks, (multiply_add,))[-1]
        count = f.max(count, 0)
        paired = (count >> 1) & f.pairs
        x, y, sums = self.loop(paired, x, y, sums, masks, (PAIR_SUMS[self.spec.isa.pairs],), 2)
        if self.spec.compact:
            x, y, sums = self.loop((count >> 1) - paired, x, y, sums, masks, (high_sum, low_sum), 2)
            return self.loop(count & 1, x, y, sums, masks, single)[-1]
        return self.loop(count - paired * 2, x, y, sums, masks, single)[-1]

    def loop(
        self, count: Value, x: Values, y: Values, sums: Values, masks: Value | None, ways: tuple[MultiplyAdd, ...],
        many: int = 1,
    ) -> tuple[Values, Values, Values]:  # fmt: skip
        """A loop over terms, ``many`` at a time, added in some ways; return where it leaves rows, lanes and sums."""
        f, spec, tile, lanes = self.f, self.spec, self.spec.tile, self.spec.isa.lanes
        there = [None] * tile.taps if masks is None else [_there(f, masks, t, lanes) for t in range(tile.taps)]
        apart = spec.term_bytes(spec.moving)
        inner = [k * apart if spec.adjacent else self.moved.tap * k for k in range(tile.inner_taps)]
        with f.loop(count, **x, **y, **sums) as at:
            rows, columns = ([at.carried[name] for name in side] for side in (x, y))
            for way in ways:
                self.added(at, way, rows, columns, inner, there, many)
            for side, step in zip((x, y), self.moved.term, strict=True):
                at.next(**{name: f.at(at.carried[name], step * many) for name in side})
        return _of(at, list(x)), _of(at, list(y)), _of(at, list(sums))

    def added(
        self, at: Loop, way: MultiplyAdd, rows: list[Value], columns: list[Value], inner: Sequence[Value | int],
        there: Sequence[Value | None], many: int,
    ) -> None:  # fmt: skip
        """Add products of what lies there to the sums of a loop, of all taps of the tile."""
        f, spec, tile = self.f, self.spec, self.spec.tile
        items = self.items()
        if not spec.rows.moves:
            held = [self.item(rows[0], item) for item in items]
        else:
            columns_here = self.columns(columns[0], 0)
        if tile.taps == 1:
            self.prefetch(rows[0], columns[0], many)
        for t, (outer, k) in enumerate(product(range(tile.outer_taps), inner)):
            if not spec.rows.moves:
                columns_here = self.columns(columns[outer], k)
            read = (self.item(f.at(rows[outer], k), item) for item in items) if spec.rows.moves else held
            outer_product(f, at.following, read, columns_here, way, f"{t}_", there[t])

    @property
    def read_kind(self) -> str:
        """A vector of what is packed: values, or words of two."""
        return self.kind if self.spec.step == 1 else f"<{self.spec.isa.lanes} x i32>"

    def items(self) -> list[Value | int]:
        """Return how far from the first item of the rows each lies."""
        return [r * self.spec.groups_a_panel * F32_BYTES for r in range(self.spec.tile.rows)]

    def item(self, place: Value, item: Value | int) -> Value:
        """Load an item of the rows: one value in all lanes, or one of each lane's group."""
        f = self.f
        if self.spec.groups_in_lanes:
            return f.load(self.read_kind, place, item)
        return f.splat(f.load("float" if self.spec.step == 1 else "i32", place, item), self.spec.isa.lanes)

    def columns(self, lanes: Value, shift: Value | int) -> list[Value]:
        """Load the vectors of the lanes."""
        place, step = self.f.at(lanes, shift), self.spec.isa.lanes * F32_BYTES
        return [self.f.load(self.read_kind, place, v * step) for v in range(self.vectors)]

    def prefetch(self, x: Value, y: Value, many: int) -> None:
        """Ask for what is read some steps on, of ``many`` terms, and what the next chunk reads in place."""
        f, (x_step, y_step) = self.f, self.moved.term
        for line in range(0, self.vectors * self.spec.isa.lanes * F32_BYTES, 64):
            f.prefetch(f.at(y, y_step * (PREFETCH_POSITIONS * many) + line))
        if self.spec.rows.in_place:
            f.prefetch(f.at(x, x_step * PREFETCH_POSITIONS))
            f.prefetch(f.at(x, self.moved.next), locality=2)

    def places(self) -> list[Value]:
        """Return where the sums of the node are to which chains are pushed."""
        tile, vector = self.spec.tile, self.spec.isa.lanes * F32_BYTES
        each = product(range(tile.taps), range(tile.rows), range(self.vectors))
        return [self.f.at(self.f.partial, ((t * tile.rows + r) * tile.vectors + v) * vector) for t, r, v in each]


def _some_is_not_finite(f: Function, sums: list[Value]) -> Value:
    """Tell whether a sum is NaN or infinite, or all together too large: times 0 their sum is not 0."""
    while len(sums) > 1:
        sums = [f.add(a, b) for a, b in zip(sums[::2], sums[1::2], strict=False)] + sums[len(sums) // 2 * 2 :]
    kind = sums[0].type
    lanes = kind[1:].split(" x ")[0]
    zero = f.fma(sums[0], f.zeros(kind), f.zeros(kind))
    odd = f.op(f"<{lanes} x i1>", f"fcmp uno {zero}, zeroinitializer")
    return f.intrinsic("i1", f"llvm.vector.reduce.or.v{lanes}i1", odd)


def _of(loop: Loop, names: list[str]) -> Values:
    return {name: loop.carried[name] for name in names}


def _there(f: Function, masks: Value, tap: int, lanes: int) -> Value:
    """Return a mask of all lanes or none: whether a tap exists."""
    word = f.splat(f.load("i32", masks, tap * 4), lanes)
    return f.op(f"<{lanes} x i1>", f"icmp ne {word}, zeroinitializer")
