"""Elementwise functions and sums per channel on tensors in memory: by generated code, or NumPy with the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from convgrad import engines
from convgrad.engines.addresses import address_of, array_at
from convgrad.engines.tensors import Extents, Lists, Strided, Summands
from convgrad.float_environment import in_default_environment
from convgrad.formats import F32, F64, FORMATS, Format, store
from convgrad.spec.elementwise import sums as by_numpy
from convgrad.spec.elementwise.arithmetic import NumpyOperations
from convgrad.spec.elementwise.sums import section_sums, sections_of
from convgrad.spec.elementwise.table import MAPS


def compute(
    name: str, tensors: tuple[Strided, ...], extents: Extents, addresses: Sequence[int], threads: int, keep: object
) -> None:
    """Compute the map ``name`` on its operands and results, which are ``tensors`` at ``addresses`` in this order.

    ``keep`` keeps the memory of the tensors alive. A result may be an operand, but must not overlap it otherwise.
    """
    if 0 in extents:
        return
    generated = engines.generated()
    if generated.why_no_kernels():
        compute_by_numpy(name, tensors, extents, addresses)
    else:
        generated.map_call(name, tensors, extents, threads)(addresses, keep)


def compute_lists(name: str, lists: Lists, numbers: NDArray[np.float32], threads: int, keep: object) -> None:
    """Compute a map on each tensor of lists, and on ``numbers``, which are the operands after the tensors."""
    generated = engines.generated()
    places = [address_of(numbers) + number * numbers.itemsize for number in range(len(numbers))]
    if not generated.why_no_kernels():
        generated.lists_call(name, lists, threads)(places, (numbers, keep))
        return
    tensors = tuple([Strided(fmt, 0, 0) for fmt in lists.all_formats])
    for addresses, length in zip(lists.addresses, lists.lengths, strict=True):
        compute_by_numpy(name, tensors, (1, 1, length), [*addresses, *places, *addresses[: lists.results]])


@in_default_environment
def compute_by_numpy(name: str, tensors: tuple[Strided, ...], extents: Extents, addresses: Sequence[int]) -> None:
    """Compute a map by NumPy."""
    definition = MAPS[name]
    number, dtype = (F64, np.float64) if definition.wide else (F32, np.float32)
    arrays = [_array(tensor, extents, address, number) for tensor, address in zip(tensors, addresses, strict=True)]
    operands = len(definition.operands)
    values = [array.astype(dtype).ravel() for array in arrays[:operands]]
    with np.errstate(all="ignore"):
        outputs = definition.definition(NumpyOperations(dtype), *values)
        results = [output.astype(np.float32) for output in (outputs if isinstance(outputs, tuple) else (outputs,))]
    for result, array, tensor in zip(results, arrays[operands:], tensors[operands:], strict=False):
        array[...] = store(result.astype(np.float64), FORMATS[tensor.fmt]).reshape(extents)


def _array(tensor: Strided, extents: Extents, address: int, per_row: Format = F32) -> NDArray[np.generic]:
    fmt = FORMATS[tensor.fmt] if tensor.fmt else per_row
    strides = (tensor.outer, tensor.row, fmt.dtype.itemsize if tensor.fmt else 0)
    return array_at(address, extents, strides, fmt.dtype)


def channel_sums(summands: Summands, addresses: Sequence[int], threads: int, keep: object) -> NDArray[np.float64]:
    """Return f64 sums per channel: an array (sums, channels), or (sums, images, channels) if images are not combined.

    ``addresses`` are those of the tensors, and ``keep`` keeps their memory alive.
    """
    images, channels, positions = summands.shape
    if not images * channels * positions:
        return np.zeros((summands.sums, channels) if summands.combined else (summands.sums, images, channels))
    sections = sections_of(images, positions, summands.combined)
    sums = np.empty((summands.sums, sections.count, channels))
    generated = engines.generated()
    if generated.why_no_kernels():
        sums_by_numpy(summands, addresses, sums)
    else:
        generated.sums_call(summands, threads)([*addresses, address_of(sums)], (keep, sums))
    per_image = (summands.sums, images, sections.sections, channels)
    return totals(sums if summands.combined else sums.reshape(per_image), threads)


def totals(sums: NDArray[np.float64], threads: int) -> NDArray[np.float64]:
    """Return the totals of contiguous sums (..., rows, width) over the rows, by the 16-ary tree."""
    *outer, rows, width = sums.shape
    generated = engines.generated()
    if rows == 1 or not sums.size or generated.why_no_kernels():
        return by_numpy.totals(sums) if rows else np.zeros((*outer, width))
    result = np.empty((*outer, width))
    generated.trees_call(prod(outer), rows, width, threads)([address_of(sums), address_of(result)], (sums, result))
    return result


@in_default_environment
def sums_by_numpy(summands: Summands, addresses: Sequence[int], sums: NDArray[np.float64]) -> None:
    """Write the sums (sums, sections, channels) by NumPy."""
    images, channels, positions = summands.shape
    extents = (images, positions, channels) if summands.channels_last else summands.shape
    arrays = [_array(tensor, extents, address) for tensor, address in zip(summands.tensors, addresses, strict=True)]
    wide = [array.astype(np.float32).ravel() for array in arrays[: len(summands.operands)]]
    with np.errstate(all="ignore"):
        terms = MAPS[summands.name].definition(NumpyOperations(), *wide)
        terms = terms if isinstance(terms, tuple) else (terms,)
    shaped = [term.reshape(extents) for term in terms]
    if summands.stored:
        arrays[-1][...] = store(shaped[0].astype(np.float64), F32)
    first, *others = [term.transpose(0, 2, 1) if summands.channels_last else term for term in shaped]
    sections = sections_of(images, positions, summands.combined)
    factors = [None] * summands.plain + others[:1] * summands.products
    for number, factor in enumerate(factors):
        sums[number] = section_sums(first, factor, sections)
