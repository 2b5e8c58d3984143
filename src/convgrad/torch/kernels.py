"""Kernel calls on PyTorch's tensors. Calls with equal types, shapes, strides and attributes are prepared once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch

from convgrad import engines
from convgrad.cached import remembered
from convgrad.engines.settings import asked_of_us, count, on, selection
from convgrad.engines.settings import tune as measured
from convgrad.functional.call import REMEMBERED
from convgrad.libraries.torch import TORCH, address_of
from convgrad.spec.activation import activated
from convgrad.spec.problem import Problem
from convgrad.spec.rules import refuse
from convgrad.spec.winograd.choice import DIRECT
from convgrad.torch import cuda
from convgrad.torch.extents import Ints
from convgrad.torch.problems import (
    Kind,
    bias_problem,
    dst_problem,
    kernel_problem,
    src_problem,
    transposed_problem,
    weights_problem,
)
from convgrad.torch.recorded import numbers

Tensor = Any  # torch.Tensor, which type checkers find only if PyTorch is installed
Lying = tuple[Any, Ints, Ints, int]  # type, shape, strides in elements, and the number of the GPU, or -1 for the CPU

LAST = {4: torch.channels_last, 5: torch.channels_last_3d}  # PyTorch's channels-last formats by rank
_LOW = 1 << 32  # if the memory was freed, the address is smaller: only the offset of a view
_address = address_of(torch)


def forward(
    src: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    strides: Ints,
    pads_begin: Ints | None,
    pads_end: Ints | None,
    dilations: Ints,
    groups: int,
    channels_last: bool,
    max_error: float = DIRECT,
    tune: bool = False,
    activation: str | None = None,
) -> Tensor:
    """Return dst.

    If a value of ``pads_end`` is negative, no tap reads the last positions of src. Derivatives of transposed layers
    need such values. If the pads are None, dst has the extents of src, as with padding="same".
    """
    layer = strides, pads_begin, pads_end, dilations, groups
    given = (src, weights) if bias is None else (src, weights, bias)
    return _known(dst_problem, layer, channels_last, *_lying(given, tune), max_error, activation)(given)


def data_gradient(
    diff_dst: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    src: Tensor | None,
    strides: Ints,
    pads_begin: Ints | None,
    pads_end: Ints | None,
    output_padding: Ints | None,
    dilations: Ints,
    groups: int,
    channels_last: bool,
    max_error: float = DIRECT,
    tune: bool = False,
    activation: str | None = None,
) -> Tensor:
    """Return diff_src. This is also a transposed layer, with an optional bias.

    The extents are those of ``src``, whose values are not read. If ``src`` is None, the extents of ``diff_dst`` and
    ``output_padding`` determine them.
    """
    layer = None if src is None else src.shape[2:], strides, pads_begin, pads_end, output_padding, dilations, groups
    given = (diff_dst, weights) if bias is None else (diff_dst, weights, bias)
    return _known(transposed_problem, layer, channels_last, *_lying(given, tune), max_error, activation)(given)


def weight_gradient(
    src: Tensor,
    diff_dst: Tensor,
    weights: Tensor | None,
    kernel: Ints | None,
    strides: Ints,
    pads_begin: Ints | None,
    pads_end: Ints | None,
    dilations: Ints,
    groups: int,
    channels_last: bool,
    max_error: float = DIRECT,
    tune: bool = False,
) -> Tensor:
    """Return diff_weights with the spatial extents ``kernel``, or those of ``weights``, whose values are not read."""
    kernel, given = kernel if weights is None else weights.shape[2:], (diff_dst, src)
    layer = kernel, strides, pads_begin, pads_end, dilations, groups
    return _known(kernel_problem, layer, channels_last, *_lying(given, tune), max_error)(given)


def bias_gradient(diff_dst: Tensor) -> Tensor:
    """Return diff_bias, the sum of diff_dst per channel."""
    given = (diff_dst,)
    return _known(bias_problem, (), False, *_lying(given), DIRECT)(given)


def gradients(
    v: Tensor,
    src: Tensor | None,
    weights: Tensor | None,
    wanted: tuple[bool, ...],
    extents: Ints,
    kernel: Ints,
    strides: Ints,
    pads_begin: Ints | None,
    dilations: Ints,
    groups: int,
    channels_last: bool,
    max_error: float,
    tune: bool = False,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of a forward pass with respect to src, weights and bias; None for an unwanted gradient.

    ``v`` is diff_dst. One cache entry has the prepared calls of all three gradients.
    """
    layer = extents, kernel, strides, pads_begin, dilations, groups
    lying = _lying((v, src, weights), tune)
    of_src, of_weights, of_bias = _known_gradients(wanted[:3], layer, channels_last, *lying, max_error)
    return (
        None if of_src is None else of_src((v, weights)),
        None if of_weights is None else of_weights((v, src)),
        None if of_bias is None else of_bias((v,)),
    )


# -- calls ---------------------------------------------------------------------------------------------------------


class _Call:
    """A prepared kernel call: it computes one problem on tensors with fixed types, shapes and strides."""

    __slots__ = ("call", "device", "dtype", "problem", "shape", "strides")

    def __init__(self, problem: Problem, given: tuple[Lying, ...], channels_last: bool, threads: int) -> None:
        memory = LAST[len(problem.output_shape)] if channels_last else torch.contiguous_format
        like = torch.empty(problem.output_shape, dtype=given[0][0], device="meta", memory_format=memory)
        self.shape, self.dtype, self.strides = problem.output_shape, like.dtype, like.stride()
        item, elements = like.element_size(), (*[strides for _, _, strides, _ in given], self.strides)
        strides = tuple([tuple([item * stride for stride in strides]) for strides in elements])
        self.problem, self.device = problem, common_device([_device(number) for *_, number in given])
        self.call: Any = (
            engines.ready(problem, strides, threads)
            if self.device.type == "cpu"
            else cuda.ready(problem, strides, self.device)
        )

    def __call__(self, given: tuple[Tensor, ...]) -> Tensor:
        """Return the result as a new tensor."""
        out = torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=self.device)
        operands = [_address(tensor) for tensor in given]
        if min(operands) < _LOW:
            _see_memory(given)
        began = 0.0 if (calls := _timed.get()) is None else cuda.now(self.device)
        on(TORCH.pool, self.call.at, operands, out.data_ptr(), (*given, out))
        if calls is not None:
            calls.append(KernelCall(self.problem, is_channels_last(given[0]), cuda.now(self.device) - began))
        return out


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


@remembered(REMEMBERED, slice(1, 2))
def _known(
    pose: Callable[..., Problem],
    layer: tuple[Any, ...],
    channels_last: bool,
    given: tuple[Lying, ...],
    threads: int,
    selection: tuple[str, bool],
    max_error: float,
    activation: str | None = None,
) -> _Call:
    problem = pose(tuple([(dtype, shape) for dtype, shape, *_ in given]), *layer)
    problem = engines.within(activated(problem, activation), max_error)
    with measured(selection[1]):  # the call that is prepared here keeps its way to choose a plan
        return _Call(problem, given, channels_last, threads)


@remembered(REMEMBERED, slice(1, 2))
def _known_gradients(
    wanted: tuple[bool, ...],
    layer: tuple[Any, ...],
    channels_last: bool,
    given: tuple[Lying, ...],
    threads: int,
    selection: tuple[str, bool],
    max_error: float,
) -> tuple[_Call | None, ...]:
    (v, src, weights), (extents, kernel, *more) = given, layer
    each = (
        (src_problem, (extents, *more), channels_last, (v, weights)),
        (weights_problem, (kernel, *more), channels_last, (v, src)),
        (bias_problem, (), False, (v,)),
    )
    asked_for = zip(wanted, each, strict=True)
    return tuple([_known(*call, threads, selection, max_error) if asked else None for asked, call in asked_for])


def _lying(given: tuple[Tensor | None, ...], tune: bool = False) -> tuple[tuple[Any, ...], int, tuple[str, bool]]:
    """Return the cache key of tensors: a ``Lying`` of each, the threads, and the settings that select code."""
    lying = tuple([None if one is None else (one.dtype, one.shape, one.stride(), one.get_device()) for one in given])
    return lying, _threads(), selection(tune)


def _device(number: int) -> Any:
    return torch.device("cpu") if number < 0 else torch.device("cuda", number)


def common_device(devices: Sequence[Any]) -> Any:
    """Return the device of all tensors; raise by rule D1 if it is not the same."""
    if len(set(devices)) > 1:  # D1
        refuse("D1", "convgrad.torch", f"all tensors must be on one device; got {', '.join(map(str, devices))}")
    return devices[0]


def _see_memory(given: tuple[Tensor, ...]) -> None:
    """Raise by rule D1 if the memory of a tensor was freed."""
    for tensor in given:
        if tensor.numel() and not torch._C._data_address(tensor):  # D1: the address of its storage
            refuse(
                "D1",
                "convgrad.torch",
                f"all tensors must be in memory; got a tensor of shape {tuple(tensor.shape)} that has none",
            )


# -- tensors -------------------------------------------------------------------------------------------------------


def kinds(given: tuple[Tensor, ...]) -> tuple[Kind, ...]:
    """Return the types and shapes of tensors."""
    return tuple([(tensor.dtype, tensor.shape) for tensor in given])


def _threads() -> int:
    """Return the number of threads that the user set in convgrad.

    If none is set, return PyTorch's number of threads, but not more than convgrad's default.
    """
    if asked := asked_of_us():
        return asked
    theirs: int = torch.get_num_threads()
    return 1 if theirs == 1 else min(theirs, count(None))


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
