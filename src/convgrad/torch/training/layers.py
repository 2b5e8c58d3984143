"""Layers that ATen has as one operator: linear, LSTM, attention of several heads, a layer of a transformer's encoder.

They are made of other operators of the table, whose gradients PyTorch records. PyTorch makes them of the same operators
if its own ones do not apply, so the bits are the same: for LSTM without oneDNN, and for attention with gradients.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from convgrad.torch.training.cells import Direction
from convgrad.torch.training.row import NO_SUM, OF_OPERATOR, Function, UnservedError, composite

LSTM = 2  # ATen's number of this kind of layer
OF_POSITIONS, OF_KEYS, OF_HEADS = range(3)  # ATen's kinds of masks: (L, S), (N, S), and (N, heads, L, S)


@composite("linear", formula="addmm of the rows of input, weight^T and bias", order=OF_OPERATOR, bound="that of addmm")
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return a product plus a bias, rounded once; ATen rounds 16 bits twice if the input is not contiguous."""
    if bias is None:
        return torch.matmul(input, weight.t())
    if input.dim() == 2:
        return torch.addmm(bias, input, weight.t())
    if bias.dim() > 1 or weight.dim() < 2 or not input.dim():
        return torch.matmul(input, weight.t()) + bias
    rows = input.flatten(0, -2) if input.dim() > 1 else input.unsqueeze(0)
    return torch.addmm(bias, rows, weight.t()).reshape(*input.shape[:-1], len(weight))


@composite(
    "mkldnn_rnn_layer",
    formula="by step: i, f, g, o = (h weight_hh^T + bias_hh) + (x weight_ih^T + bias_ih); "
    "c = sigmoid(f) c + sigmoid(i) tanh(g); h = sigmoid(o) tanh(c)",
    order=OF_OPERATOR,
    bound="that of each operation",
)
def lstm(
    steps: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor,
    bias_hh: Tensor,
    state: Tensor,
    cell: Tensor,
    reverse: bool,
    batch_sizes: Sequence[int],
    mode: int,
    size: int,
    num_layers: int,
    has_biases: bool,
    *_unused: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the values of h after each step, the last h and c, and an empty workspace."""
    if mode != LSTM or batch_sizes:
        raise UnservedError("has a definition only for LSTM, of sequences that are not packed", "Use nn.LSTM")
    start = state.reshape(-1, size), cell.reshape(-1, size)
    of_input = linear(steps, weight_ih, bias_ih if has_biases else None)
    direction = Direction(of_input, weight_hh, bias_hh if has_biases else None, reverse, start)
    outputs, (h, c) = direction.computed() if _is_one_operator(steps) else direction.by_operators()
    return outputs, h.reshape(state.shape), c.reshape(cell.shape), steps.new_empty(0, dtype=torch.uint8)


@composite(
    "gru.input",
    formula="by layer, direction and step: (h_r, h_z, h_n) = h weight_hh^T + bias_hh; "
    "(x_r, x_z, x_n) = x weight_ih^T + bias_ih; r = sigmoid(h_r + x_r); z = sigmoid(h_z + x_z); "
    "n = tanh(x_n + h_n * r); h = (h - n) * z + n",
    order=OF_OPERATOR,
    bound="that of each operation",
)
def gru(
    input: Tensor,
    hx: Tensor,
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    *,
    original: Function,
) -> tuple[Tensor, Tensor]:
    """Return the values of h of the last layer after each step, and the last ones of all layers and directions."""
    of_direction, directions = 4 if has_biases else 2, 1 + bidirectional
    has_sizes = input.dim() == hx.dim() == 3 and input.numel() and len(params) == num_layers * directions * of_direction
    if not (has_sizes and _is_one_operator(input)):  # also arguments that PyTorch refuses
        results: tuple[Tensor, Tensor] = original(
            input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first
        )
        return results
    steps, last = input.transpose(0, 1) if batch_first else input, list[Tensor]()
    all_weights = [params[at : at + of_direction] for at in range(0, len(params), of_direction)]
    for layer in range(num_layers):
        outputs = list[Tensor]()
        for at in range(layer * directions, (layer + 1) * directions):
            values, end = _gru_direction(steps, hx[at], all_weights[at], at % directions == 1)
            outputs.append(values)
            last.append(end)
        steps = torch.cat(outputs, -1) if bidirectional else outputs[0]
        if dropout and train and layer < num_layers - 1:
            steps = functional.dropout(steps, dropout)
    return steps.transpose(0, 1) if batch_first else steps, torch.stack(last)


def _is_one_operator(steps: Tensor) -> bool:
    """Return whether all steps can be one operator, which has no rules for 16 bits, forward mode, tracing, autocast."""
    modes = torch._C._TorchDispatchModeKey.FAKE, torch._C._TorchDispatchModeKey.PROXY
    return (
        steps.dtype == torch.float32
        and torch.autograd.forward_ad._current_level < 0
        and torch._C._functorch.peek_interpreter_stack() is None
        and not any(torch._C._get_dispatch_mode(mode) for mode in modes)
        and not torch.is_autocast_enabled("cpu")
    )


def _gru_direction(steps: Tensor, h: Tensor, weights: Sequence[Tensor], reverse: bool) -> tuple[Tensor, Tensor]:
    """Return the values of h after each step, in the order of the steps, and the last one."""
    weight_ih, weight_hh, bias_ih, bias_hh = (*weights, None, None)[:4]
    outputs, (last,) = Direction(linear(steps, weight_ih, bias_ih), weight_hh, bias_hh, reverse, (h,)).computed()
    return outputs, last


@composite(
    "scaled_dot_product_attention",
    formula="_scaled_dot_product_flash_attention_for_cpu, or the products of _scaled_dot_product_attention_math",
    order=OF_OPERATOR,
    bound="that of each operation",
)
def attention(query: Tensor, key: Tensor, value: Tensor, *args: object, original: Function, **kwargs: object) -> Tensor:
    """Return attention by the formula that ATen chooses, which must not depend on strides."""
    operands = [_with_strides(x, not x.dim() or x.stride(-1) == 1) for x in (query, key, value)]
    result: Tensor = original(*operands, *args, **kwargs)
    return result


@composite("tensordot", formula="mm of the operands as matrices, or dot", order=OF_OPERATOR, bound="that of mm")
def contraction(a: Tensor, b: Tensor, *axes: Sequence[int], original: Function) -> Tensor:
    """Return sums of products; ATen calls `dot` for all axes of contiguous tensors, and else `mul` and `sum`."""
    result: Tensor = original(*[_with_strides(x, x.is_contiguous()) for x in (a, b)], *axes)
    return result


def _with_strides(x: Tensor, has_them: bool) -> Tensor:
    """Return a contiguous copy, or a view: autograd adds gradients in the order of such nodes, which must not vary."""
    return x.view_as(x) if has_them else x.clone(memory_format=torch.contiguous_format)


@composite(
    "_native_multi_head_attention",
    formula="torch.nn.functional.multi_head_attention_forward",
    order=OF_OPERATOR,
    bound="that of each operation",
)
def heads_of_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Return attention of several heads, batch first, and the weights if they are needed."""
    if mask is not None and mask_type == OF_HEADS:
        mask = mask.expand(-1, num_head, -1, -1).flatten(0, 1)
    attended, weights = functional.multi_head_attention_forward(
        query.transpose(0, 1),
        key.transpose(0, 1),
        value.transpose(0, 1),
        embed_dim,
        num_head,
        qkv_weight,
        qkv_bias,
        bias_k=None,
        bias_v=None,
        add_zero_attn=False,
        dropout_p=0.0,
        out_proj_weight=proj_weight,
        out_proj_bias=proj_bias,
        training=False,
        key_padding_mask=mask if mask_type == OF_KEYS else None,
        attn_mask=None if mask_type == OF_KEYS else mask,
        need_weights=need_weights,
        average_attn_weights=average_attn_weights,
    )
    return attended.transpose(0, 1), weights


@composite(
    "_transformer_encoder_layer_fwd",
    formula="attention and two linear layers, each with a residual and a layer norm",
    order=OF_OPERATOR,
    bound="that of each operation",
)
def encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """Return the result of ``torch.nn.TransformerEncoderLayer`` in evaluation mode, batch first."""

    def attended(x: Tensor) -> Tensor:
        weights = qkv_weight, qkv_bias, proj_weight, proj_bias
        return heads_of_attention(x, x, x, embed_dim, num_heads, *weights, mask, False, mask_type=mask_type)[0]

    def transformed(x: Tensor) -> Tensor:
        x = linear(x, ffn_weight_1, ffn_bias_1)
        return linear(functional.gelu(x) if use_gelu else functional.relu(x), ffn_weight_2, ffn_bias_2)

    def normed_1(x: Tensor) -> Tensor:
        return functional.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def normed_2(x: Tensor) -> Tensor:
        return functional.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        src = src + attended(normed_1(src))
        return src + transformed(normed_2(src))
    src = normed_1(src + attended(src))
    return normed_2(src + transformed(src))


@composite(
    "_nested_tensor_from_mask_left_aligned", formula="False, so that padding stays in tensors", order=NO_SUM, bound="0"
)
def is_left_aligned(tensor: Tensor, mask: Tensor) -> bool:
    """Return False: then ``torch.nn.TransformerEncoder`` makes no nested tensors, which have no rows."""
    return False
