"""Elementwise functions on PyTorch's tensors, and on lists of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import inf, prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from convgrad.arrays.libraries.torch import TORCH, formats_of
from convgrad.arrays.libraries.torch import address_of as reading_address_of
from convgrad.engines.addresses import address_of
from convgrad.engines.settings import on
from convgrad.engines.tensors import PER_ROW, REMEMBERED_LISTS, TASK_ELEMENTS, Extents, Lists, Strided
from convgrad.formats import F32
from convgrad.functional import elementwise, recording
from convgrad.spec.elementwise.table import MAPS
from convgrad.torch.kernels import LOW, check_memory, threads_of_call
from convgrad.torch.training.row import ELEMENTWISE, SUMMED, TYPE_CURE, UnservedError, result_type

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


def elements(name: str, *operands: Operand, out: Tensor | None = None) -> Tensor:
    """Return the result of a map on tensors and numbers, which are repeated to one shape.

    The type is PyTorch's for the tensors. If it is f64, the arithmetic is in f64, else in f32. The strides are those of
    the first tensor of this shape, if it is dense. The result is ``out`` if ``out`` has this type, this shape and these
    strides.
    """
    if out is not None:
        operands = _apart_from(out, operands)
    call = _known(name, _kinds(operands))
    fits = out is not None and (out.dtype, out.shape, out.stride()) == (call.dtype, call.shape, call.strides)
    result = out if out is not None and fits else allocated(call.empty(call.dtype))
    if out is not None:
        recording.written(result.data_ptr())
    addresses, owners = call.read(operands)
    compute(name, call.tensors, call.extents, [*addresses, result.data_ptr()], (owners, result))
    return result


def update(name: str, targets: Sequence[Tensor], *operands: Operand) -> None:
    """Write the first results of a map on tensors and numbers to ``targets``, which may be among the operands."""
    for target in targets:
        operands = _apart_from(target, operands)
    call = _known(name, _kinds(operands), _kinds(targets))
    addresses, owners = call.read(operands)
    results: list[Tensor] = [
        target if way == _AS_IT_IS else call.empty(target.dtype)
        for target, way in zip(targets, call.ways[len(operands) :], strict=True)
    ]
    places = [*addresses, *[result.data_ptr() for result in results]]
    compute(name, call.tensors, call.extents, places, (owners, results))
    for target, result in zip(targets, results, strict=True):
        if result is not target:
            target.copy_(result)


def update_steps(name: str, count: int, *tensors: tuple[Tensor, int]) -> None:
    """Compute a map ``count`` times, whose results may be operands of the next times in the same row.

    The first tensor gets the results, and the others are the operands, at their own strides. After each time, all are
    so many elements further in memory.
    """
    (target, _), *operands = tensors
    call = _known(name, _kinds([tensor for tensor, _ in operands]), _kinds([target]))
    assert {*call.ways} == {_AS_IT_IS}, "all tensors are used where they are"
    outer, rows, columns = call.extents
    assert outer == 1, "the outer axis is that of the times"
    of_steps = zip(call.tensors, (*operands, tensors[0]), strict=True)
    layout = tuple([strided._replace(outer=step * tensor.itemsize) for strided, (tensor, step) in of_steps])
    addresses = [*[read_address(tensor) for tensor, _ in operands], write_address(target)]
    compute(name, layout, (count, rows, columns), addresses, tensors, elementwise.compute_steps)


def allocated(tensor: Tensor) -> Tensor:
    """Return a new tensor for results, which a recording of the operator allocates again."""
    recording.allocated(tensor.data_ptr(), tensor.nbytes, tensor)
    return tensor


def constant(tensor: Tensor) -> Tensor:
    """Return a new tensor of numbers that depend only on the kind of the call."""
    recording.constant(tensor.data_ptr(), tensor.nbytes, tensor)
    return tensor


def update_lists(name: str, lists: Sequence[Sequence[Tensor]], numbers: Sequence[float], results: int) -> None:
    """Write the results of a map to the first ``results`` lists of tensors, for each place in the lists.

    The operands of the map are the tensors at this place, which have one type, and numbers.
    """
    distinct = {id(tensors): tensors for tensors in lists}  # a map may have an operand that it does not use
    kinds = [[*map(_kind, tensors)] for tensors in distinct.values()]
    unlike = [at for at, row in enumerate(zip(*kinds, strict=True)) if row.count(row[0]) < len(row)]
    for at in unlike:
        dtypes = [of_list[at][0] for of_list in kinds]
        if dtypes.count(dtypes[0]) < len(dtypes):
            raise RuntimeError(f"expected {dtypes[0]} as the parameter; got {dtypes[1:]}")
    groups, strided = _grouped(tuple(kinds[0]), tuple(unlike))
    written = {id(tensors) for tensors in lists[:results]}
    for dtype, (places, lengths) in groups.items():
        of_group = {key: [tensors[at] for at in places] for key, tensors in distinct.items()}
        addresses = {key: _addresses(tensors, key in written) for key, tensors in of_group.items()}
        if _overlap([*addresses.values()], lengths, dtype.itemsize):
            strided = (*strided, *places)
            continue
        described = Lists((NAMES[dtype],) * len(lists), len(numbers), results, lengths)
        all_addresses = [addresses[id(tensors)] for tensors in lists]
        call = name, described, all_addresses, rounded(numbers), threads_of_call(), of_group
        on(TORCH.pool, elementwise.compute_lists, *call)
    for at in strided:
        tensors = [of_list[at] for of_list in lists]
        update(name, tensors[:results], *tensors, *numbers)


Groups = dict[torch.dtype, tuple[list[int], tuple[int, ...]]]  # the places of tensors in their list, and their lengths


@lru_cache(REMEMBERED_LISTS)
def _grouped(kinds: tuple[Kind, ...], unlike: tuple[int, ...]) -> tuple[Groups, tuple[int, ...]]:
    """Return the places of dense tensors by their type, and of others, which includes ``unlike``.

    Tensors without elements have no place.
    """
    groups, strided = Groups(), []
    for at, (dtype, shape, strides) in enumerate(kinds):
        size = shape.numel()
        if size and _span(shape, strides) < size:
            raise RuntimeError(
                "unsupported operation: more than one element of the written-to tensor refers to a single memory "
                "location. Please clone() the tensor before performing the operation."
            )
        if size and (at in unlike or dtype not in SUMMED or _span(shape, strides) != size):
            strided.append(at)
        elif size:
            places, lengths = groups.get(dtype, ([], ()))
            groups[dtype] = [*places, at], (*lengths, size)
    return groups, tuple(strided)


def _addresses(tensors: Sequence[Tensor], is_written: bool) -> list[int]:
    """Return the addresses of tensors as ``write_address`` or ``read_address`` does."""
    addresses = [*map(torch.Tensor.data_ptr if is_written else _address_of_read, tensors)]
    if min(addresses) < LOW:
        check_memory(tuple(tensors))
    return addresses


def _overlap(lists: Sequence[Sequence[int]], lengths: Sequence[int], size: int) -> bool:
    """Return whether two tensors of elements of a size share memory."""
    begins = np.array(lists, np.int64)
    ends = begins + np.array(lengths, np.int64) * size
    order = begins.argsort(axis=None)
    return bool((begins.ravel()[order[1:]] < ends.ravel()[order[:-1]]).any())


def rounded(numbers: Sequence[float], dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """Return numbers rounded to f32, or in f64."""
    if dtype == np.float32:
        check_numbers(*numbers)
    return np.array(numbers, dtype)


def check_numbers(*numbers: float) -> None:
    """Raise as PyTorch does if a number is beyond f32."""
    if any([_LARGEST < abs(number) < inf for number in numbers]):
        raise RuntimeError("value cannot be converted to type float without overflow")


def _apart_from(out: Tensor, operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
    """Return the operands, with copies of those that share memory with ``out``, if one of both is not dense.

    Raise as PyTorch does if dense tensors share a part of their memory, or all of it differently.
    """
    begin = write_address(out)
    end = begin + memory_bytes(out)
    apart = list(operands)
    for number, operand in enumerate(operands):
        if not isinstance(operand, torch.Tensor) or operand is out:
            continue
        first, size = read_address(operand), memory_bytes(operand)
        is_same = (first, operand.dtype, operand.shape, operand.stride()) == (begin, out.dtype, out.shape, out.stride())
        if is_same or not (first < end and begin < first + size):
            continue
        if _is_dense(operand) and _is_dense(out):
            raise RuntimeError(
                "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single "
                "memory location. Please clone() the tensor before performing the operation."
            )
        apart[number] = operand.clone()
    return tuple(apart)


def memory_bytes(tensor: Tensor) -> int:
    """Return the bytes from the first element to the end of the last one in memory."""
    if tensor.is_contiguous():
        count: int = tensor.nbytes
        return count
    return tensor.element_size() * _span(tensor.shape, tensor.stride()) if tensor.numel() else 0


def _is_dense(tensor: Tensor) -> bool:
    return bool(memory_bytes(tensor) == tensor.nbytes)


def _span(shape: torch.Size, strides: tuple[int, ...]) -> int:
    """Return the number of elements from the first to the last one in memory."""
    steps: list[int] = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
    return 1 + sum(steps)


Kind = tuple[torch.dtype, torch.Size, tuple[int, ...]]  # type, shape and strides of a tensor
NUMBER, ROW_NUMBER, _AS_IT_IS = "number", "per row", "as it is"  # how an operand is read; or the type of a copy


def _kind(tensor: Tensor) -> Kind:
    return tensor.dtype, tensor.shape, tensor.stride()


def _kinds(operands: Sequence[Operand]) -> tuple[Kind | None, ...]:
    """Return the kinds of operands; None is a number."""
    return tuple([_kind(operand) if isinstance(operand, torch.Tensor) else None for operand in operands])


class _ElementsCall(NamedTuple):
    """A call of `elements` or `update` on operands of known kinds."""

    dtype: torch.dtype
    shape: torch.Size
    strides: tuple[int, ...]
    ways: tuple[str | torch.dtype, ...]
    tensors: tuple[Strided, ...]
    extents: Extents
    inner: torch.dtype  # of the arithmetic, and of numbers

    def empty(self, dtype: torch.dtype) -> Tensor:
        """Return a new tensor with the shape and the strides of the results."""
        return torch.empty_strided(self.shape, self.strides, dtype=dtype)

    def read(self, operands: Sequence[Operand]) -> tuple[list[int], list[object]]:
        """Return the addresses of the operands, and the objects with their memory."""
        numbers = tuple([operand for operand in operands if not isinstance(operand, torch.Tensor)])
        memory = rounded(numbers, np.float64 if self.inner == torch.float64 else np.float32)
        owners: list[object] = [memory]
        at, addresses = address_of(memory), []
        recording.constant(at, memory.nbytes, memory, numbers)
        for operand, way in zip(operands, self.ways, strict=False):
            if not isinstance(operand, torch.Tensor):
                addresses.append(at)
                at += memory.itemsize
                continue
            if way == _AS_IT_IS:
                tensor = operand
            elif isinstance(way, str):
                tensor = operand.to(self.inner).contiguous()
            else:
                tensor = self.empty(way).copy_(operand)
            owners.append(tensor)
            addresses.append(read_address(tensor))
        return addresses, owners


@lru_cache(REMEMBERED)
def _known(name: str, kinds: tuple[Kind | None, ...], targets: tuple[Kind | None, ...] = ()) -> _ElementsCall:
    """Return the call of a map on operands of these kinds, which writes to ``targets`` if there are any.

    Tensors are used where they are if three axes are left after combining axes that are like one for all of them.
    """
    assert len(kinds) == len(MAPS[name].operands), "a map gets all of its operands"
    metas = [kind and torch.empty_strided(*kind[1:], dtype=kind[0], device="meta") for kind in (*kinds, *targets)]
    tensors = [meta for meta in metas[: len(kinds)] if meta is not None]
    to = result_type(*tensors)
    is_f64, of_map = to == torch.float64, MAPS[name]
    if to not in ELEMENTWISE or (is_f64 and not of_map.has_f64):
        raise UnservedError(f"has no specified operations for {to}", TYPE_CURE)
    shape = torch.broadcast_shapes(*[tensor.shape for tensor in tensors])
    first = next((tensor for tensor in tensors if tensor.shape == shape), None)
    result = torch.empty(shape, dtype=to, device="meta") if first is None else torch.empty_like(first, dtype=to)
    metas += [] if targets else [result]
    inner = torch.float64 if of_map.wide or is_f64 else torch.float32
    axes = sorted([axis for axis, extent in enumerate(shape) if extent != 1], key=result.stride, reverse=True)
    for in_place in (True, False):
        places = [_place(meta, result, inner, axes, in_place) for meta in metas]
        combined = _combined([shape[axis] for axis in axes], [place.strides for place in places])
        if len(combined) <= 3:
            break
    combined = [(1, [0] * len(places))] * (3 - len(combined)) + combined
    (outers, outer_strides), (rows, row_strides), (columns, _) = combined
    strided = tuple(
        [
            Strided(place.fmt, outer * place.size, row * place.size)
            for place, outer, row in zip(places, outer_strides, row_strides, strict=True)
        ]
    )
    ways = tuple([place.way for place in places])
    return _ElementsCall(to, shape, result.stride(), ways, strided, (outers, rows, columns), inner)


class _Place(NamedTuple):
    """How an operand or a result is used: its format, the size of an element in bytes, and strides in elements."""

    way: str | torch.dtype
    fmt: str
    size: int
    strides: list[int]


def _place(meta: Tensor | None, result: Tensor, inner: torch.dtype, axes: Sequence[int], in_place: bool) -> _Place:
    """Return how an operand or a result is used; ``in_place`` is whether it may have other strides than results."""
    if meta is None:
        return _Place(NUMBER, PER_ROW, 0, [0] * len(axes))

    def strides_of(tensor: Tensor) -> list[int]:
        expanded = tensor.expand(result.shape)
        return [expanded.stride(axis) for axis in axes]

    read = meta.dtype if meta.dtype in SUMMED else inner
    own, of_copy, of_result = map(strides_of, (meta, torch.empty(meta.shape, device="meta"), result))
    if read == meta.dtype and (own == of_result or (in_place and own[-1] == 1)):
        return _Place(_AS_IT_IS, NAMES[read], read.itemsize, own)
    if in_place and axes and not of_copy[-1]:
        return _Place(ROW_NUMBER, PER_ROW, inner.itemsize, of_copy)
    return _Place(read, NAMES[read], read.itemsize, of_result)


def _combined(extents: Sequence[int], strides: Sequence[list[int]]) -> list[tuple[int, list[int]]]:
    """Return extents and all tensors' strides, after combining axes that each tensor steps through like one."""
    if 0 in extents:  # strides of empty tensors are not products of extents
        return [(0, [0] * len(strides))]
    combined = list[tuple[int, list[int]]]()
    for extent, *steps in zip(extents, *strides, strict=True):
        if combined and combined[-1][1] == [step * extent for step in steps]:
            combined[-1] = combined[-1][0] * extent, steps
        else:
            combined.append((extent, steps))
    return combined


def compute(
    name: str,
    tensors: tuple[Strided, ...],
    extents: Extents,
    addresses: Sequence[int],
    keep: object,
    by: Callable[..., None] = elementwise.compute,
) -> None:
    """Compute a map on the context's or PyTorch's threads, ``by`` a function of ``functional.elementwise``."""
    if prod(extents) <= TASK_ELEMENTS:
        by(name, tensors, extents, addresses, 1, keep)
    else:
        on(TORCH.pool, by, name, tensors, extents, addresses, threads_of_call(), keep)
