"""Elementwise functions and sums per channel on PyTorch's tensors: dense views of them, and results."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import inf, prod
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from convgrad.arrays.libraries.torch import TORCH, formats_of
from convgrad.arrays.libraries.torch import address_of as reading_address_of
from convgrad.engines.addresses import address_of
from convgrad.engines.settings import on
from convgrad.engines.tensors import PER_ROW, Extents, Lists, Strided, Summands
from convgrad.formats import F32, F64, FORMATS
from convgrad.functional import elementwise
from convgrad.torch.kernels import LAST, is_channels_last, threads_of_call
from convgrad.torch.training.row import LOW, SUMMED, UnservedError, result_type

Operand: TypeAlias = Tensor | float
Floats = NDArray[np.float64]  # sums, or coefficients per channel
_address = reading_address_of(torch)
_FORMATS = {dtype: fmt.name for dtype, fmt in formats_of(torch).items()}
_F32_BYTES, _F64_BYTES = 4, 8
_REMEMBERED = 1024  # kinds of calls


def is_served(*values: object) -> bool:
    """Return whether maps compute on tensors of these types: f32, bf16 and f16, and numbers."""
    return all(one.dtype in SUMMED for one in values if isinstance(one, torch.Tensor))


def elements(name: str, *operands: Operand, out: Tensor | None = None) -> Tensor:
    """Return the result of a map on tensors and numbers, which are repeated to one shape.

    The type is PyTorch's for the tensors. The strides are those of the first tensor of this shape, if it is dense. The
    result is ``out`` if ``out`` has this type, this shape and these strides.
    """
    call = _known(name, _kinds(operands))
    fits = out is not None and (out.dtype, out.shape, out.stride()) == (call.dtype, call.shape, call.strides)
    result = out if out is not None and fits else call.empty(call.dtype)
    if out is not None:
        _refuse_overlap(out, operands)
    addresses, kept = call.read(operands)
    _compute(name, call.tensors, call.extents, [*addresses, result.data_ptr()], (kept, result))
    return result


def update(name: str, targets: Sequence[Tensor], *operands: Operand) -> None:
    """Write the first results of a map on tensors and numbers to ``targets``, which are among the operands."""
    call = _known(name, _kinds(operands), tuple([one.dtype for one in targets]))
    for target in targets:
        _refuse_overlap(target, operands)
    addresses, kept = call.read(operands)
    results: list[Tensor] = [
        one if (one.shape, one.stride()) == (call.shape, call.strides) else call.empty(one.dtype) for one in targets
    ]
    places = [*addresses, *[one.data_ptr() for one in results]]
    _compute(name, call.tensors, call.extents, places, (kept, results))
    for target, result in zip(targets, results, strict=True):
        if result is not target:
            target.copy_(result)


def update_lists(name: str, lists: Sequence[Sequence[Tensor]], numbers: Sequence[float], results: int) -> None:
    """Write the results of a map to the first ``results`` lists of tensors, for each place in the lists.

    The operands of the map are the tensors at this place, and numbers.
    """
    groups: dict[tuple[torch.dtype, ...], list[tuple[Tensor, ...]]] = {}
    for tensors in zip(*lists, strict=True):
        first = tensors[0]
        kind = first.shape, first.stride()
        if all((one.shape, one.stride()) == kind for one in tensors[1:]) and _span(first) == first.numel():
            groups.setdefault(tuple([one.dtype for one in tensors]), []).append(tensors)
        else:
            update(name, tensors[:results], *tensors, *numbers)
    for dtypes, rows in groups.items():
        places = [[one.data_ptr() if at < results else _address(one) for at, one in enumerate(row)] for row in rows]
        addresses, lengths = np.array(places, np.int64), np.array([row[0].numel() for row in rows], np.int64)
        if not SUMMED.issuperset(dtypes) or _overlap(addresses, lengths, dtypes):
            for row in rows:
                update(name, row[:results], *row, *numbers)
            continue
        formats = *[_FORMATS[dtype] for dtype in dtypes], *[PER_ROW] * len(numbers)
        targets = [_FORMATS[dtype] for dtype in dtypes[:results]]
        found = Lists((*formats, *targets), np.hstack([addresses, addresses[:, :results]]), lengths)
        on(TORCH.pool, elementwise.compute_lists, name, found, _f32(numbers), threads_of_call(), rows)


def _overlap(addresses: NDArray[np.int64], lengths: NDArray[np.int64], dtypes: Sequence[torch.dtype]) -> bool:
    """Return whether two tensors share memory, unless two lists have the same tensors."""
    sizes = lengths[:, None] * np.array([dtype.itemsize for dtype in dtypes])
    columns = addresses.T
    own = [at for at, one in enumerate(columns) if not any(np.array_equal(one, other) for other in columns[:at])]
    begins, ends = addresses[:, own].ravel(), (addresses + sizes)[:, own].ravel()
    order = np.argsort(begins)
    return bool((begins[order][1:] < ends[order][:-1]).any())


def _f32(numbers: Sequence[float]) -> NDArray[np.float32]:
    """Return numbers rounded to f32."""
    if any(F32.largest < abs(number) < inf for number in numbers):
        raise RuntimeError("value cannot be converted to type float without overflow")
    return np.array(numbers, np.float32)


def _refuse_overlap(out: Tensor, operands: Sequence[object]) -> None:
    """Raise as PyTorch does if a dense operand shares a part of its memory with ``out``, or all of it differently.

    Operands that are not dense are copied before ``out`` is written.
    """
    begin, size = out.data_ptr(), out.element_size()
    end = begin + size * _span(out)
    for one in operands:
        if not isinstance(one, torch.Tensor) or one is out or not one.numel() or _span(one) != one.numel():
            continue
        first = _address(one)
        same = (first, one.dtype, one.shape, one.stride()) == (begin, out.dtype, out.shape, out.stride())
        if first < end and begin < first + one.element_size() * one.numel() and not same:
            raise RuntimeError(
                "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single "
                "memory location. Please clone() the tensor before performing the operation."
            )


def _span(tensor: Tensor) -> int:
    """Return the number of elements from the first to the last one in memory."""
    steps: list[int] = [(n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    return 1 + sum(steps)


Kind = tuple[torch.dtype, torch.Size, tuple[int, ...]]  # type, shape and strides of a tensor
_NUMBER, _PER_ROW, _AS_IT_IS = "number", "per row", "as it is"  # how an operand is read; or the type of a copy


def _kinds(operands: Sequence[Operand]) -> tuple[Kind | None, ...]:
    """Return the kinds of operands; None is a number."""
    return tuple([(one.dtype, one.shape, one.stride()) if isinstance(one, torch.Tensor) else None for one in operands])


class _ElementsCall(NamedTuple):
    """A call of `elements` or `update` on operands of known kinds."""

    dtype: torch.dtype
    shape: torch.Size
    strides: tuple[int, ...]
    ways: tuple[str | torch.dtype, ...]
    tensors: tuple[Strided, ...]
    extents: Extents

    def empty(self, dtype: torch.dtype) -> Tensor:
        """Return a new tensor with the shape and the strides of the results."""
        return torch.empty_strided(self.shape, self.strides, dtype=dtype)

    def read(self, operands: Sequence[Operand]) -> tuple[list[int], list[object]]:
        """Return the addresses of the operands, and the objects with their memory."""
        memory = _f32([one for one in operands if not isinstance(one, torch.Tensor)])
        kept: list[object] = [memory]
        at, addresses = address_of(memory), []
        for one, way in zip(operands, self.ways, strict=True):
            if not isinstance(one, torch.Tensor):
                addresses.append(at)
                at += _F32_BYTES
                continue
            if way == _AS_IT_IS:
                tensor = one
            elif isinstance(way, str):
                tensor = one.to(torch.float32).contiguous()
            else:
                tensor = self.empty(way).copy_(one)
            kept.append(tensor)
            addresses.append(_address(tensor))
        return addresses, kept


@lru_cache(_REMEMBERED)
def _known(name: str, kinds: tuple[Kind | None, ...], targets: tuple[torch.dtype, ...] = ()) -> _ElementsCall:
    """Return the call of a map on operands of these kinds. ``targets`` are types of results, if not PyTorch's."""
    metas = [None if kind is None else torch.empty_strided(*kind[1:], dtype=kind[0], device="meta") for kind in kinds]
    given = [one for one in metas if one is not None]
    to = result_type(*given)
    if to not in SUMMED:
        raise UnservedError(f"has no specified operations for {to}")
    shape = torch.broadcast_shapes(*[one.shape for one in given])
    first = next((one for one in given if one.shape == shape), None)
    result = torch.empty(shape, dtype=to, device="meta") if first is None else torch.empty_like(first, dtype=to)
    axes = _axes_of_rows([one for one in given if one.shape != shape], result)
    rows, columns = (prod(shape[:axes]), prod(shape[axes:])) if axes < len(shape) else (1, result.numel())
    ways: list[str | torch.dtype] = []
    tensors = []
    for one in metas:
        if one is None:
            ways.append(_NUMBER)
            tensors.append(Strided(PER_ROW, 0, 0))
        elif axes < len(shape) and one.shape != shape:
            ways.append(_PER_ROW)
            tensors.append(Strided(PER_ROW, 0, _F32_BYTES))
        else:
            read = one.dtype if one.dtype in SUMMED else torch.float32
            is_like = (one.dtype, one.shape, one.stride()) == (read, shape, result.stride())
            ways.append(_AS_IT_IS if is_like else read)
            tensors.append(Strided(_FORMATS[read], 0, columns * read.itemsize))
    tensors += [Strided(_FORMATS[dtype], 0, columns * dtype.itemsize) for dtype in targets or (to,)]
    return _ElementsCall(to, shape, result.stride(), tuple(ways), tuple(tensors), (1, rows, columns))


def _axes_of_rows(smaller: Sequence[Tensor], result: Tensor) -> int:
    """Return the number of leading axes along which smaller operands vary, if they have one number per row.

    Return the number of all axes if there are no such operands, or if an operand varies along other axes.
    """
    rank: int = result.dim()
    found = {_leading_axes(one.shape, result.shape) for one in smaller}
    if len(found) != 1 or not result.is_contiguous():
        return rank
    (axes,) = found
    return rank if axes is None else axes


def _leading_axes(some: Sequence[int], shape: Sequence[int]) -> int | None:
    """Return k if a shape is the first k extents of another one, and then 1; else None."""
    if len(some) != len(shape):
        return None if prod(some) != 1 else 0
    axes: int = len(some)
    while axes and some[axes - 1] == 1:
        axes -= 1
    return axes if tuple(some[:axes]) == tuple(shape[:axes]) else None


def _compute(name: str, tensors: tuple[Strided, ...], extents: Extents, addresses: Sequence[int], keep: object) -> None:
    on(TORCH.pool, elementwise.compute, name, tensors, extents, addresses, threads_of_call(), keep)


# -- channels ------------------------------------------------------------------------------------------------------


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


class _Gathered(NamedTuple):
    """Operands of a call: how they are stored, and their addresses."""

    tensors: list[Strided]
    addresses: list[int]


def _gathered(
    tensors: Sequence[Tensor],
    coefficients: Sequence[Tensor],
    columns: Sequence[Tensor],
    extents: Extents,
    per_column: bool = False,
) -> _Gathered:
    """Gather tensors of the same extents, f32 ``coefficients`` per row, or ``per_column``, and then ``columns``."""
    _, rows, length = extents
    found = _Gathered([], [])
    for one in tensors:
        size = one.element_size()
        found.tensors.append(Strided(_FORMATS[one.dtype], rows * length * size, length * size))
    for one in coefficients:
        outer = one.shape[-1] * _F32_BYTES * (one.dim() == 2)
        found.tensors.append(Strided(F32.name, outer, 0) if per_column else Strided(PER_ROW, outer, _F32_BYTES))
    found.tensors.extend([Strided(_FORMATS[one.dtype], 0, 0) for one in columns])
    found.addresses.extend([_address(one) for one in (*tensors, *coefficients, *columns)])
    return found


def mapped(
    name: str,
    seen: ChannelView,
    *tensors: Tensor,
    coefficients: Sequence[Tensor],
    columns: Sequence[Tensor] = (),
) -> Tensor:
    """Return the result of a map on tensors like ``seen``, and then on f32 coefficients.

    Coefficients have the shape (channels,) or (images, channels). If positions are contiguous, the last operands of the
    map can be ``columns``, which have one number per position, for all channels.
    """
    images, channels, positions = seen.shape
    extents = images, channels, positions
    if seen.last:
        per_image = any(one.dim() == 2 for one in coefficients)
        extents = (images, positions, channels) if per_image else (1, images * positions, channels)
    result = torch.empty_like(seen.tensor)
    operands = _gathered(tensors, coefficients, columns, extents, per_column=seen.last)
    target = Strided(_FORMATS[result.dtype], *operands.tensors[0][1:])
    kept = tensors, coefficients, columns, result
    _compute(name, (*operands.tensors, target), extents, [*operands.addresses, result.data_ptr()], kept)
    return result


def sums_of(
    name: str,
    seen: ChannelView,
    *others: Tensor,
    coefficients: Sequence[Tensor] = (),
    columns: Sequence[Tensor] = (),
    plain: bool = True,
    products: bool = True,
    combined: bool = True,
    terms: Tensor | None = None,
) -> Floats:
    """Return f64 sums per channel of a map on ``seen``, tensors like it, coefficients per row of memory, and columns.

    The shape is (sums, channels), or (sums, images, channels) if images are not ``combined``. The map's first result
    is also stored in ``terms``, which is an f32 tensor like ``seen``.
    """
    images, channels, positions = seen.shape
    extents = (images, positions, channels) if seen.last else seen.shape
    operands = _gathered((seen.tensor, *others), coefficients, columns, extents)
    stored = _gathered(() if terms is None else (terms,), (), (), extents)
    tensors = *operands.tensors, *stored.tensors
    summands = Summands(name, tensors, seen.shape, seen.last, plain, products, combined, terms is not None)
    kept = seen, others, coefficients, columns, terms
    arguments = summands, [*operands.addresses, *stored.addresses], threads_of_call(), kept
    found: Floats = on(TORCH.pool, elementwise.channel_sums, *arguments)
    return found


def coefficients(
    name: str,
    shape: tuple[int, ...],
    operands: Sequence[Tensor | Floats | float],
    count: int,
    types: Sequence[torch.dtype] = (),
    targets: Sequence[Tensor] = (),
) -> list[Tensor]:
    """Return results of a map in f64 on vectors of channels, f64 sums per group of channels, and numbers.

    ``shape`` is (channels,) or (images, channels). Sums have one value per channel, or the shape (images, groups).
    The first ``count`` results are f32, and then follow results of some types. The map's next results are written to
    ``targets``.
    """
    groups, kinds, given, addresses = 1, [], [], []
    numbers = np.array([one for one in operands if isinstance(one, float)], np.float64)
    at = address_of(numbers)
    for one in operands:
        if isinstance(one, float):
            kinds.append(_NUMBER)
            addresses.append(at)
            at += _F64_BYTES
        elif isinstance(one, np.ndarray):
            kinds.append(_PER_ROW if one.ndim == 2 else F64.name)
            groups = one.shape[1] if one.ndim == 2 else groups
            addresses.append(address_of(one))
        else:
            kinds.append(_FORMATS[one.dtype])
            addresses.append(_address(one))
    block = torch.empty((count, *shape))
    others = [torch.empty(shape, dtype=dtype) for dtype in types]
    places = [one if one.is_contiguous() else torch.empty(shape, dtype=one.dtype) for one in targets]
    begin, size = block.data_ptr(), prod(shape) * _F32_BYTES
    addresses.extend(range(begin, begin + size * count, size) if size else [begin] * count)
    for one in (*others, *places):
        given.append(_FORMATS[one.dtype])
        addresses.append(_address(one))
    tensors, extents = _coefficient_layout(shape, groups, tuple(kinds), (*[F32.name] * count, *given))
    _compute(name, tensors, extents, addresses, (numbers, operands, block, others, places))
    for target, place in zip(targets, places, strict=True):
        if place is not target:
            target.copy_(place)
    return [*block.unbind(0), *others]


@lru_cache(_REMEMBERED)
def _coefficient_layout(
    shape: tuple[int, ...], groups: int, operands: tuple[str, ...], results: tuple[str, ...]
) -> tuple[tuple[Strided, ...], Extents]:
    """Return how the operands and results of `coefficients` are stored, and the extents of the map."""
    *images, channels = shape
    length, tensors = channels // groups, []
    for one in operands:
        if one in (_NUMBER, _PER_ROW):
            row = _F64_BYTES * (one == _PER_ROW)
            tensors.append(Strided(PER_ROW, row * groups, row))
        else:
            tensors.append(Strided(one, 0, length * FORMATS[one].dtype.itemsize))
    for one in results:
        size = FORMATS[one].dtype.itemsize
        tensors.append(Strided(one, channels * size, length * size))
    return tuple(tensors), (prod(images), groups, length)


def floats(values: Tensor) -> Floats:
    """Return a tensor's values in f64."""
    values = values.detach()
    exact = values.float() if values.dtype in LOW else values
    found: Floats = exact.numpy().astype(np.float64)
    return found


def tensor_of(values: Floats, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return f64 values as a tensor, rounded to f32, and then to the type."""
    with np.errstate(all="ignore"):
        found = torch.from_numpy(values.astype(np.float32))
    return found if dtype == torch.float32 else found.to(dtype)
