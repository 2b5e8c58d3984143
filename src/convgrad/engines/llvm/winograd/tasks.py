"""The tasks of Winograd's algorithm in IR.

A forward or a data gradient has two stages. In the first stage, tasks transform one operand. In the second stage, a
task transforms a cache block of the other operand, multiplies it, and applies the output transform. In a weight
gradient, a task sums a unit of Winograd tiles for some channels. If there are several units, a second stage adds their
sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from convgrad.engines.llvm import tree
from convgrad.engines.llvm.arguments import Named, columns
from convgrad.engines.llvm.driver import DRIVER, claimed
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.packing import bias as pack_bias
from convgrad.engines.llvm.winograd import back, into, sums
from convgrad.engines.llvm.winograd.vectors import Vectors, walk
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.recipe import TAPS as BY_TAPS
from convgrad.plan.winograd.schedule import arguments
from convgrad.plan.winograd.spec import WinogradSpec

Part = tuple[Value, Value]  # the first number and the count of a range


def module_of(spec: WinogradSpec) -> str:
    """Return the IR of ``driver``, which runs the task of a stage for each number that it claims.

    The driver loads all arguments at its beginning. LLVM would repeat later loads, because it cannot know that stores
    leave the arguments unchanged.
    """
    module = Module()
    f = module.function("driver", public=True, **DRIVER)
    a = columns(f, f.arguments, arguments(spec))
    with claimed(f, spec.isa, a, a.task_count) as number:
        TASKS[spec.body](f, spec, a, number)
    return str(module)


# -- forward and data gradient --


def input_points(f: Function, spec: WinogradSpec, a: Named, number: Value) -> None:
    """Emit the input transform of a row of Winograd tiles."""
    data = a.of("a")
    places = _Order.of(f, spec, data, (f.value(0), a.task_count)).places(a.shared, data.tile, number)
    into.input_transform(spec, True, data, number, places, f.scratch)


def filter_points(f: Function, spec: WinogradSpec, a: Named, number: Value) -> None:
    """Emit the filter transform for a vector of input channels (K) and all output channels."""
    into.filter_transform(f, spec, a.of("b"), number, a.shared, f.scratch)


def rows_block(f: Function, spec: WinogradSpec, a: Named, number: Value) -> None:
    """Emit the task of a cache block of rows of tiles: input transform, products with all weights, output transform."""
    (first, count), points, staging = _block(f, a, number)
    data = a.of("a")
    order = _Order.of(f, spec, data, (first, count))
    with f.loop(count) as row:
        places = order.places(points, data.tile, row.index)
        into.input_transform(spec, True, data, first + row.index, places, staging)
    _sums_back(f, spec, a, a.of("out").but(bias=a.of("bias").data), (points, a.shared), order)


def results_block(f: Function, spec: WinogradSpec, a: Named, number: Value) -> None:
    """Emit the task of some output channels: filter transform, products with all tiles, output transform."""
    (first, count), points, staging = _block(f, a, number)
    weights, out = a.of("b"), a.of("out")
    weights = weights.but(data=f.at(weights.data, first * weights.result), results=count)
    with f.loop(weights.count) as some:
        into.filter_transform(f, spec, weights, some.index, points, staging)
    data, bias = f.at(out.data, first * out.channel), f.at(a.of("bias").data, first * a.of("bias").step)
    order = _Order.of(f, spec, out, (f.value(0), a.all_rows))
    _sums_back(f, spec, a, out.but(data=data, bias=bias, channels=count), (a.shared, points), order)


def _block(f: Function, a: Named, number: Value) -> tuple[Part, Value, Value]:
    """Return the range of a cache block, the address of its transformed values, and that of its staging buffer."""
    return _part(f, a, number), f.at(f.scratch, a.points_at), f.at(f.scratch, a.staging_at)


def _part(f: Function, a: Named, number: Value) -> Part:
    """Return part ``number`` of the range from 0 to ``a.all``, divided into parts of length ``a.part``."""
    first = number * a.part
    return first, f.min(a.all - first, a.part)


def _sums_back(
    f: Function, spec: WinogradSpec, a: Named, out: Named, points: tuple[Value, Value], order: _Order
) -> None:
    """Emit the products of some rows of tiles and the weights, then the output transform of their sums.

    ``points`` are the addresses of the transformed tiles and weights, and ``out.bias`` is that of the first bias.
    """
    (first, count), to, room = order.rows, f.at(f.scratch, a.sums_at), f.at(f.scratch, a.room_at)
    bias, biases = a.of("bias"), f.at(f.scratch, a.bias_at)
    pack_bias(f.module, spec.operands)
    of_bias = {"bias": bias.data, "source": out.bias, "step": bias.step}
    f.call("pack_bias", to=biases, count=out.channels, full=out.channels, **of_bias)
    out = out.but(bias=biases)
    sums.trees(f, spec.isa, a.of("gemm").but(n=out.channels), (*points, to), order.at_point, (a.k, a.levels, room))
    with f.loop(count) as row:
        staging = f.at(f.scratch, a.staging_at)
        back.positions(f, spec, out, first + row.index, order.places(to, out.tile, row.index), staging)


@dataclass(frozen=True)
class _Order:
    """The order of the tiles of some rows, in which the tiles that have a point are contiguous.

    There are four kinds: 1. smaller last tiles of whole rows, 2. other tiles of whole rows, 3. other tiles of smaller
    last rows, 4. last tiles of these rows. If last tiles miss a point, kinds 2 and 3 have it. If last rows miss it,
    kinds 1 and 2 have it.
    """

    f: Function
    spec: WinogradSpec
    grid: Named  # rows and columns of tiles
    rows: Part
    before: Value  # smaller rows before the first row
    whole_columns: Value
    begins: tuple[Value, Value, Value]  # the numbers of the first tiles of the second, third and fourth kind

    @staticmethod
    def of(f: Function, spec: WinogradSpec, a: Named, rows: Part) -> _Order:
        """Return the order of the tiles of a range of rows."""
        (first, count), grid, (last_row, last_column) = rows, a.of("grid"), spec.remainders
        before = small = f.value(0)
        if last_row:
            before = f.divided(first, grid.y)[0]
            small = f.divided(first + count, grid.y)[0] - before
        whole_columns, whole = grid.x - int(last_column > 0), count - small
        second = whole if last_column else f.value(0)
        third = second + whole * whole_columns
        return _Order(f, spec, grid, rows, before, whole_columns, (second, third, third + small * whole_columns))

    def places(self, to: Value, tile: Value, row: Value) -> list[Value]:
        """Return the addresses of a row's first tile and, if the last tile is smaller, of the last tile.

        ``tile`` is the distance of tiles in bytes.
        """
        f, (second, third, fourth) = self.f, self.begins
        tiles, last = second + row * self.whole_columns, row
        if self.spec.remainders[0]:
            slices, y = f.divided(self.rows[0] + row, self.grid.y)
            small, is_last = slices - self.before, f.compare("eq", y, self.grid.y - 1)
            whole = row - small
            tiles = f.select(is_last, third + small * self.whole_columns, second + whole * self.whole_columns)
            last = f.select(is_last, fourth + small, whole)
        return [f.at(to, number * tile) for number in (tiles, last)[: 1 + bool(self.spec.remainders[1])]]

    def at_point(self, point: Value) -> tuple[Value, Value]:
        """Return the number of the first tile that has a point, and the number of tiles that have it."""
        f, (second, third, fourth), everything = self.f, self.begins, self.rows[1] * self.grid.x
        row, column = f.divided(point, self.spec.transforms.sides[1])
        first, end = f.value(0), everything
        if self.spec.remainders[1]:
            missing = self._misses(1, column)
            first, end = f.select(missing, second, first), f.select(missing, fourth, everything)
        if self.spec.remainders[0]:
            end = f.select(self._misses(0, row), third, end)
        return first, end - first

    def _misses(self, axis: int, point: Value) -> Value:
        """Return whether the smaller last tile of an axis does not have a point of the axis."""
        whole, last = self.spec.kinds(axis)
        return self.f.compare("sge", point, last.points - 1) & self.f.compare("slt", point, whole.points - 1)


# -- weight gradient --


def only_unit(f: Function, spec: WinogradSpec, a: Named, number: Value) -> None:
    """Emit the sums of all Winograd tiles for some channels of src (M) and dst (N), and their output transform."""
    channels = _channels(f, a, number)
    to, staging = f.at(f.scratch, a.sums_at), f.at(f.scratch, a.staging_at)
    _chains(f, spec, a, f.value(0), channels, to)
    _weights(f, spec, _out(f, a, *channels), to, staging)


def _out(f: Function, a: Named, tap: Value, of_m: Part, of_n: Part) -> Named:
    """Return the arguments of the output at a tap of the axis that is summed directly, for some channels."""
    out, (first_m, m), (first_n, n) = a.of("out"), of_m, of_n
    data = f.at(f.at(f.at(out.data, tap * out.of("tap").z), first_m * out.row), first_n * out.channel)
    return out.but(data=data, rows=m, channels=n)


def _weights(f: Function, spec: WinogradSpec, out: Named, to: Value, staging: Value) -> None:
    """Emit the output transform of all sums of a task, or of a block."""
    with f.loop(Vectors(f, spec.isa.lanes).count(out.channels) if spec.out == BY_TAPS else out.named("rows")) as some:
        back.weights(f, spec, out, some.index, to, staging)


def blocks_of_unit(f: Function, spec: WinogradSpec, a: Named, number: Value) -> None:
    """Emit the same as ``only_unit``, by blocks of channels whose sums stay in a cache.

    The tiles of all chains are transformed first.
    """
    channels = tap, (first_m, all_m), (first_n, all_n) = _channels(f, a, number)
    points_a, points_b, to, staging = (
        f.at(f.scratch, a.named(name)) for name in ("a_at", "b_at", "sums_at", "staging_at")
    )
    block, segments = a.of("block"), a.of("segments")
    with f.loop(a.of("chains").all, first=f.value(0), a=points_a, b=points_b) as chain:
        count = f.min(segments.all - chain.first, segments.part)
        _transform(spec, a, (chain.first, count), channels, (chain.a, chain.b), staging)
        chain.next(first=chain.first + count, a=f.at(chain.a, a.a_bytes), b=f.at(chain.b, a.b_bytes))
    with (
        walk(f, sums.parts(f, all_m, block.m), first=(f.value(0), block.m)) as of_m,
        walk(f, sums.parts(f, all_n, block.n), first=(f.value(0), block.n)) as of_n,
    ):
        m, n = f.min(all_m - of_m.first, block.m), f.min(all_n - of_n.first, block.n)
        begin_a, begin_b = f.at(points_a, of_m.first * F32_BYTES), f.at(points_b, of_n.first * F32_BYTES)
        panels = {"a": (begin_a, a.a_bytes), "b": (begin_b, a.b_bytes)}
        with walk(f, a.of("chains").all, left=(segments.all, f.value(0) - segments.part), **panels) as chain:
            tiles, more = f.min(chain.left, segments.part) * a.length, f.compare("ne", chain.index, 0)
            sums.chains(f, spec.isa, a.of("gemm").but(m=m, n=n), (chain.a, chain.b, to), tiles, more)
        some = _out(f, a, tap, (first_m + of_m.first, m), (first_n + of_n.first, n))
        _weights(f, spec, some, to, staging)


def unit(f: Function, spec: WinogradSpec, a: Named, number: Value) -> None:
    """Emit sums[unit][point][m][n], the sums of the Winograd tiles of a unit for some channels of src and dst."""
    index, part = f.divided(number, a.parts)
    tap, (first_m, _), (first_n, _) = channels = _channels(f, a, part)
    first_m = tap * a.of("m").all + first_m
    to = f.at(f.at(f.at(a.shared, index * a.unit), first_m * a.of("out").sums_row), first_n * F32_BYTES)
    _chains(f, spec, a, index, channels, to)


def units_sum(f: Function, spec: WinogradSpec, a: Named, number: Value) -> None:
    """Emit the total of the sums of all units and its output transform, for one channel of src.

    If taps of the output are contiguous, a task computes one vector of channels of dst instead. The total replaces the
    sums of the first unit.
    """
    tree.reduce(f.module, spec.isa)
    v, out = Vectors(f, spec.isa.lanes), a.of("out")
    if spec.out == BY_TAPS:
        begin, rows, vectors = f.at(a.shared, number * v.bytes), out.taps * out.named("rows"), f.value(1)
    else:
        begin, rows, vectors = f.at(a.shared, number * out.sums_row), f.value(1), v.count(out.channels)
    with (
        walk(f, spec.transforms.points, sums=(begin, out.point)) as point,
        walk(f, rows, sums=(point.sums, out.sums_row)) as row,
    ):
        f.call("reduce", row.sums, a.unit, a.units, vectors * v.bytes, a.levels)
    back.weights(f, spec, out, number, a.shared, f.scratch)


def _channels(f: Function, a: Named, part: Value) -> tuple[Value, Part, Part]:
    """Return the tap of the axis that is summed directly, and the ranges of channels of src and dst, of a task."""
    part, of_n = f.divided(part, a.of("n").parts)
    tap, of_m = f.divided(part, a.of("m").parts)
    return tap, _part(f, a.of("m"), of_m), _part(f, a.of("n"), of_n)


def _chains(
    f: Function, spec: WinogradSpec, a: Named, index: Value, channels: tuple[Value, Part, Part], to: Value
) -> None:
    """Emit the sums of a unit's chains in order: transform the tiles of a chain, then add its products to the sums."""
    points_a, points_b, staging = (f.at(f.scratch, a.named(name)) for name in ("a_at", "b_at", "staging_at"))
    segments, (begin, chains), (_, of_m, of_n) = a.of("segments"), _part(f, a.of("chains"), index), channels
    with f.loop(chains, first=begin * segments.part) as chain:
        count = f.min(segments.all - chain.first, segments.part)
        _transform(spec, a, (chain.first, count), channels, (points_a, points_b), staging)
        of_sums, more = a.of("gemm").but(m=of_m[1], n=of_n[1]), f.compare("ne", chain.index, 0)
        sums.chains(f, spec.isa, of_sums, (points_a, points_b, to), count * a.length, more)
        chain.next(first=chain.first + count)


def _transform(
    spec: WinogradSpec,
    a: Named,
    segments: Part,
    channels: tuple[Value, Part, Part],
    points: tuple[Value, Value],
    staging: Value,
) -> None:
    """Emit the transforms of the tiles of some segments, of src and of dst, for the channels of a task."""
    f, (tap, *parts) = staging.function, channels
    for side, to, (first, extent) in zip("ab", points, parts, strict=True):
        operand, of_input = a.of(side), side == "a"
        operand = operand.but(data=f.at(operand.data, first * operand.channel), channels=extent)
        if of_input:
            operand = operand.but(**{"pad.z": operand.of("pad").z - tap})
        with f.loop(segments[1]) as segment:
            outs = [f.at(to, segment.index * (operand.of("grid").x * operand.tile))]
            into.input_transform(spec, of_input, operand, segments[0] + segment.index, outs, staging)


_TASKS = (input_points, filter_points, rows_block, results_block, only_unit, blocks_of_unit, unit, units_sum)
TASKS: Mapping[str, Callable[[Function, WinogradSpec, Named, Value], None]] = {task.__name__: task for task in _TASKS}
