"""Prepared calls of maps, sums and trees: all arguments but the addresses of the tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from convgrad.engines import pools
from convgrad.engines.addresses import Words, address_of
from convgrad.engines.engine import CompiledKernel
from convgrad.engines.llvm import isas, jit
from convgrad.engines.llvm.convert import BYTES
from convgrad.engines.llvm.elementwise import combinations, indexed, largest, maps, stages, sums, trees
from convgrad.engines.llvm.execute import filled, restored, run, shares_of, taken
from convgrad.engines.team import work
from convgrad.engines.tensors import (
    REMEMBERED_LISTS,
    TASK_ELEMENTS,
    Combinations,
    Extents,
    Lists,
    Strided,
    Summands,
    rows_of_task,
)
from convgrad.plan.machine import LINE_BYTES, Isa, Machine
from convgrad.spec.elementwise.sums import CHAINS, SECTION, sections_of
from convgrad.spec.elementwise.table import MAPS
from convgrad.spec.order import FAN_IN

TASKS_PER_THREAD = 2  # of sums with few sections, whose channels are cut
REMEMBERED = 1024  # calls
_SCRATCH_BYTES = 64  # of a driver that needs none
_WIDE_FACTOR = 8.0  # times the time of moving the numbers of a map in f64, for example of log: the map's time
_INDEXED_COLUMNS = 64  # of a task that adds rows at an index, or a multiple
_INDEXED_TRAFFIC = 12  # bytes per element of these rows, and of the sums, which are read and written


@dataclass(frozen=True, eq=False)
class PreparedStage:
    """A stage of a call: what its code depends on, and its arguments without addresses."""

    spec: stages.Spec
    values: Mapping[str, int]
    traffic: int  # bytes
    scratch_bytes: int = _SCRATCH_BYTES  # per thread
    is_wide: bool = False  # whether it is a map in f64
    table: NDArray[np.int64] | None = None  # of a map on lists


class PreparedDriver:
    """The driver of stages and its arguments without addresses. A call of few bytes ``is_alone``: it has one thread."""

    __slots__ = (
        "_arguments", "_driver", "_free", "_places", "_scratch_bytes", "_stages", "_threads", "_time_ms", "is_alone",
    )  # fmt: skip

    def __init__(self, parts: tuple[PreparedStage, ...], threads: int, by_rows: int) -> None:
        specs = tuple([stage.spec for stage in parts])
        record, values = stages.record_of(specs), dict[str, int]()
        self._places: list[tuple[int, Struct, slice]] = []
        begin = 0
        for number, stage in enumerate(parts):
            values |= {f"s{number}.{name}": value for name, value in stage.values.items()}
            names = [name for name in stages.addresses_of(stage.spec) if name not in stage.values]
            if names:
                place = record.at(f"s{number}.{names[0]}")
                self._places.append((place, Struct(f"{len(names)}q"), slice(begin, begin + len(names))))
            begin += len(names)
        counts = [stage.values["task_count"] for stage in parts]
        assert len({*counts[:by_rows]}) <= 1, "stages by rows have the same tasks"
        self._driver, self._stages = _driver(specs, by_rows), parts
        machine, traffic, alone_ns = _machine(parts), _traffic(parts), _alone_ns(parts)
        self._threads = min(threads, max(counts))
        if alone_ns - alone_ns / self._threads < machine.wake_ns:  # others would begin when this thread has finished
            self._threads = 1
        self._arguments = filled(record, values, shares_of(machine, self._threads, traffic))
        self._time_ms = alone_ns / 1e6 / self._threads
        self._scratch_bytes = max([stage.scratch_bytes for stage in parts])
        self.is_alone = pools.needs_no_pool(self._threads, self._time_ms)
        self._free: list[tuple[Words, int]] = []  # copies of the arguments that no call uses now, and their addresses

    def __call__(self, addresses: Sequence[int], keep: object) -> None:
        """Run the driver on tensors at these addresses: those of the first stage, then those of the next one."""
        arguments, address = bound = taken(self._free, self._arguments)
        for place, struct, own in self._places:
            struct.pack_into(arguments, place, *addresses[own])
        if not self.is_alone:
            run(self._driver, arguments, self._scratch_bytes, self._threads, self._time_ms, (keep, self._stages))
            return
        work(self._driver, address, self._scratch_bytes)
        restored(arguments, self._arguments)
        self._free.append(bound)  # an interrupted call skips this, because its arguments may be incomplete


@lru_cache(REMEMBERED)
def prepared(parts: tuple[PreparedStage, ...], threads: int, separate_rows: int = 0) -> PreparedDriver:
    """Return the call that computes stages in order.

    None of the first ``separate_rows`` stages reads rows of another task. Then each task computes them all, unless the
    tensors fit into the second cache, where the next stage finds them too.
    """
    return PreparedDriver(parts, threads, 0 if _fit_cache(parts) else separate_rows)


def _fit_cache(parts: tuple[PreparedStage, ...]) -> bool:
    """Return whether all that stages read and write fits into the second cache."""
    return _traffic(parts) <= _machine(parts).l2_bytes


def _traffic(parts: tuple[PreparedStage, ...]) -> int:
    return sum([stage.traffic for stage in parts])


def _alone_ns(parts: tuple[PreparedStage, ...]) -> float:
    """Return the predicted time on one thread: that of moving the tensors, and more for maps in f64."""
    machine = _machine(parts).for_traffic(_traffic(parts))
    return sum([machine.traffic_ns(stage.traffic) * (_WIDE_FACTOR if stage.is_wide else 1.0) for stage in parts])


def _machine(parts: tuple[PreparedStage, ...]) -> Machine:
    return isas.machine(parts[0].spec.isa)


@lru_cache(REMEMBERED)
def map_stage(
    isa: Isa,
    name: str,
    tensors: tuple[Strided, ...],
    extents: Extents,
    max_columns: int = TASK_ELEMENTS,
    by_rows: int = 0,
) -> PreparedStage:
    """Return the stage of a map on operands and results, which are ``tensors`` in this order."""
    outer, rows, columns = extents
    task_columns = columns if by_rows else min(columns, max_columns)
    column_blocks = -(-columns // task_columns)
    task_rows = by_rows or rows_of_task(columns)
    values = {
        "outers": outer,
        "rows": rows,
        "columns": columns,
        "task_rows": task_rows,
        "task_columns": task_columns,
        "column_blocks": column_blocks,
        "task_count": -(-(rows if by_rows else outer * rows) // task_rows) * column_blocks,
    }
    for number, tensor in enumerate(tensors):
        values |= {f"t{number}.outer": tensor.outer, f"t{number}.row": tensor.row}
    spec = maps.MapSpec(isa, name, tuple([tensor.fmt for tensor in tensors]), by_rows > 0)
    traffic = outer * rows * columns * sum([BYTES[fmt] for fmt in spec.formats if fmt])
    return PreparedStage(spec, values, traffic, is_wide=MAPS[name].is_wide(spec.formats))


@lru_cache(REMEMBERED_LISTS)
def prepared_lists(isa: Isa, name: str, lists: Lists, threads: int) -> PreparedDriver:
    """Return the call of a map on each tensor of lists. Its addresses: the numbers, and a table of the tensors."""
    spec = maps.MapSpec(isa, name, lists.all_formats)
    lengths = np.array(lists.lengths, np.int64)
    blocks = -(-lengths // TASK_ELEMENTS)
    places = np.repeat(np.arange(len(lengths)), blocks)
    first = (np.arange(len(places)) - np.repeat(np.cumsum(blocks) - blocks, blocks)) * TASK_ELEMENTS
    task_lengths = np.minimum(TASK_ELEMENTS, lengths[places] - first)
    table = np.ascontiguousarray(np.column_stack([places, first, task_lengths]), np.int64)
    values = {"table": address_of(table), "places": len(lengths), "task_count": len(table)}
    traffic = int(lengths.sum()) * sum([BYTES[fmt] for fmt in spec.formats if fmt])
    stage = PreparedStage(maps.ListsSpec(spec), values, traffic, table=table)
    return PreparedDriver((stage,), threads, by_rows=0)


@lru_cache(REMEMBERED)
def sums_stage(isa: Isa, summands: Summands, threads: int, by_rows: int = 0) -> PreparedStage:
    """Return the stage that writes the f64 sums (sums, sections, channels). Their address follows the tensors'."""
    (images, channels, positions), last = summands.shape, summands.channels_last
    formats = tuple([tensor.fmt for tensor in summands.tensors])
    terms = summands.plain, summands.products, summands.stored
    spec = sums.SumsSpec(isa, summands.name, formats, last, *terms, by_rows > 0 and not last)
    sections = sections_of(images, positions, summands.combined)
    wanted = 1 if by_rows else -(-TASKS_PER_THREAD * threads // sections.count)
    strips = max(-(-channels // sums.STRIP), min(wanted, -(-channels // sums.WIDTH)))
    strip = -(-channels // (strips * sums.WIDTH)) * sums.WIDTH
    chain = strip * sums.F64_BYTES + LINE_BYTES  # not a power of two, so that chains are in different sets of a cache
    units = channels if by_rows and not last else sections.count * channels
    task_units = by_rows or rows_of_task(min(positions, SECTION) * min(sections.group, images))
    values = {
        "images": images,
        "group": sections.group,
        "groups": sections.groups,
        "sections": sections.sections,
        "positions": positions,
        "channels": channels,
        "task_count": sections.count * -(-channels // strip) if last else -(-units // task_units),
        "task_units": task_units,
        "strips": -(-channels // strip),
        "strip": strip,
        "chain": chain,
        "all_sections": sections.count,
    }
    for number, tensor in enumerate(summands.tensors):
        values |= {f"t{number}.outer": tensor.outer, f"t{number}.row": tensor.row}
    traffic = images * channels * positions * sum([BYTES[fmt] for fmt in formats if fmt])
    scratch = CHAINS * spec.sums * chain if last else _SCRATCH_BYTES
    return PreparedStage(spec, values, traffic, scratch)


@lru_cache(REMEMBERED)
def trees_stage(isa: Isa, matrices: int, rows: int, width: int, by_rows: int = 0) -> PreparedStage:
    """Return the stage that adds the rows of f64 matrices by the 16-ary tree. Its addresses: matrices, totals."""
    levels, nodes = 1, -(-rows // FAN_IN)
    task_width, task_matrices = (by_rows, matrices) if by_rows else (width, 1)
    blocks = -(-width // task_width)
    scratch_bytes = max(_SCRATCH_BYTES, nodes * task_width * sums.F64_BYTES)
    while nodes > 1:
        levels, nodes = levels + 1, -(-nodes // FAN_IN)
    values = {"rows": rows, "width": width, "levels": levels, "task_count": matrices // task_matrices * blocks}
    values |= {"blocks": blocks, "task_width": task_width, "task_matrices": task_matrices}
    traffic = matrices * rows * width * sums.F64_BYTES
    return PreparedStage(trees.TreesSpec(isa), values, traffic, scratch_bytes)


@lru_cache(REMEMBERED)
def largest_stage(isa: Isa, fmt: str, rows: int, columns: int) -> PreparedStage:
    """Return the stage that writes the largest elements of rows in f32. Its addresses: the rows, the elements."""
    task_rows = rows_of_task(columns)
    values = {"rows": rows, "columns": columns, "task_rows": task_rows, "task_count": -(-rows // task_rows)}
    return PreparedStage(largest.LargestSpec(isa, fmt), values, rows * columns * BYTES[fmt])


@lru_cache(REMEMBERED)
def combinations_stage(isa: Isa, axis: Combinations, by_rows: int = 0) -> PreparedStage:
    """Return the stage of combinations along an axis. Its addresses: the tensor, the table, the results."""
    fmt, out = axis.formats
    spec = combinations.CombinationsSpec(isa, fmt, out, axis.from_zero, axis.columns == 1)
    of_outer, unit = (1, axis.results) if spec.gathers else (axis.results, axis.columns)
    units = axis.outers * of_outer
    task_units = by_rows * axis.rows * of_outer or rows_of_task(unit)
    values = {
        "units": units,
        "task_units": task_units,
        "extent": axis.positions,
        "results": axis.results,
        "columns": axis.columns,
        "terms": axis.terms,
        "task_count": -(-units // task_units),
    }
    traffic = axis.outers * axis.columns * (axis.positions * BYTES[fmt] + axis.results * BYTES[out])
    return PreparedStage(spec, values, traffic)


@lru_cache(REMEMBERED)
def indexed_stage(isa: Isa, sums: Extents, count: int, threads: int) -> PreparedStage:
    """Return the stage that adds ``count`` rows to each matrix of sums. Its addresses: sums, index, rows."""
    matrices, places, width = sums
    wanted = -(-TASKS_PER_THREAD * threads // matrices) if threads > 1 and width >= _INDEXED_COLUMNS else 1
    parts = 1 << min(places, wanted).bit_length() - 1
    task_width = -(-width // (-(-wanted // parts) * _INDEXED_COLUMNS)) * _INDEXED_COLUMNS
    blocks = -(-width // task_width)
    values = {"places": places, "count": count, "width": width, "parts": parts}
    values |= {"blocks": blocks, "task_width": task_width, "task_count": matrices * parts * blocks}
    spec = indexed.IndexedSpec(isa, min(isa.lanes, 1 << width.bit_length() - 1))
    return PreparedStage(spec, values, matrices * count * width * _INDEXED_TRAFFIC)


@cache
def _driver(specs: tuple[stages.Spec, ...], by_rows: int) -> CompiledKernel:
    (driver,) = jit.functions(specs[0].isa, stages.module_of, specs, by_rows, driver=jit.DRIVER)
    kernel: CompiledKernel = driver
    return kernel


@cache
def calls_for(isa: Isa) -> ElementwiseCalls:
    """Return the stages and calls for an instruction set."""
    return ElementwiseCalls(isa)


class ElementwiseCalls:
    """Stages and calls for one instruction set."""

    __slots__ = ("isa",)
    prepared = staticmethod(prepared)

    def __init__(self, isa: Isa) -> None:
        self.isa = isa

    def map(
        self,
        name: str,
        tensors: tuple[Strided, ...],
        extents: Extents,
        max_columns: int = TASK_ELEMENTS,
        by_rows: int = 0,
    ) -> PreparedStage:
        """Return the stage of a map on operands and results; a task has ``max_columns`` at most.

        If ``by_rows`` is not 0, each task has so many rows, at all places of the outer axis.
        """
        return map_stage(self.isa, name, tensors, extents, max_columns, by_rows)

    def sums(self, summands: Summands, threads: int, by_rows: int = 0) -> PreparedStage:
        """Return the stage that writes the f64 sums (sums, sections, channels) of elements and of products.

        If ``by_rows`` is not 0, each task has so many channels, or a section of all channels if these are contiguous.
        """
        return sums_stage(self.isa, summands, threads, by_rows)

    def trees(self, matrices: int, rows: int, width: int, by_rows: int = 0) -> PreparedStage:
        """Return the stage that writes the totals of the rows of f64 matrices, by the 16-ary tree.

        If ``by_rows`` is not 0, each task has so many columns of all matrices.
        """
        return trees_stage(self.isa, matrices, rows, width, by_rows)

    def largest(self, fmt: str, rows: int, columns: int) -> PreparedStage:
        """Return the stage that writes the largest elements of rows in f32."""
        return largest_stage(self.isa, fmt, rows, columns)

    def combinations(self, axis: Combinations, by_rows: int = 0) -> PreparedStage:
        """Return the stage of combinations along an axis. If ``by_rows`` is not 0, each task has so many images."""
        return combinations_stage(self.isa, axis, by_rows)

    def indexed(self, sums: Extents, count: int, threads: int) -> PreparedStage:
        """Return the stage that adds ``count`` rows to each matrix of f32 sums, at the places of an index."""
        return indexed_stage(self.isa, sums, count, threads)

    def lists(self, name: str, lists: Lists, threads: int) -> PreparedDriver:
        """Return the call of a map on each tensor of lists. Its addresses: the numbers, and a table of the tensors."""
        return prepared_lists(self.isa, name, lists, threads)
