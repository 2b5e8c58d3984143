"""Kernel calls on PyTorch's tensors. Calls with equal types, shapes, strides and attributes are prepared once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch import Tensor

from convgrad import engines
from convgrad.arrays.libraries.torch import TORCH, address_of
from convgrad.cached import remembered
from convgrad.engines.settings import asked_of_us, default_count, on, selection
from convgrad.engines.settings import tune as measured
from convgrad.functional import recording
from convgrad.functional.call import REMEMBERED
from convgrad.spec.activation import activated
from convgrad.spec.problem import Problem
from convgrad.spec.rules import refuse
from convgrad.torch import cuda
from convgrad.torch.attributes import OpAttributes
from convgrad.torch.extents import Ints
from convgrad.torch.passes import NO_LAYER, Call
from convgrad.torch.problems import Kind, bias_problem, dst_problem, src_problem, weights_problem
from convgrad.torch.recorded import numbers

# type, shape, strides in elements, and the number of the GPU, or -1 for the CPU
TensorLayout = tuple[torch.dtype, Ints, Ints, int]
# a TensorLayout per tensor, the threads, the settings that select code
Key = tuple[tuple[TensorLayout, ...], int, tuple[str, bool]]
GradientsKey = tuple[tuple[TensorLayout | None, ...], int, tuple[str, bool]]  # None for tensors that are not read

LAST = {4: torch.channels_last, 5: torch.channels_last_3d}  # PyTorch's channels-last formats by rank
LOW = 1 << 40  # if the memory was freed, the address is smaller: only the offset of a view
_address = address_of(torch)


def compute(call: Call, activation: str | None = None) -> Tensor:
    """Return the result of an operator's call, as a new tensor."""
    pose, operands, layer, sizes = call
    return _known(pose, tuple(layer), sizes, _key(operands, layer.tune), activation)(operands)


def products(a: Tensor, b: Tensor) -> Tensor:
    """Return the matrix products of (B, M, K) and (B, K, N), which must have elements, with any strides."""
    call, is_b_first = _known_products(*_key((a, b)))
    return call((b, a) if is_b_first else (a, b))


def gradients(
    v: Tensor,
    src: Tensor | None,
    weights: Tensor | None,
    wanted: tuple[bool, ...],
    sizes: tuple[Ints, Ints],
    layer: OpAttributes,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of a forward pass with respect to src, weights and bias; None for an unwanted gradient.

    ``v`` is diff_dst, and ``sizes`` are the spatial extents of src and of weights. One cache entry has the prepared
    calls of all three gradients.
    """
    key = _key((v, src, weights), layer.tune)
    of_src, of_weights, of_bias = _known_gradients(wanted[:3], tuple(layer), sizes, key)
    return (
        None if of_src is None else of_src((v, weights)),
        None if of_weights is None else of_weights((v, src)),
        None if of_bias is None else of_bias((v,)),
    )


# -- calls ---------------------------------------------------------------------------------------------------------


class _Call:
    """A prepared kernel call: it computes one problem on tensors with fixed types, shapes and strides."""

    __slots__ = ("call", "device", "dtype", "is_last", "problem", "shape", "strides")

    def __init__(
        self, problem: Problem, layouts: tuple[TensorLayout, ...], like: Tensor, strides: tuple[Ints, ...], threads: int
    ) -> None:
        """Prepare the call for operands with layouts and a result like ``like``. ``strides`` are the kernel's."""
        self.shape, self.dtype, self.strides = tuple(like.shape), like.dtype, like.stride()
        item_bytes = like.element_size()
        in_bytes = tuple([tuple([item_bytes * stride for stride in of_tensor]) for of_tensor in strides])
        self.is_last = is_channels_last(torch.empty_strided(*layouts[0][1:3], device="meta"))
        self.problem, self.device = problem, common_device([_device(number) for *_, number in layouts])
        self.call = (
            engines.ready(problem, in_bytes, threads)
            if self.device.type == "cpu"
            else cuda.ready(problem, in_bytes, self.device)
        )

    def __call__(self, tensors: tuple[Tensor, ...]) -> Tensor:
        """Return the result as a new tensor."""
        out = torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=self.device)
        operands = [_address(tensor) for tensor in tensors]
        if min(operands) < LOW:
            check_memory(tensors)
        recording.allocated(out.data_ptr(), out.nbytes, out)
        on(TORCH.pool, recording.run, self._run, (*operands, out.data_ptr()), (*tensors, out))
        return out

    def _run(self, addresses: Sequence[int], keep: Any) -> None:
        """Run the kernel on the operands and the result at these addresses."""
        *operands, out = addresses
        began = 0.0 if (calls := _timed.get()) is None else cuda.now(self.device)
        self.call.at(operands, out, keep)
        if calls is not None:
            calls.append(KernelCall(self.problem, self.is_last, cuda.now(self.device) - began))


class KernelCall(NamedTuple):
    """A finished kernel call: its problem, whether its first operand was channels last, and its time."""

    problem: Problem
    channels_last: bool
    seconds: float


_timed: ContextVar[list[KernelCall] | None] = ContextVar("convgrad_torch_timed", default=None)


@contextmanager
def timed() -> Iterator[list[KernelCall]]:
    """Record the kernel calls that this thread or asyncio task makes in a ``with`` block."""
    calls: list[KernelCall] = []
    token = _timed.set(calls)
    try:
        yield calls
    finally:
        _timed.reset(token)


@remembered(REMEMBERED, slice(1, 3))
def _known(
    pose: Callable[..., Problem],
    layer: tuple[object, ...],
    sizes: tuple[Ints | None, ...],
    key: Key,
    activation: str | None = None,
) -> _Call:
    """Return the prepared call of a problem. ``layer`` is a tuple of OpAttributes's values, which is a faster key."""
    (layouts, threads, selection), attributes = key, OpAttributes._make(layer)
    problem = pose(tuple([(dtype, shape) for dtype, shape, *_ in layouts]), attributes, *sizes)
    problem = engines.within(activated(problem, activation), attributes.max_error)
    memory = LAST[len(problem.output_shape)] if attributes.channels_last else torch.contiguous_format
    like = torch.empty(problem.output_shape, dtype=layouts[0][0], device="meta", memory_format=memory)
    with measured(selection[1]):  # the call that is prepared here keeps its way to choose a plan
        return _Call(problem, layouts, like, (*[strides for _, _, strides, _ in layouts], like.stride()), threads)


@remembered(REMEMBERED, slice(0, 2))
def _known_products(layouts: tuple[TensorLayout, TensorLayout], threads: int, _: object) -> tuple[_Call, bool]:
    """Return the prepared call of a batch of matrix products as groups of an image, and whether b is its first operand.

    Positions are the rows of a if each column of b is contiguous, else the columns of b.
    """
    (dtype, (batch, rows, inner), (a_batch, a_row, a_k), _), (_, (*_, columns), (b_batch, b_k, b_column), _) = layouts
    if (b_shape := layouts[1][1])[:2] != (batch, inner):
        expected = f"Expected size for first two dimensions of batch2 tensor to be: {[batch, inner]}"
        raise RuntimeError(f"{expected} but got: {list(b_shape[:2])}.")
    like = torch.empty(batch, rows, columns, dtype=dtype, device="meta")
    image, tap, (out, out_row, out_column) = 0, 0, like.stride()
    if b_k == 1 != b_column:
        positions, channels, order = rows, columns, layouts
        strides = (image, a_k, a_row, a_batch), (b_column, b_k, tap, b_batch), (image, out_column, out_row, out)
    else:
        positions, channels, order = columns, rows, layouts[::-1]
        strides = (image, b_k, b_column, b_batch), (a_row, a_k, tap, a_batch), (image, out_row, out_column, out)
    kinds_of_image = (dtype, (1, batch * inner, positions)), (dtype, (batch * channels, inner, 1))
    layer = OpAttributes((1,), (0,), (0,), None, (1,), batch, False)
    with measured(False):
        return _Call(dst_problem(kinds_of_image, layer), order, like, strides, threads), order is not layouts


@remembered(REMEMBERED, slice(1, 3))
def _known_gradients(
    wanted: tuple[bool, ...], layer: tuple[object, ...], sizes: tuple[Ints, Ints], key: GradientsKey
) -> tuple[_Call | None, ...]:
    ((v, src, weights), *settings), (extents, kernel) = key, sizes
    passes = (
        (src_problem, layer, (extents,), (v, weights)),
        (weights_problem, layer, (kernel,), (v, src)),
        (bias_problem, tuple(NO_LAYER), (), (v,)),
    )
    return tuple(
        [
            _known(pose, attributes, size, (layouts, *settings)) if asked else None
            for asked, (pose, attributes, size, layouts) in zip(wanted, passes, strict=True)
        ]
    )


def _key(tensors: tuple[Tensor | None, ...], tune: bool = False) -> GradientsKey:
    """Return the cache key of tensors: a ``TensorLayout`` of each, the threads, and the settings that select code."""
    layouts = tuple(
        [
            None if tensor is None else (tensor.dtype, tensor.shape, tensor.stride(), tensor.get_device())
            for tensor in tensors
        ]
    )
    return layouts, threads_of_call(), selection(tune)


def _device(number: int) -> torch.device:
    return torch.device("cpu") if number < 0 else torch.device("cuda", number)


def common_device(devices: Sequence[torch.device]) -> torch.device:
    """Return the device of all tensors; raise by rule D1 if it is not the same."""
    if len(set(devices)) > 1:  # D1
        refuse("D1", "convgrad.torch", f"all tensors must be on one device; got {', '.join(map(str, devices))}")
    return devices[0]


def check_memory(tensors: tuple[Tensor, ...]) -> None:
    """Raise by rule D1 if the memory of a tensor was freed."""
    for tensor in tensors:
        if tensor.numel() and not torch._C._data_address(tensor):  # D1: the address of its storage
            refuse(
                "D1",
                "convgrad.torch",
                f"all tensors must be in memory; got a tensor of shape {tuple(tensor.shape)} that has none",
            )


# -- tensors -------------------------------------------------------------------------------------------------------


def kinds(tensors: tuple[Tensor, ...]) -> tuple[Kind, ...]:
    """Return the types and shapes of tensors."""
    return tuple([(tensor.dtype, tensor.shape) for tensor in tensors])


def threads_of_call() -> int:
    """Return the number of threads that the user set in convgrad.

    If none is set, return PyTorch's number of threads, but not more than convgrad's default.
    """
    if asked := asked_of_us():
        return asked
    theirs: int = torch.get_num_threads()
    return 1 if theirs == 1 else min(theirs, default_count())


def is_channels_last(tensor: Tensor) -> bool:
    """Return whether PyTorch considers a tensor channels last; False if its strides fit both memory formats.

    PyTorch has this memory format only for tensors with two or three spatial axes.
    """
    strides, shape = tensor.stride(), tensor.shape
    if len(shape) not in LAST or strides[1] > strides[-1] or strides[1] == 0:
        return False
    minimum, shape = 0, numbers(shape)
    for axis in (1, *range(len(shape) - 1, 1, -1), 0):
        stride, extent = strides[axis], shape[axis]
        if extent == 0 or stride < minimum or (axis == 0 and minimum == strides[1]):
            return False
        minimum = stride * extent if extent > 1 else stride
    return True
