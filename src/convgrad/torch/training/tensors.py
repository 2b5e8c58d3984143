"""Elementwise functions on PyTorch's tensors, and on lists of them."""

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
from convgrad.engines.tensors import PER_ROW, REMEMBERED_LISTS, TASK_ELEMENTS, Extents, Lists, Strided
from convgrad.formats import F32
from convgrad.functional import elementwise
from convgrad.spec.elementwise.table import MAPS
from convgrad.torch.kernels import LOW, check_memory, threads_of_call
from convgrad.torch.training.row import SUMMED, TYPE_CURE, UnservedError, result_type

Operand: TypeAlias = Tensor | float
_address_of_read = reading_address_of(torch)
NAMES = {dtype: fmt.name for dtype, fmt in formats_of(torch).items()}
F32_BYTES = 4
_LARGEST = F32.largest
REMEMBERED = 1024  # kinds of calls


def read_address(tensor: Tensor) -> int:
    """Return the address of a tensor that is only read; raise by rule D1 if its memory was freed."""
    address = _address_of_read(tensor)
    if address < LOW:
        check_memory((tensor,))
    return address


def write_address(tensor: Tensor) -> int:
    """Return the address of a tensor that is written to, and copy memory that is shared, as in ``read_address``."""
    address: int = tensor.data_ptr()
    if address < LOW:
        check_memory((tensor,))
    return address


def is_served(*values: object) -> bool:
    """Return whether maps compute on tensors of these types: f32, bf16 and f16, and numbers."""
    return all(value.dtype in SUMMED for value in values if isinstance(value, torch.Tensor))


def elements(name: str, *operands: Operand, out: Tensor | None = None) -> Tensor:
    """Return the result of a map on tensors and numbers, which are repeated to one shape.

    The type is PyTorch's for the tensors. The strides are those of the first tensor of this shape, if it is dense. The
    result is ``out`` if ``out`` has this type, this shape and these strides.
    """
    call = _known(name, _kinds(operands))
    fits = out is not None and (out.dtype, out.shape, out.stride()) == (call.dtype, call.shape, call.strides)
    result = out if out is not None and fits else allocated(call.empty(call.dtype))
    if out is not None:
        _refuse_overlap(out, operands)
        elementwise.written(result.data_ptr())
    addresses, owners = call.read(operands)
    compute(name, call.tensors, call.extents, [*addresses, result.data_ptr()], (owners, result))
    return result


def _update(name: str, targets: Sequence[Tensor], *operands: Operand) -> None:
    """Write the first results of a map on tensors and numbers to ``targets``, which are among the operands."""
    call = _known(name, _kinds(operands), tuple([target.dtype for target in targets]))
    for target in targets:
        _refuse_overlap(target, operands)
    addresses, owners = call.read(operands)
    results: list[Tensor] = [
        target if (target.shape, target.stride()) == (call.shape, call.strides) else call.empty(target.dtype)
        for target in targets
    ]
    places = [*addresses, *[result.data_ptr() for result in results]]
    compute(name, call.tensors, call.extents, places, (owners, results))
    for target, result in zip(targets, results, strict=True):
        if result is not target:
            target.copy_(result)


def allocated(tensor: Tensor) -> Tensor:
    """Return a new tensor for results, which a recording of the operator allocates again."""
    elementwise.allocated(tensor.data_ptr(), tensor.nbytes, tensor)
    return tensor


def constant(tensor: Tensor) -> Tensor:
    """Return a new tensor of numbers that depend only on the kind of the call."""
    elementwise.constant(tensor.data_ptr(), tensor.nbytes, tensor)
    return tensor


def update_lists(name: str, lists: Sequence[Sequence[Tensor]], numbers: Sequence[float], results: int) -> None:
    """Write the results of a map to the first ``results`` lists of tensors, for each place in the lists.

    The operands of the map are the tensors at this place, which have one type, and numbers.
    """
    groups: dict[torch.dtype, list[tuple[Tensor, ...]]] = {}
    strided: list[tuple[Tensor, ...]] = []
    distinct = [*{id(tensors): tensors for tensors in lists}.values()]  # a map may have an operand that it does not use
    for tensors, first, *others in zip(zip(*lists, strict=True), *distinct, strict=True):
        dtype, shape, strides = first.dtype, first.shape, first.stride()
        if any([tensor.dtype != dtype for tensor in others]):
            raise RuntimeError(f"expected {dtype} as the parameter; got {[tensor.dtype for tensor in others]}")
        is_like = all([tensor.shape == shape and tensor.stride() == strides for tensor in others])
        size = first.numel()
        if size and is_like and _span(first) == size:
            groups.setdefault(dtype, []).append(tensors)
        elif size:
            strided.append(tensors)
    for tensors in strided:
        _update(name, tensors[:results], *tensors, *numbers)
    for dtype, rows in groups.items():
        places = [[*map(write_address, row[:results]), *map(read_address, row[results:])] for row in rows]
        addresses = tuple(map(tuple, places))
        lengths = tuple([row[0].numel() for row in rows])
        if dtype not in SUMMED or _overlap(addresses, lengths, dtype.itemsize):
            for row in rows:
                _update(name, row[:results], *row, *numbers)
            continue
        formatted_lists = Lists((NAMES[dtype],) * len(lists), len(numbers), results, addresses, lengths)
        on(TORCH.pool, elementwise.compute_lists, name, formatted_lists, f32_of(numbers), threads_of_call(), rows)


@lru_cache(REMEMBERED_LISTS)
def _overlap(addresses: tuple[tuple[int, ...], ...], lengths: tuple[int, ...], size: int) -> bool:
    """Return whether two tensors of elements of a size share memory, unless two lists have the same tensors."""
    columns = dict.fromkeys(zip(*addresses, strict=True))
    begins = np.concatenate([np.array(column, np.int64) for column in columns])
    ends = begins + np.tile(np.array(lengths, np.int64) * size, len(columns))
    order = np.argsort(begins)
    return bool((begins[order][1:] < ends[order][:-1]).any())


def f32_of(numbers: Sequence[float]) -> NDArray[np.float32]:
    """Return numbers rounded to f32."""
    check_numbers(*numbers)
    return np.array(numbers, np.float32)


def check_numbers(*numbers: float) -> None:
    """Raise as PyTorch does if a number is beyond f32."""
    if any([_LARGEST < abs(number) < inf for number in numbers]):
        raise RuntimeError("value cannot be converted to type float without overflow")


def _refuse_overlap(out: Tensor, operands: Sequence[object]) -> None:
    """Raise as PyTorch does if a dense operand shares a part of its memory with ``out``, or all of it differently.

    Operands that are not dense are copied before ``out`` is written.
    """
    begin = write_address(out)
    end = begin + memory_bytes(out)
    for operand in operands:
        if not isinstance(operand, torch.Tensor) or operand is out:
            continue
        first, size = read_address(operand), _dense_bytes(operand)
        is_same = (first, operand.dtype, operand.shape, operand.stride()) == (begin, out.dtype, out.shape, out.stride())
        if size and first < end and begin < first + size and not is_same:
            raise RuntimeError(
                "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single "
                "memory location. Please clone() the tensor before performing the operation."
            )


def memory_bytes(tensor: Tensor) -> int:
    """Return the bytes from the first element to the end of the last one in memory."""
    return tensor.element_size() * _span(tensor) if tensor.numel() else 0


def _dense_bytes(tensor: Tensor) -> int:
    """Return the bytes of a tensor, or 0 if it is not dense."""
    return tensor.nbytes if _span(tensor) == tensor.numel() else 0


def _span(tensor: Tensor) -> int:
    """Return the number of elements from the first to the last one in memory."""
    if tensor.is_contiguous():
        count: int = tensor.numel()
        return count
    steps: list[int] = [(n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    return 1 + sum(steps)


Kind = tuple[torch.dtype, torch.Size, tuple[int, ...]]  # type, shape and strides of a tensor
NUMBER, ROW_NUMBER, _AS_IT_IS = "number", "per row", "as it is"  # how an operand is read; or the type of a copy


def _kinds(operands: Sequence[Operand]) -> tuple[Kind | None, ...]:
    """Return the kinds of operands; None is a number."""
    return tuple(
        [
            (operand.dtype, operand.shape, operand.stride()) if isinstance(operand, torch.Tensor) else None
            for operand in operands
        ]
    )


class _ElementsCall(NamedTuple):
    """A call of `elements` or `_update` on operands of known kinds."""

    dtype: torch.dtype
    shape: torch.Size
    strides: tuple[int, ...]
    ways: tuple[str | torch.dtype, ...]
    tensors: tuple[Strided, ...]
    extents: Extents
    number: torch.dtype  # of numbers, and of operands that have one per row

    def empty(self, dtype: torch.dtype) -> Tensor:
        """Return a new tensor with the shape and the strides of the results."""
        return torch.empty_strided(self.shape, self.strides, dtype=dtype)

    def read(self, operands: Sequence[Operand]) -> tuple[list[int], list[object]]:
        """Return the addresses of the operands, and the objects with their memory."""
        numbers = tuple([operand for operand in operands if not isinstance(operand, torch.Tensor)])
        memory: NDArray[np.generic] = np.array(numbers, np.float64) if self.number == torch.float64 else f32_of(numbers)
        owners: list[object] = [memory]
        at, addresses = address_of(memory), []
        elementwise.constant(at, memory.nbytes, memory, numbers)
        for operand, way in zip(operands, self.ways, strict=True):
            if not isinstance(operand, torch.Tensor):
                addresses.append(at)
                at += memory.itemsize
                continue
            if way == _AS_IT_IS:
                tensor = operand
            elif isinstance(way, str):
                tensor = operand.to(self.number).contiguous()
            else:
                tensor = self.empty(way).copy_(operand)
            owners.append(tensor)
            addresses.append(read_address(tensor))
        return addresses, owners


@lru_cache(REMEMBERED)
def _known(name: str, kinds: tuple[Kind | None, ...], targets: tuple[torch.dtype, ...] = ()) -> _ElementsCall:
    """Return the call of a map on operands of these kinds. ``targets`` are types of results, if not PyTorch's."""
    metas = [None if kind is None else torch.empty_strided(*kind[1:], dtype=kind[0], device="meta") for kind in kinds]
    tensors = [meta for meta in metas if meta is not None]
    to = result_type(*tensors)
    if to not in SUMMED:
        raise UnservedError(f"has no specified operations for {to}", TYPE_CURE)
    shape = torch.broadcast_shapes(*[tensor.shape for tensor in tensors])
    first = next((tensor for tensor in tensors if tensor.shape == shape), None)
    result = torch.empty(shape, dtype=to, device="meta") if first is None else torch.empty_like(first, dtype=to)
    axes = _axes_of_rows([tensor for tensor in tensors if tensor.shape != shape], result)
    rows, columns = (prod(shape[:axes]), prod(shape[axes:])) if axes < len(shape) else (1, result.numel())
    number = torch.float64 if MAPS[name].wide else torch.float32
    ways: list[str | torch.dtype] = []
    strided = []
    for meta in metas:
        if meta is None:
            ways.append(NUMBER)
            strided.append(Strided(PER_ROW, 0, 0))
        elif axes < len(shape) and meta.shape != shape:
            ways.append(ROW_NUMBER)
            strided.append(Strided(PER_ROW, 0, number.itemsize))
        else:
            read = meta.dtype if meta.dtype in SUMMED else torch.float32
            is_like = (meta.dtype, meta.shape, meta.stride()) == (read, shape, result.stride())
            ways.append(_AS_IT_IS if is_like else read)
            strided.append(Strided(NAMES[read], 0, columns * read.itemsize))
    strided += [Strided(NAMES[dtype], 0, columns * dtype.itemsize) for dtype in targets or (to,)]
    return _ElementsCall(to, shape, result.stride(), tuple(ways), tuple(strided), (1, rows, columns), number)


def _axes_of_rows(smaller: Sequence[Tensor], result: Tensor) -> int:
    """Return the number of leading axes along which smaller operands vary, if they have one number per row.

    Return the number of all axes if there are no such operands, or if an operand varies along other axes.
    """
    rank: int = result.dim()
    counts = {_leading_axes(operand.shape, result.shape) for operand in smaller}
    if len(counts) != 1 or not result.is_contiguous():
        return rank
    (axes,) = counts
    return rank if axes is None else axes


def _leading_axes(smaller: Sequence[int], shape: Sequence[int]) -> int | None:
    """Return k if a smaller shape is the first k extents of another one, and then 1; else None."""
    if len(smaller) != len(shape):
        return None if prod(smaller) != 1 else 0
    axes: int = len(smaller)
    while axes and smaller[axes - 1] == 1:
        axes -= 1
    return axes if tuple(smaller[:axes]) == tuple(shape[:axes]) else None


def compute(name: str, tensors: tuple[Strided, ...], extents: Extents, addresses: Sequence[int], keep: object) -> None:
    """Compute a map on the context's or PyTorch's threads; see ``functional.elementwise.compute``."""
    if prod(extents) <= TASK_ELEMENTS:
        elementwise.compute(name, tensors, extents, addresses, 1, keep)
    else:
        on(TORCH.pool, elementwise.compute, name, tensors, extents, addresses, threads_of_call(), keep)
