"""Maps and sums per channel on PyTorch's tensors, and coefficients per channel in f64."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from convgrad.array_types import Array
from convgrad.arrays.libraries.torch import TORCH
from convgrad.engines.addresses import address_of
from convgrad.engines.settings import on
from convgrad.engines.tensors import PER_ROW, TASK_ELEMENTS, Combinations, Extents, Strided, Summands, rows_of_task
from convgrad.formats import F32, F64, FORMATS
from convgrad.functional import elementwise, recording
from convgrad.spec.elementwise.combinations import Table
from convgrad.spec.elementwise.sums import SECTION
from convgrad.torch.kernels import LAST, is_channels_last, threads_of_call
from convgrad.torch.training.tensors import (
    F32_BYTES,
    NAMES,
    NUMBER,
    REMEMBERED,
    ROW_NUMBER,
    allocated,
    read_address,
    write_address,
)

Floats = NDArray[np.float64]  # sums, or coefficients per channel
_F64_BYTES = 8
CHANNEL_ELEMENTS = 1 << 17  # of a channel that tasks compute alone: the second cache has two tensors of them
TASKS_PER_THREAD = 4  # if they have more elements than other tasks
_OF_IMAGES = "f64 of images"  # how an operand is read: one f64 per image and channel


def constant_array(array: Array) -> Array:
    """Return an array of numbers that depend only on the kind of the call."""
    recording.constant(address_of(array), array.nbytes, array)
    return array


class ChannelView(NamedTuple):
    """A dense tensor seen as images, channels and positions; ``last`` is whether channels are contiguous."""

    tensor: Tensor
    shape: Extents
    last: bool

    def like(self, other: Tensor) -> Tensor:
        """Return a tensor of the same shape with the strides of this one."""
        if other.stride() == self.tensor.stride():
            return other
        return torch.empty_like(self.tensor, dtype=other.dtype).copy_(other)


def channels_of(x: Tensor) -> ChannelView:
    """Return a tensor (N, C, X...) as ChannelView, in its own memory format."""
    images, channels, *extents = x.shape
    positions = prod(extents)
    if is_channels_last(x) and x.is_contiguous(memory_format=LAST[x.dim()]):
        return ChannelView(x, (images, channels, positions), positions > 0)
    return ChannelView(x.contiguous(), (images, channels, positions), positions == 1)


def rows_of(x: Tensor, rows: int, positions: int) -> ChannelView:
    """Return a tensor as ``rows`` channels of one image, in row-major order."""
    return ChannelView(x.contiguous(), (1, rows, positions), False)


Vector = tuple[str, int]  # coefficients: PER_ROW or f32, and the bytes from an image to the next one


@lru_cache(REMEMBERED)
def _layout(
    dtypes: tuple[torch.dtype, ...], vectors: tuple[Vector, ...], columns: tuple[torch.dtype, ...], extents: Extents
) -> tuple[Strided, ...]:
    """Return how tensors of the same extents are stored, then f32 coefficients, and then ``columns``."""
    _, rows, length = extents
    sizes = [dtype.itemsize for dtype in dtypes]
    tensors = [
        Strided(NAMES[dtype], rows * length * size, length * size) for dtype, size in zip(dtypes, sizes, strict=True)
    ]
    tensors += [Strided(fmt, outer, 0 if fmt else F32_BYTES) for fmt, outer in vectors]
    return *tensors, *[Strided(NAMES[dtype], 0, 0) for dtype in columns]


def _types(tensors: Sequence[Tensor]) -> tuple[torch.dtype, ...]:
    return tuple([tensor.dtype for tensor in tensors])


def _are_per_image(coefficients: Sequence[Tensor]) -> bool:
    return any([vector.dim() == 2 for vector in coefficients])


def _vectors(coefficients: Sequence[Tensor], fmt: str) -> tuple[Vector, ...]:
    return tuple([(fmt, vector.shape[-1] * F32_BYTES * (vector.dim() == 2)) for vector in coefficients])


class ChannelProgram:
    """Maps, sums and coefficients per channel, which one driver computes in order. Results are there after ``run``.

    If ``by_rows`` is not 0, no channel needs another one; see ``Program``.
    """

    __slots__ = ("_copies", "_program", "_small")

    def __init__(self, elements: int, by_rows: int = 0) -> None:
        self._small = elements <= TASK_ELEMENTS
        self._program = elementwise.Program(1 if self._small else threads_of_call(), by_rows)
        self._copies: list[tuple[Tensor, Tensor]] = []

    @classmethod
    def by_channel(cls, view: ChannelView) -> ChannelProgram:
        """Return a program whose tasks compute all stages of some channels, while a cache has them, where they can."""
        images, channels, positions = view.shape
        elements = images * positions
        is_enough = elements <= CHANNEL_ELEMENTS and channels >= TASKS_PER_THREAD * threads_of_call()
        is_separate = not view.last and (elements <= TASK_ELEMENTS or is_enough)
        return cls(view.tensor.numel(), rows_of_task(elements) if is_separate else 0)

    @classmethod
    def by_row(cls, view: ChannelView) -> ChannelProgram:
        """Return a program as ``by_channel`` does, which adds elements per column after all other stages."""
        _, rows, positions = view.shape
        is_enough = rows >= TASKS_PER_THREAD * threads_of_call() * SECTION
        if positions * SECTION <= CHANNEL_ELEMENTS and is_enough:
            return cls(view.tensor.numel(), SECTION)  # a task has all that its sums need
        return cls.by_channel(view)

    def mapped(
        self,
        name: str,
        view: ChannelView,
        *tensors: Tensor,
        coefficients: Sequence[Tensor],
        columns: Sequence[Tensor] = (),
        out: Tensor | None = None,
    ) -> Tensor:
        """Return the result of a map on tensors like ``view``, and then on f32 coefficients.

        Coefficients have the shape (channels,) or (images, channels). If positions are contiguous, the last operands of
        the map can be ``columns``, which have one number per position, for all channels. The result is ``out``, a
        tensor with the strides of ``view``, or a new tensor of its type.
        """
        images, channels, positions = view.shape
        extents = images, channels, positions
        if view.last:
            outer = images if _are_per_image(coefficients) else 1
            extents = outer, images * positions // outer, channels
        result = allocated(torch.empty_like(view.tensor)) if out is None else out
        vectors = _vectors(coefficients, F32.name if view.last else PER_ROW)
        layout = (
            *_layout(_types(tensors), vectors, _types(columns), extents),
            *_layout((result.dtype,), (), (), extents),
        )
        operands = *tensors, *coefficients, *columns
        addresses = [*map(read_address, operands), result.data_ptr()]
        self._program.map(name, layout, extents, addresses, (operands, result))
        return result

    def sums_of(
        self,
        name: str,
        view: ChannelView,
        *others: Tensor,
        coefficients: Sequence[Tensor] = (),
        columns: Sequence[Tensor] = (),
        plain: bool = True,
        products: bool = True,
        combined: bool = True,
        terms: Tensor | None = None,
    ) -> Floats:
        """Return f64 sums per channel of a map on ``view``, tensors like it, coefficients per row, and columns.

        Coefficients of the shape (images, channels) are per channel, also where rows are positions. The result has the
        shape (sums, channels), or (sums, images, channels) if images are not ``combined``. The map's first result is
        also stored in ``terms``, which is an f32 tensor like ``view``.
        """
        images, channels, positions = view.shape
        extents = (images, positions, channels) if view.last else view.shape
        of_map, stored = (view.tensor, *others), () if terms is None else (terms,)
        vectors = _vectors(coefficients, F32.name if view.last and _are_per_image(coefficients) else PER_ROW)
        operands = _layout(_types(of_map), vectors, _types(columns), extents)
        tensors = *operands, *_layout(_types(stored), (), (), extents)
        summands = Summands(name, tensors, view.shape, view.last, plain, products, combined, terms is not None)
        operands_and_terms = *of_map, *coefficients, *columns, *stored
        return self._program.sums(summands, [*map(read_address, operands_and_terms)], operands_and_terms)

    def largest(self, rows: ChannelView) -> Tensor:
        """Return the largest element of each row."""
        _, count, positions = rows.shape
        result = allocated(torch.empty(count, dtype=torch.float32))
        addresses = read_address(rows.tensor), result.data_ptr()
        self._program.largest(NAMES[rows.tensor.dtype], count, positions, addresses, (rows, result))
        return result

    def combined(
        self, x: Tensor, extents: tuple[int, int, int, int], table: Table, out: Tensor, from_zero: bool
    ) -> Tensor:
        """Write combinations of positions to a dense tensor, and return it.

        ``extents`` are the images of a dense tensor, the rows of an image, and the positions and columns of a row.
        """
        layout = Combinations((NAMES[x.dtype], NAMES[out.dtype]), *extents, table.results, table.terms, from_zero)
        numbers = constant_array(table.numbers)
        addresses = read_address(x), address_of(numbers), out.data_ptr()
        self._program.combinations(layout, addresses, (x, table, out))
        return out

    def totals(self, sums: Floats) -> Floats:
        """Return the totals of sums (..., rows, width) over the rows, by the 16-ary tree."""
        return self._program.totals(sums)

    def coefficients(
        self,
        name: str,
        shape: tuple[int, ...],
        operands: Sequence[Tensor | Floats | float],
        count: int,
        types: Sequence[torch.dtype] = (),
        targets: Sequence[Tensor] = (),
    ) -> list[Tensor]:
        """Return results of a map in f64 on vectors of channels, f64 sums per group of channels, and numbers.

        ``shape`` is (channels,) or (images, channels). Sums have this shape, or (images, groups).
        The first ``count`` results are f32, and then follow results of some types. The map's next results are written
        to ``targets``.
        """
        groups, kinds, addresses = 1, [], []
        numbers = np.array([operand for operand in operands if isinstance(operand, float)], np.float64)
        at = address_of(numbers)
        recording.constant(at, numbers.nbytes, numbers)
        for operand in operands:
            if isinstance(operand, float):
                kinds.append(NUMBER)
                addresses.append(at)
                at += _F64_BYTES
            elif isinstance(operand, np.ndarray):
                is_whole = operand.shape == shape
                kinds.append(_OF_IMAGES if is_whole and len(shape) == 2 else F64.name if is_whole else ROW_NUMBER)
                groups = groups if is_whole else operand.shape[1]
                addresses.append(address_of(operand))
            else:
                kinds.append(NAMES[operand.dtype])
                addresses.append(read_address(operand))
        computed = [allocated(torch.empty(shape, dtype=dtype)) for dtype in (*[torch.float32] * count, *types)]
        places = [target if target.is_contiguous() else torch.empty(shape, dtype=target.dtype) for target in targets]
        for place in places:
            recording.written(write_address(place))
        converted = *computed[count:], *places
        addresses.extend([result.data_ptr() for result in (*computed, *places)])  # copies memory that is shared
        results = *[F32.name] * count, *[NAMES[result.dtype] for result in converted]
        tensors, extents = _coefficient_layout(shape, groups, tuple(kinds), results)
        self._program.map(name, tensors, extents, addresses, (numbers, operands, computed, places), of_rows=True)
        self._copies += [(target, place) for target, place in zip(targets, places, strict=True) if place is not target]
        return computed

    def in_f64(self, values: Tensor) -> Floats:
        """Return a tensor's values in f64."""
        (wide,) = self.coefficients("mean", (values.numel(),), [values.reshape(-1), 1.0], 0, [torch.float64])
        result: Floats = wide.numpy().reshape(values.shape)
        return result

    def rounded(self, sums: Floats, dtype: torch.dtype = torch.float32, count: float = 1.0) -> Tensor:
        """Return f64 sums, divided by a number, and rounded to f32 and then to a type."""
        (result,) = self.coefficients("mean", (sums.size,), [sums.reshape(-1), count], 0, [dtype])
        return result

    def run(self) -> None:
        """Compute everything."""
        if self._small:
            self._program.run()
        else:
            on(TORCH.pool, self._program.run)
        for target, place in self._copies:
            target.copy_(place)


@lru_cache(REMEMBERED)
def _coefficient_layout(
    shape: tuple[int, ...], groups: int, operands: tuple[str, ...], results: tuple[str, ...]
) -> tuple[tuple[Strided, ...], Extents]:
    """Return how the operands and results of `coefficients` are stored, and the extents of the map."""
    *images, channels = shape
    length, tensors = channels // groups, []
    for kind in operands:
        if kind in (NUMBER, ROW_NUMBER):
            row = _F64_BYTES * (kind == ROW_NUMBER)
            tensors.append(Strided(PER_ROW, row * groups, row))
        elif kind == _OF_IMAGES:
            tensors.append(Strided(F64.name, channels * _F64_BYTES, length * _F64_BYTES))
        else:
            tensors.append(Strided(kind, 0, length * FORMATS[kind].itemsize))
    for fmt in results:
        size = FORMATS[fmt].itemsize
        tensors.append(Strided(fmt, channels * size, length * size))
    return tuple(tensors), (prod(images), groups, length)
