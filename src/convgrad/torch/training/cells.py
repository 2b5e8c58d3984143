"""All steps of a direction of an LSTM or GRU layer as one operator, and their gradients as another one.

A step is a matrix product and a map, which run again for the next steps. The gradients of the weights are one matrix
product of all steps. An LSTM has two states, h and c, and a GRU has one, so the number of states tells the kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.flop_counter import mm_flop, register_flop_formula

from convgrad.float_environment import in_default_environment
from convgrad.torch.training.expected import kind_of
from convgrad.torch.training.products import product
from convgrad.torch.training.replay import Repetition, replays_of
from convgrad.torch.training.tensors import allocated, update

Tensors = tuple[Tensor, ...]
Shape = Sequence[int]


class Direction(NamedTuple):
    """A direction of a layer.

    ``of_input`` are the products of the input, in the order of the steps, which begin with the last one if ``reverse``
    is true. ``weight`` and ``bias`` are those of the products of h, and ``start`` are the states before the first step.
    """

    of_input: Tensor
    weight: Tensor
    bias: Tensor | None
    reverse: bool
    start: Tensors

    def computed(self) -> tuple[Tensor, Tensors]:
        """Return the values of h after each step, in the order of ``of_input``, and the last states."""
        of_input, weight, bias, reverse, start = self
        bias = bias if bias is None or len(bias) == len(weight) else bias.expand(len(weight))
        outputs, *last = cast(Tensors, _Recurrence.apply(of_input, weight, bias, reverse, *start))
        return outputs, tuple(last)

    def by_operators(self) -> tuple[Tensor, Tensors]:
        """Return the same values, whose gradients are those of each operator.

        In 16 bits, each operator rounds, as in PyTorch on processors without oneDNN's kernels.
        """
        cell, states, outputs = _CELLS[len(self.start)], self.start, list[Tensor]()
        for of_step in _in_order(self.of_input.unbind(), self.reverse):
            states = cell.by_operators(of_step, functional.linear(states[0], self.weight, self.bias), *states)
            outputs.append(states[0])
        return torch.stack(_in_order(outputs, self.reverse)), states


def _in_order(tensors: Sequence[Tensor], reverse: bool) -> list[Tensor]:
    return [*reversed(tensors)] if reverse else [*tensors]


# -- a step of each kind of layer ----------------------------------------------------------------------------------


class _Cell(NamedTuple):
    """A kind of layer.

    ``forward`` gets the products of a step's input, the states, the transposed weight and the bias. It returns the next
    states, and the gates. ``backward`` gets the gradient of a step's output, the second state before and after the
    step, the gates, two parts of the gradient of the next states, and the weight. It returns the two parts for the
    states before, and the gradients of the products of the input and of h, which may be one tensor. ``by_operators``
    gets these products and the states, and returns the next states.
    """

    forward: Callable[..., Tensors]
    backward: Callable[..., Tensors]
    by_operators: Callable[..., Tensors]


def _results(state: Tensor, *widths: int) -> list[Tensor]:
    """Return new tensors that are so many times as wide as a state."""
    rows, size = state.shape
    return [allocated(torch.empty(rows, width * size, dtype=state.dtype)) for width in widths]


def _lstm(of_input: Tensor, h: Tensor, c: Tensor, transposed_weight: Tensor, bias: Tensor | None) -> Tensors:
    """Return the next h and c, and the gates."""
    of_h = product(h, transposed_weight, bias)
    h, next_c, gates = _results(c, 1, 1, 4)
    update("lstm_cell", [h, next_c, *gates.chunk(4, 1)], *of_h.chunk(4, 1), *of_input.chunk(4, 1), c)
    return h, next_c, gates


def _lstm_backward(
    of_output: Tensor, c: Tensor, next_c: Tensor, gates: Tensor, of_h: Tensor, of_c: Tensor, weight: Tensor
) -> Tensors:
    """Return the gradients of h and c, and of the gates' sums."""
    of_last_c, of_gates = _results(c, 1, 4)
    operands = of_output, of_h, of_c, c, next_c, *gates.chunk(4, 1)
    update("lstm_cell_backward", [of_last_c, *of_gates.chunk(4, 1)], *operands)
    return product(of_gates, weight), of_last_c, of_gates


def _lstm_by_operators(of_input: Tensor, of_h: Tensor, _: Tensor, c: Tensor) -> Tensors:
    i, f, g, o = (of_h + of_input).unsafe_chunk(4, 1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def _gru(of_input: Tensor, h: Tensor, transposed_weight: Tensor, bias: Tensor | None) -> Tensors:
    """Return the next h, and what its gradient needs."""
    of_h = product(h, transposed_weight, bias)
    next_h, gates = _results(h, 1, 5)
    update("gru_cell", [next_h, *gates.chunk(5, 1)], *of_h.chunk(3, 1), *of_input.chunk(3, 1), h)
    return next_h, gates


def _gru_backward(of_output: Tensor, gates: Tensor, kept: Tensor, of_h: Tensor, weight: Tensor) -> Tensors:
    """Return the two parts of the gradient of h, and the gradients of the products of the input and of h."""
    of_last, of_input, of_products = _results(kept, 1, 3, 3)
    targets = of_last, *of_input.chunk(3, 1), *of_products.chunk(3, 1)
    update("gru_cell_backward", targets, of_output, kept, of_h, *gates.chunk(5, 1))
    return of_last, product(of_products, weight), of_input, of_products


def _gru_by_operators(of_input: Tensor, of_h: Tensor, h: Tensor) -> Tensors:
    (x_r, x_z, x_n), (h_r, h_z, h_n) = of_input.unsafe_chunk(3, 1), of_h.unsafe_chunk(3, 1)
    r, z = (h_r + x_r).sigmoid(), (h_z + x_z).sigmoid()
    n = (x_n + h_n * r).tanh()
    return ((h - n) * z + n,)


_CELLS = {1: _Cell(_gru, _gru_backward, _gru_by_operators), 2: _Cell(_lstm, _lstm_backward, _lstm_by_operators)}


# -- operators -----------------------------------------------------------------------------------------------------


def _repeated(step: Callable[..., Tensors], repetition: Repetition) -> list[Tensor]:
    """Return the results of a step for all steps, stacked."""
    return replays_of(step, kind_of(repetition.arguments(0), {})).repeat(step, repetition)


@in_default_environment
def _forward(
    of_input: Tensor, weight: Tensor, bias: Tensor | None, start: Sequence[Tensor], reverse: bool
) -> list[Tensor]:
    """Return the states after each step, and the gates."""
    _check(of_input, weight, start)
    states = tuple([state.clone(memory_format=torch.contiguous_format) for state in start])  # which share no memory
    transposed_weight = weight.t().contiguous()  # once, because each step reads it in this order
    repetition = Repetition((of_input.contiguous(),), states, (transposed_weight, bias), reverse)
    return _repeated(_CELLS[len(start)].forward, repetition)


def _check(of_input: Tensor, weight: Tensor, start: Sequence[Tensor]) -> None:
    """Refuse tensors that do not fit."""
    steps, rows, width = of_input.shape
    shapes = [tuple(state.shape) for state in start]
    if {*shapes} != {(rows, weight.shape[1])} or width != len(weight) or not steps:
        wanted = f"h of {(rows, weight.shape[1])} and weight_ih of {len(weight)} rows, as weight_hh has"
        raise RuntimeError(f"LSTM or GRU: expected {wanted}; got {shapes} and {width}")
    dtypes = {tensor.dtype for tensor in (of_input, weight, *start)}
    if dtypes != {torch.float32}:
        raise RuntimeError(f"LSTM or GRU: expected input, weights and states of torch.float32; got {dtypes}")


@in_default_environment
def _backward(
    of_outputs: Tensor, of_last: Sequence[Tensor], kept: Sequence[Tensor], weight: Tensor, reverse: bool
) -> list[Tensor]:
    """Return the gradients of the first states, and of the products of the input and of h, which may be one tensor."""
    of_h, *of_c = [gradient.clone(memory_format=torch.contiguous_format) for gradient in of_last]
    parts = (of_h, *of_c) if of_c else (torch.zeros_like(of_h), of_h)
    repetition = Repetition((of_outputs.contiguous(), *kept), parts, (weight,), not reverse)
    first, second, *gradients = _repeated(_CELLS[len(of_last)].backward, repetition)
    end = -1 if reverse else 0
    return [*((first[end], second[end]) if of_c else (first[end] + second[end],)), *gradients]


_library = torch.library.Library("convgrad", "FRAGMENT")
_library.define("recurrence(Tensor of_input, Tensor weight, Tensor? bias, Tensor[] start, bool reverse) -> Tensor[]")
_library.define(
    "recurrence_backward(Tensor of_outputs, Tensor[] of_last, Tensor[] kept, Tensor weight, bool reverse) -> Tensor[]"
)
_library.impl("recurrence", _forward, "CPU")
_library.impl("recurrence_backward", _backward, "CPU")


class _Recurrence(torch.autograd.Function):  # type: ignore[misc]
    """The values of h after each step, and the last states."""

    @staticmethod
    def forward(
        ctx: Any, of_input: Tensor, weight: Tensor, bias: Tensor | None, reverse: bool, *start: Tensor
    ) -> Tensors:
        outputs, *kept = torch.ops.convgrad.recurrence(of_input, weight, bias, start, reverse)
        ctx.reverse = reverse
        if any(ctx.needs_input_grad):  # callers may change the outputs
            ctx.save_for_backward(of_input, weight, bias, _before(start[0], outputs, reverse), *start, *kept)
        return outputs, *[
            states[0 if reverse else -1].clone() for states, _ in zip((outputs, *kept), start, strict=False)
        ]

    @staticmethod
    def backward(ctx: Any, of_outputs: Tensor, *of_last: Tensor) -> tuple[Tensor | None, ...]:
        of_input, weight, bias, h, *others = ctx.saved_tensors
        start, kept, reverse = tuple(others[: len(of_last)]), others[len(of_last) :], ctx.reverse
        if torch.is_grad_enabled() or any(map(_is_batched, (of_outputs, *of_last))):
            direction = Direction(of_input, weight, bias, reverse, start)
            return _of_operators(direction, (of_outputs, *of_last), ctx.needs_input_grad)
        c = [_before(state, after, reverse) for state, after in zip(start[1:], kept, strict=False)]
        gradients = torch.ops.convgrad.recurrence_backward(of_outputs, of_last, (*c, *kept), weight, reverse)
        of_start, of_products = gradients[: len(start)], gradients[-1].flatten(0, 1)
        of_weight = torch.mm(of_products.t(), h.flatten(0, 1)) if ctx.needs_input_grad[1] else None
        of_bias = of_products.sum(0) if ctx.needs_input_grad[2] else None
        return gradients[len(start)], of_weight, of_bias, None, *of_start


def _is_batched(gradient: Tensor) -> bool:
    """Return whether a gradient belongs to a batch of gradients, as in ``jacobian`` with ``vectorize=True``."""
    functorch = torch._C._functorch
    return bool(functorch.is_batchedtensor(gradient) or functorch.is_legacy_batchedtensor(gradient))


def _before(start: Tensor, after: Tensor, reverse: bool) -> Tensor:
    """Return the values before each step, of those after each step."""
    first = start.unsqueeze(0)
    return torch.cat((after[1:], first) if reverse else (first, after[:-1]))


def _of_operators(direction: Direction, of_results: Tensors, needed: Sequence[bool]) -> tuple[Tensor | None, ...]:
    """Return the gradients of the operators of a direction, which have gradients if those are enabled."""
    has_gradients = torch.is_grad_enabled()
    with torch.enable_grad():  # views, because an argument may have been computed from another one
        of_input, weight, bias, reverse, start = direction
        views: list[Any] = [None if x is None else x.view_as(x) for x in (of_input, weight, bias, None, *start)]
        outputs, last = Direction(views[0], views[1], views[2], reverse, tuple(views[4:])).by_operators()
    some = [argument for argument, is_needed in zip(views, needed, strict=True) if is_needed]
    gradients = iter(
        torch.autograd.grad((outputs, *last), some, of_results, create_graph=has_gradients, allow_unused=True)
    )
    return tuple([next(gradients) if is_needed else None for is_needed in needed])


# -- floating-point operations -------------------------------------------------------------------------------------


@register_flop_formula(torch.ops.convgrad.recurrence)  # type: ignore[untyped-decorator]
def _flops(of_input: Shape, weight: Shape, *_: object, **__: object) -> int:
    operations: int = mm_flop((of_input[0] * of_input[1], weight[1]), (weight[1], weight[0]))
    return operations


@register_flop_formula(torch.ops.convgrad.recurrence_backward)  # type: ignore[untyped-decorator]
def _flops_backward(of_outputs: Shape, of_last: object, kept: object, weight: Shape, *_: object, **__: object) -> int:
    operations: int = mm_flop((of_outputs[0] * of_outputs[1], weight[0]), weight)
    return operations
