"""Steps of LSTM and GRU layers, for which PyTorch has kernels only on GPUs, but gradients everywhere."""

from __future__ import annotations

import torch
from torch import Tensor

from convgrad.torch.training.row import SUMMED, UnservedError, row
from convgrad.torch.training.tensors import Operand, allocated, update

_OF_OPERATIONS = "that of each operation"


def _check(gates: int, has_bias: bool, state: Tensor, *products: Tensor) -> None:
    if has_bias:
        raise UnservedError("takes no biases", "Add them to the gates")
    rows, size = state.shape
    wanted = (rows, gates * size), state.dtype
    kinds = [(tuple(tensor.shape), tensor.dtype) for tensor in products]
    if state.dtype not in SUMMED or any(kind != wanted for kind in kinds):
        raise RuntimeError(f"expected {gates} gates of floats, so tensors like {wanted}; got {kinds}")


def _results(state: Tensor, *widths: int) -> list[Tensor]:
    """Return new tensors that are so many times as wide as a state."""
    rows, size = state.shape
    return [allocated(torch.empty(rows, width * size, dtype=state.dtype)) for width in widths]


@row(
    "_thnn_fused_lstm_cell",
    formula="i, f, g, o = hidden_gates + input_gates; c = sigmoid(f) c + sigmoid(i) tanh(g); h = sigmoid(o) tanh(c)",
    bound=_OF_OPERATIONS,
)
def lstm_cell(
    input_gates: Tensor,
    state_gates: Tensor,
    cx: Tensor,
    input_bias: Tensor | None = None,
    state_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the next h and c, and the gates."""
    _check(4, input_bias is not None or state_bias is not None, cx, input_gates, state_gates)
    h, c, workspace = _results(cx, 1, 1, 4)
    operands = *state_gates.chunk(4, 1), *input_gates.chunk(4, 1), cx
    update("lstm_cell", [h, c, *workspace.chunk(4, 1)], *operands)
    return h, c, workspace


@row(
    "_thnn_fused_lstm_cell_backward_impl",
    formula="the gradients of _thnn_fused_lstm_cell, by those of sigmoid and tanh from their results",
    bound=_OF_OPERATIONS,
)
def lstm_cell_backward(
    grad_hy: Tensor | None, grad_cy: Tensor | None, cx: Tensor, cy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, None]:
    """Return the gradients of the gates, of c, and none of the biases, which are none."""
    _check(4, has_bias, cx, workspace)
    of_c, of_gates = _results(cx, 1, 4)
    gradients: list[Operand] = [0.0 if gradient is None else gradient for gradient in (grad_hy, grad_cy)]
    update("lstm_cell_backward", [of_c, *of_gates.chunk(4, 1)], *gradients, cx, cy, *workspace.chunk(4, 1))
    return of_gates, of_c, None


@row(
    "_thnn_fused_gru_cell",
    formula="r = sigmoid(h_r + x_r); z = sigmoid(h_z + x_z); n = tanh(x_n + h_n * r); h = (h - n) * z + n, "
    "h_r, h_z, h_n the hidden_gates, x_r, x_z, x_n the input_gates",
    bound=_OF_OPERATIONS,
)
def gru_cell(
    input_gates: Tensor,
    state_gates: Tensor,
    hx: Tensor,
    input_bias: Tensor | None = None,
    state_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the next h, and what its gradient needs."""
    _check(3, input_bias is not None or state_bias is not None, hx, input_gates, state_gates)
    h, workspace = _results(hx, 1, 5)
    update("gru_cell", [h, *workspace.chunk(5, 1)], *state_gates.chunk(3, 1), *input_gates.chunk(3, 1), hx)
    return h, workspace


@row(
    "_thnn_fused_gru_cell_backward",
    formula="the gradients of _thnn_fused_gru_cell, by those of sigmoid and tanh from their results",
    bound=_OF_OPERATIONS,
)
def gru_cell_backward(grad_hy: Tensor, workspace: Tensor, has_bias: bool) -> tuple[Tensor, Tensor, Tensor, None, None]:
    """Return the gradients of the gates and of h, and none of the biases, which are none."""
    _check(5, has_bias, grad_hy, workspace)
    of_h, of_input, of_last = _results(grad_hy, 1, 3, 3)
    targets = of_h, *of_input.chunk(3, 1), *of_last.chunk(3, 1)
    update("gru_cell_backward", targets, grad_hy, *workspace.chunk(5, 1))
    return of_input, of_last, of_h, None, None
