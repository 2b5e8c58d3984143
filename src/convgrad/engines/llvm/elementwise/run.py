"""Prepared calls of maps and of sums: all arguments but the addresses of the tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from convgrad.engines.addresses import address_of
from convgrad.engines.engine import CompiledKernel
from convgrad.engines.llvm import isas, jit
from convgrad.engines.llvm.convert import BYTES
from convgrad.engines.llvm.elementwise import maps, sums, trees
from convgrad.engines.llvm.execute import copied, filled, run
from convgrad.engines.tensors import REMEMBERED_LISTS, TASK_ELEMENTS, Extents, Lists, Strided, Summands
from convgrad.plan.machine import LINE_BYTES, Isa
from convgrad.plan.records import FLAGS, Record
from convgrad.spec.elementwise.sums import CHAINS, SECTION, sections_of
from convgrad.spec.order import FAN_IN

TASKS_PER_THREAD = 2  # of sums with few sections, whose channels are cut
REMEMBERED = 1024  # calls
_SCRATCH_BYTES = 64  # of a driver that needs none


class PreparedDriver:
    """A driver and its arguments without addresses, which follow the flags in its record."""

    __slots__ = ("_addresses", "_arguments", "_driver", "_scratch_bytes", "_table", "_threads", "_time_ms")

    def __init__(
        self,
        isa: Isa,
        driver: CompiledKernel,
        record: Record,
        values: Mapping[str, int],
        threads: int,
        traffic: int,
        scratch_bytes: int,
        table: NDArray[np.int64] | None = None,
    ) -> None:
        self._driver = driver
        self._arguments, self._table = filled(record, values), table
        self._addresses = Struct(f"{len(set(record.addresses).difference(FLAGS.columns, values))}q")
        self._threads = min(threads, values["task_count"])
        self._time_ms = isas.machine(isa).for_traffic(traffic).traffic_ns(traffic) / 1e6 / self._threads
        self._scratch_bytes = scratch_bytes

    def __call__(self, addresses: Sequence[int], keep: object) -> None:
        """Run the driver on tensors at these addresses."""
        arguments, _ = copied(self._arguments)
        self._addresses.pack_into(arguments, FLAGS.bytes, *addresses)
        run(self._driver, arguments, self._scratch_bytes, self._threads, self._time_ms, (keep, self._table))


@lru_cache(REMEMBERED)
def prepared_map(isa: Isa, name: str, tensors: tuple[Strided, ...], extents: Extents, threads: int) -> PreparedDriver:
    """Return the call of a map on operands and results, which are ``tensors`` in this order."""
    outer, rows, columns = extents
    task_columns = min(columns, TASK_ELEMENTS)
    column_blocks = -(-columns // task_columns)
    task_rows = max(1, TASK_ELEMENTS // columns)
    values = {
        "rows": rows,
        "all_rows": outer * rows,
        "columns": columns,
        "task_rows": task_rows,
        "task_columns": task_columns,
        "column_blocks": column_blocks,
        "task_count": -(-outer * rows // task_rows) * column_blocks,
    }
    for number, tensor in enumerate(tensors):
        values |= {f"t{number}.outer": tensor.outer, f"t{number}.row": tensor.row}
    spec = maps.MapSpec(isa, name, tuple([tensor.fmt for tensor in tensors]))
    traffic = outer * rows * columns * sum([BYTES[fmt] for fmt in spec.formats if fmt])
    record = maps.arguments_of(spec)
    return PreparedDriver(isa, _driver(isa, maps.module_of, spec), record, values, threads, traffic, _SCRATCH_BYTES)


@lru_cache(REMEMBERED_LISTS)
def prepared_lists(isa: Isa, name: str, lists: Lists, threads: int) -> PreparedDriver:
    """Return the call of a map on each tensor of lists."""
    spec = maps.MapSpec(isa, name, lists.all_formats)
    lengths = np.array(lists.lengths, np.int64)
    blocks = -(-lengths // TASK_ELEMENTS)
    of_task = np.repeat(np.arange(len(lengths)), blocks)
    first = (np.arange(len(of_task)) - np.repeat(np.cumsum(blocks) - blocks, blocks)) * TASK_ELEMENTS
    sizes = np.array([BYTES[fmt] for fmt in spec.formats if fmt])
    tensors = np.array([(*row, *row[: lists.results]) for row in lists.addresses], np.int64)
    places = tensors[of_task] + first[:, None] * sizes
    length = np.minimum(TASK_ELEMENTS, lengths[of_task] - first)
    table = np.ascontiguousarray(np.column_stack([places, length]), np.int64)
    values = {"table": address_of(table), "task_count": len(table)}
    record, traffic = maps.arguments_of_lists(spec), int(lengths.sum() * sizes.sum())
    driver = _driver(isa, maps.module_of_lists, spec)
    return PreparedDriver(isa, driver, record, values, threads, traffic, _SCRATCH_BYTES, table)


@lru_cache(REMEMBERED)
def prepared_sums(isa: Isa, summands: Summands, threads: int) -> PreparedDriver:
    """Return the call that writes the f64 sums (sums, sections, channels). Their address follows the tensors'."""
    (images, channels, positions), last = summands.shape, summands.channels_last
    formats = tuple([one.fmt for one in summands.tensors])
    spec = sums.SumsSpec(isa, summands.name, formats, last, summands.plain, summands.products, summands.stored)
    sections = sections_of(images, positions, summands.combined)
    wanted = -(-TASKS_PER_THREAD * threads // sections.count)
    strips = max(-(-channels // sums.STRIP), min(wanted, -(-channels // sums.WIDTH)))
    strip = -(-channels // (strips * sums.WIDTH)) * sums.WIDTH
    chain = strip * sums.F64_BYTES + LINE_BYTES  # not a power of two, so that chains are in different sets of a cache
    units = sections.count * channels
    task_units = max(1, TASK_ELEMENTS // (min(positions, SECTION) * sections.group))
    values = {
        "images": images,
        "group": sections.group,
        "sections": sections.sections,
        "positions": positions,
        "channels": channels,
        "task_count": sections.count * -(-channels // strip) if last else -(-units // task_units),
        "task_units": task_units,
        "units": units,
        "strips": -(-channels // strip),
        "strip": strip,
        "chain": chain,
        "all_sections": sections.count,
    }
    for number, tensor in enumerate(summands.tensors):
        values |= {f"t{number}.outer": tensor.outer, f"t{number}.row": tensor.row}
    traffic = images * channels * positions * sum([BYTES[fmt] for fmt in formats if fmt])
    scratch = CHAINS * spec.sums * chain if last else _SCRATCH_BYTES
    return PreparedDriver(
        isa, _driver(isa, sums.module_of, spec), sums.arguments_of(spec), values, threads, traffic, scratch
    )


@lru_cache(REMEMBERED)
def prepared_trees(isa: Isa, matrices: int, rows: int, width: int, threads: int) -> PreparedDriver:
    """Return the call that adds the rows of f64 matrices by the 16-ary tree. Its addresses: matrices, totals."""
    levels, nodes = 1, -(-rows // FAN_IN)
    scratch_bytes = max(_SCRATCH_BYTES, nodes * width * sums.F64_BYTES)
    while nodes > 1:
        levels, nodes = levels + 1, -(-nodes // FAN_IN)
    values = {"rows": rows, "width": width, "levels": levels, "task_count": matrices}
    traffic = matrices * rows * width * sums.F64_BYTES
    return PreparedDriver(
        isa, _driver(isa, trees.module_of, isa), trees.ARGUMENTS, values, threads, traffic, scratch_bytes
    )


@cache
def _driver(isa: Isa, module: Callable[..., str], described: maps.MapSpec | sums.SumsSpec | Isa) -> CompiledKernel:
    (driver,) = jit.functions(isa, module, described, driver=jit.DRIVER)
    kernel: CompiledKernel = driver
    return kernel
