"""Elementwise functions and sums per channel on tensors in memory: by generated code, or NumPy with the same bits."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from convgrad import engines
from convgrad.engines.addresses import address_of, array_at
from convgrad.engines.tensors import TASK_ELEMENTS, Combinations, Extents, Lists, Strided, Summands
from convgrad.float_environment import in_default_environment
from convgrad.formats import F32, F64, FORMATS, Format, store
from convgrad.functional.recording import allocated, run
from convgrad.spec.elementwise import sums as by_numpy
from convgrad.spec.elementwise.arithmetic import NumpyOperations
from convgrad.spec.elementwise.combinations import Table, combined
from convgrad.spec.elementwise.sums import SECTION, section_sums, sections_of
from convgrad.spec.elementwise.table import MAPS

if TYPE_CHECKING:
    from convgrad.engines.llvm.elementwise.run import PreparedStage


def _empty(shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return a new array of f64."""
    array: NDArray[np.float64] = np.empty(shape)
    allocated(address_of(array), array.nbytes, array)
    return array


class Program:
    """Maps and sums that one driver computes in order. The results are there after ``run``.

    If ``by_rows`` is not 0, all stages have the same rows, which are channels with contiguous positions, and a task may
    compute all stages of so many rows. Then no stage may read another task's rows. Sums per column end these stages.
    They are the last one if a task has the rows of a section. Without kernels, NumPy computes each stage when it is
    added.
    """

    __slots__ = ("_addresses", "_by_rows", "_calls", "_kept", "_separate", "_stages", "_threads")

    def __init__(self, threads: int, by_rows: int = 0) -> None:
        self._calls = engines.generated().elementwise()
        self._threads, self._by_rows = threads, by_rows
        self._separate = 0  # how many stages are by rows
        self._stages: list[PreparedStage] = []
        self._addresses: list[int] = []
        self._kept: list[object] = []

    def map(
        self,
        name: str,
        tensors: tuple[Strided, ...],
        extents: Extents,
        addresses: Sequence[int],
        keep: object,
        *,
        of_rows: bool = False,
    ) -> None:
        """Add the map ``name`` on its operands and results, which are ``tensors`` at ``addresses`` in this order.

        ``keep`` keeps the memory of the tensors alive. A result may be an operand, but must not overlap it otherwise.
        ``of_rows`` is whether the map has one column for each row of the program.
        """
        if 0 in extents:
            return
        if self._calls is None:
            compute_by_numpy(name, tensors, extents, addresses)
        else:
            columns, rows = (self._by_rows or TASK_ELEMENTS, 0) if of_rows else (TASK_ELEMENTS, self._by_rows)
            self._add(self._calls.map(name, tensors, extents, columns, rows), addresses, keep)

    def sums(self, summands: Summands, addresses: Sequence[int], keep: object) -> NDArray[np.float64]:
        """Add f64 sums per channel: an array (sums, channels), or (sums, images, channels) if images aren't combined.

        ``addresses`` are those of the tensors, and ``keep`` keeps their memory alive.
        """
        images, channels, positions = summands.shape
        if not images * channels * positions:
            return np.zeros((summands.sums, channels) if summands.combined else (summands.sums, images, channels))
        sections = sections_of(images, positions, summands.combined)
        sums = _empty((summands.sums, sections.count, channels))
        if self._calls is None:
            sums_by_numpy(summands, addresses, sums)
        else:
            if summands.channels_last and self._by_rows != SECTION:
                self._by_rows = 0
            stage = self._calls.sums(summands, self._threads, self._by_rows)
            self._add(stage, [*addresses, address_of(sums)], (keep, sums))
            if summands.channels_last:
                self._by_rows = 0
        if not summands.combined:
            sums = sums.reshape(summands.sums, images, sections.sections, channels)
        return self.totals(sums)

    def totals(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add the totals of contiguous sums (..., rows, width) over the rows, by the 16-ary tree."""
        *outer, rows, width = sums.shape
        if rows == 1:
            return sums.reshape(*outer, width)
        if not sums.size or self._calls is None:
            return by_numpy.totals(sums) if rows else np.zeros((*outer, width))
        totals = _empty((*outer, width))
        stage = self._calls.trees(prod(outer), rows, width, self._by_rows)
        self._add(stage, [address_of(sums), address_of(totals)], (sums, totals))
        return totals

    def largest(self, fmt: str, rows: int, columns: int, addresses: Sequence[int], keep: object) -> None:
        """Add the largest elements of contiguous rows, which are written in f32; NaN if a row has one.

        ``addresses`` are those of the rows, and of the results.
        """
        if self._calls is not None:
            self._add(self._calls.largest(fmt, rows, columns), addresses, keep)
            return
        matrix = _array(Strided(fmt, 0, columns * FORMATS[fmt].itemsize), (1, rows, columns), addresses[0])
        out = _array(Strided(F32.name, 0, F32.itemsize), (1, rows, 1), addresses[1])
        out[...] = matrix.astype(np.float32).max(axis=2, keepdims=True)

    def combinations(self, axis: Combinations, addresses: Sequence[int], keep: object) -> None:
        """Add combinations of positions along an axis. ``addresses`` are those of tensor, table and results.

        The rows of a program by rows are images.
        """
        if not axis.outers * axis.results * axis.columns:
            return
        if self._calls is not None:
            self._add(self._calls.combinations(axis, self._by_rows), addresses, keep)
        else:
            combinations_by_numpy(axis, addresses)

    def run(self) -> None:
        """Compute the stages."""
        if self._calls is not None and self._stages:
            call = self._calls.prepared(tuple(self._stages), self._threads, self._separate)
            run(call, self._addresses, self._kept)

    def _add(self, stage: PreparedStage, addresses: Sequence[int], keep: object) -> None:
        self._stages.append(stage)
        self._separate += self._by_rows > 0
        self._addresses.extend(addresses)
        self._kept.append(keep)


def compute(
    name: str, tensors: tuple[Strided, ...], extents: Extents, addresses: Sequence[int], threads: int, keep: object
) -> None:
    """Compute the map ``name`` as ``Program.map`` does, without a program, because small tensors need fast calls."""
    if 0 in extents:
        return
    calls = engines.generated().elementwise()
    if calls is None:
        compute_by_numpy(name, tensors, extents, addresses)
    else:
        run(calls.prepared((calls.map(name, tensors, extents),), threads), addresses, keep)


def compute_steps(
    name: str, tensors: tuple[Strided, ...], extents: Extents, addresses: Sequence[int], threads: int, keep: object
) -> None:
    """Compute a map step by step along the outer axis: operands may be the results of earlier steps in their row."""
    if 0 in extents:
        return
    steps, rows, columns = extents
    calls = engines.generated().elementwise()
    if calls is not None:
        stage = calls.map(name, tensors, extents, by_rows=-(-rows // threads))
        run(calls.prepared((stage,), threads), addresses, keep)
        return
    for step in range(steps):
        places = [address + step * tensor.outer for address, tensor in zip(addresses, tensors, strict=True)]
        compute_by_numpy(name, tensors, (1, rows, columns), places)


def compute_lists(
    name: str,
    lists: Lists,
    tensors: Sequence[Sequence[int]],
    numbers: NDArray[np.float32],
    threads: int,
    keep: object,
) -> None:
    """Compute a map on each tensor of lists, and on ``numbers``, which are the operands after the tensors.

    ``tensors`` are the addresses of each list.
    """
    calls = engines.generated().elementwise()
    places = [address_of(numbers) + number * numbers.itemsize for number in range(len(numbers))]
    if calls is not None:
        table = array("q", chain.from_iterable(tensors))
        calls.lists(name, lists, threads)([*places, table.buffer_info()[0]], (numbers, table, keep))
        return
    layouts = tuple([Strided(fmt, 0, 0) for fmt in lists.all_formats])
    for *addresses, length in zip(*tensors, lists.lengths, strict=True):
        compute_by_numpy(name, layouts, (1, 1, length), [*addresses, *places, *addresses[: lists.results]])


@in_default_environment
def add_rows(sums: Extents, count: int, addresses: Sequence[int], threads: int, keep: object) -> None:
    """Add rows (matrices, count, width) to sums (matrices, places, width) at the places of an index, in its order.

    ``sums`` is the shape of the sums, and ``addresses`` are those of the sums, of the index and of the rows. They are
    contiguous f32 numbers, and i64 places. A row whose place is outside of the sums is not added. The call is not
    recorded, because its caller checks the places.
    """
    if 0 in (*sums, count):
        return
    calls = engines.generated().elementwise()
    if calls is not None:
        calls.prepared((calls.indexed(sums, count, threads),), threads)(addresses, keep)
        return
    matrices, places, width = sums
    totals, rows = (
        array_at(address, (matrices, length, width), (4 * length * width, 4 * width, 4), F32.dtype)
        for length, address in ((places, addresses[0]), (count, addresses[2]))
    )
    index = array_at(addresses[1], (count,), (8,), np.dtype(np.int64))
    by_numpy.add_rows(totals, index, rows)


@in_default_environment
def compute_by_numpy(name: str, tensors: tuple[Strided, ...], extents: Extents, addresses: Sequence[int]) -> None:
    """Compute a map by NumPy."""
    arrays, results = _mapped(name, tensors, extents, addresses)
    operands = len(MAPS[name].operands)
    with np.errstate(all="ignore"):
        for result, array, tensor in zip(results, arrays[operands:], tensors[operands:], strict=False):
            exact = result if tensor.fmt == F64.name else result.astype(np.float32).astype(np.float64)
            array[...] = store(exact, FORMATS[tensor.fmt]).reshape(extents)


def _mapped(
    name: str, tensors: tuple[Strided, ...], extents: Extents, addresses: Sequence[int]
) -> tuple[list[NDArray[Any]], tuple[NDArray[Any], ...]]:
    """Return the arrays of a map's tensors, and its results on the first ones, which are its operands."""
    definition = MAPS[name]
    wide = definition.is_wide([tensor.fmt for tensor in tensors])
    number, dtype = (F64, np.float64) if wide else (F32, np.float32)
    arrays = [_array(tensor, extents, address, number) for tensor, address in zip(tensors, addresses, strict=True)]
    values = [array.astype(dtype).ravel() for array in arrays[: len(definition.operands)]]
    with np.errstate(all="ignore"):
        results = definition.definition(NumpyOperations(dtype), *values)
    return arrays, results if isinstance(results, tuple) else (results,)


def _array(tensor: Strided, extents: Extents, address: int, per_row: Format = F32) -> NDArray[np.generic]:
    fmt = FORMATS[tensor.fmt] if tensor.fmt else per_row
    strides = (tensor.outer, tensor.row, fmt.itemsize if tensor.fmt else 0)
    return array_at(address, extents, strides, fmt.dtype)


@in_default_environment
def sums_by_numpy(summands: Summands, addresses: Sequence[int], sums: NDArray[np.float64]) -> None:
    """Write the sums (sums, sections, channels) by NumPy."""
    images, channels, positions = summands.shape
    extents = (images, positions, channels) if summands.channels_last else summands.shape
    arrays, terms = _mapped(summands.name, summands.tensors, extents, addresses)
    with np.errstate(all="ignore"):
        shaped = [term.astype(np.float32).reshape(extents) for term in terms]
    if summands.stored:
        arrays[-1][...] = store(shaped[0].astype(np.float64), F32)
    first, *others = [term.transpose(0, 2, 1) if summands.channels_last else term for term in shaped]
    sections = sections_of(images, positions, summands.combined)
    factors = [None] * summands.plain + others[:1] * summands.products
    for number, factor in enumerate(factors):
        sums[number] = section_sums(first, factor, sections)


@in_default_environment
def combinations_by_numpy(axis: Combinations, addresses: Sequence[int]) -> None:
    """Compute combinations along an axis by NumPy."""
    extents, results = (axis.outers, axis.positions, axis.columns), (axis.outers, axis.results, axis.columns)
    sizes = [FORMATS[fmt].itemsize for fmt in axis.formats]
    x, out = (
        _array(Strided(fmt, rows * axis.columns * size, axis.columns * size), shape, address)
        for fmt, size, rows, shape, address in zip(
            axis.formats, sizes, (axis.positions, axis.results), (extents, results), addresses[::2], strict=True
        )
    )
    item = np.dtype(np.int32)
    strides = axis.results * item.itemsize, item.itemsize
    table = Table(array_at(addresses[1], (1 + 2 * axis.terms, axis.results), strides, item))
    with np.errstate(all="ignore"):
        exact = combined(x.astype(np.float32), table, axis.from_zero)
    out[...] = store(exact.astype(np.float64), FORMATS[axis.formats[1]])
