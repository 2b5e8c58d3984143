"""Batch, layer and group norm, and their gradients: sums in f64, coefficients in f64, and one map per tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from convgrad.torch.training.channels import ChannelProgram, ChannelView, Floats, channels_of, rows_of
from convgrad.torch.training.row import SECTIONS, row
from convgrad.torch.training.tensors import constant

_FORWARD = (
    "m = sum/n; var = max(0, sum of x * x - sum * m)/n; i = 1/sqrt(var + eps), in f64; c = m rounded to f32; "
    "y = (x - c) * f + t, fused, where f = i * weight and t = bias + (c - m) * f, in f64, are then rounded to f32"
)
_BACKWARD = (
    "s = sum of g; p = sum of g * x - m * s; k = i * weight; a = -k * i * i * p/n, in f64; "
    "dx = g * k + ((x - m) * a - k * s/n), fused, where m, k, a and k * s/n are then rounded to f32; "
    "dweight = p * i; dbias = s"
)
_BOUND = "3 u abs(y - bias) + 2 u abs(y) + h v (1 + m * m/var) abs(y - bias)"
_BACKWARD_BOUND = "3 u k (abs(g) + abs(s)/n + abs(x - m) i i abs(p)/n), and 2 h v of the sums of absolute values"
Stats = tuple[Tensor, Tensor, Tensor]


_NO_WEIGHT, _NO_BIAS = 1.0, -0.0  # x + -0.0 is x, also for x = -0


def _vector(values: Tensor | None, channels: int, default: float) -> Tensor | float:
    """Return one value per channel, or the default."""
    if values is None:
        return default
    if values.numel() != channels:
        raise RuntimeError(f"expected one value for each of {channels} channels, but got shape {list(values.shape)}")
    return values.contiguous()


def _check_types(input: Tensor, *parameters: Tensor | None) -> None:
    """Refuse parameters of a type that is neither f32 nor the input's, as PyTorch does."""
    for parameter in parameters:
        if parameter is not None and parameter.dtype not in (torch.float32, input.dtype):
            raise RuntimeError(f"norms of {input.dtype} take parameters of this type or of f32; got {parameter.dtype}")


def _affine(weight: Tensor | None, bias: Tensor | None, channels: int) -> tuple[Tensor | float, Tensor | float]:
    return _vector(weight, channels, _NO_WEIGHT), _vector(bias, channels, _NO_BIAS)


def _type_of(parameter: Tensor | None, other: Tensor) -> torch.dtype:
    """Return the type of a parameter's gradient; that of another tensor if there is no parameter."""
    dtype: torch.dtype = (other if parameter is None else parameter).dtype
    return dtype


def _moments(
    program: ChannelProgram,
    sums: Floats,
    shape: tuple[int, ...],
    count: int,
    eps: float,
    affine: tuple[Tensor | float, Tensor | float],
    dtype: torch.dtype = torch.float32,
    running: Sequence[Tensor | None] = (None, None),
    momentum: float = 0.0,
) -> list[Tensor]:
    """Return center, factor, term and 1/deviation in a type, and move the running values, if there are any."""
    old_values = [_vector(values, shape[-1], 0.0) for values in running]
    unbiased = count / (count - 1) if count != 1 else math.nan
    operands = *sums, *affine, *old_values, float(count), eps, 1 - momentum, momentum, unbiased
    return program.coefficients(
        "moments", shape, operands, 0, [dtype] * 4, targets=[values for values in running if values is not None]
    )


# -- batch norm ----------------------------------------------------------------------------------------------------


@row("native_batch_norm", "_native_batch_norm_legit", formula=_FORWARD, order=SECTIONS, bound=_BOUND)
def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> Stats:
    """Return the normalized input, and mean and 1/deviation of each channel, which the gradient needs."""
    _check_types(input, weight, bias, running_mean, running_var)
    view = channels_of(input)
    images, channels, positions = view.shape
    affine, count = _affine(weight, bias, channels), images * positions
    running = running_mean, running_var
    if (running_mean is None) != (running_var is None):
        raise ValueError("batch_norm: give both running_mean and running_var, or neither")
    program = ChannelProgram.by_channel(view)
    if training:
        sums = program.sums_of("squares", view)
        *coefficients, inverse = _moments(
            program, sums, (channels,), count, eps, affine, running=running, momentum=momentum
        )
        saved = coefficients[0], inverse
    else:
        operands = *[_vector(values, channels, 0.0) for values in running], *affine, eps
        coefficients = program.coefficients("running_moments", (channels,), operands, 3)
        saved = input.new_empty(0), input.new_empty(0)
    result = program.mapped("normalize", view, view.tensor, coefficients=coefficients)
    program.run()
    return result, *saved


@row(
    "_native_batch_norm_legit.no_stats",
    formula=f"{_FORWARD}; without running values",
    order=SECTIONS,
    bound="as native_batch_norm",
)
def batch_norm_without_running(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float, eps: float
) -> Stats:
    """Return the result of batch norm that has no running values."""
    return batch_norm(input, weight, bias, None, None, training, momentum, eps)


@row(
    "native_batch_norm_backward",
    formula=f"{_BACKWARD}; in evaluation mode, dx = g * k with m and i of the running values",
    order=SECTIONS,
    bound=_BACKWARD_BOUND,
)
def batch_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    weight: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    save_mean: Tensor,
    save_invstd: Tensor,
    train: bool,
    eps: float,
    output_mask: list[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of batch norm with respect to input, weight and bias."""
    view = channels_of(input)
    g = view.like(grad_out)
    images, channels, positions = view.shape
    program = ChannelProgram.by_channel(view)
    sums = program.sums_of("products", view._replace(tensor=g), view.tensor)
    to = _type_of(weight, input)
    moments = (save_mean, save_invstd) if train else (running_mean, running_var)
    operands = *sums, *[_vector(values, channels, 0.0) for values in moments], _vector(weight, channels, _NO_WEIGHT)
    if train:
        numbers = 1.0, float(images * positions)
        coefficients = program.coefficients("gradient", (channels,), (*operands, *numbers), 4, (to, to))
    else:
        coefficients = program.coefficients("running_gradient", (channels,), (*operands, eps), 1, (to, to))
    of_input = None
    if output_mask[0]:
        tensors = (g, view.tensor) if train else (g,)
        name = "normalize_backward" if train else "product"
        of_input = program.mapped(name, view, *tensors, coefficients=coefficients[:-2])
    program.run()
    of_weight, of_bias = (
        gradient if wanted else None for gradient, wanted in zip(coefficients[-2:], output_mask[1:], strict=True)
    )
    return of_input, of_weight, of_bias


# -- layer norm ----------------------------------------------------------------------------------------------------

_COLUMNS = "then z = y without weight and bias, and the result is z * weight + bias, fused"


@row("native_layer_norm", formula=f"{_FORWARD}; {_COLUMNS}", order=SECTIONS, bound=_BOUND)
def layer_norm(
    input: Tensor, normalized_shape: list[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Stats:
    """Return the input with each row normalized, and mean and 1/deviation of each row, which the gradient needs."""
    _check_types(input, weight, bias)
    view = _rows(input, normalized_shape)
    _, rows, positions = view.shape
    program = ChannelProgram.by_channel(view)
    sums = program.sums_of("squares", view)
    *coefficients, inverse = _moments(program, sums, (rows,), positions, eps, (_NO_WEIGHT, _NO_BIAS))
    if weight is None and bias is None:
        result = program.mapped("normalize", view, view.tensor, coefficients=coefficients)
    else:
        columns = _column(weight, positions, 1.0), _column(bias, positions, 0.0)
        result = program.mapped("normalize_columns", view, view.tensor, coefficients=coefficients, columns=columns)
    program.run()
    coefficients[0] = coefficients[0] if positions else torch.zeros(rows)
    shape = (*input.shape[: input.dim() - len(normalized_shape)], *[1] * len(normalized_shape))
    return result.reshape(input.shape), coefficients[0].reshape(shape), inverse.reshape(shape)


@row(
    "native_layer_norm_backward",
    formula=f"{_BACKWARD}; g is g * weight, rounded, in s, p and dx; dweight = sum of g * z over rows, z as in the "
    "forward pass; dbias = sum of g over rows",
    order=SECTIONS,
    bound=_BACKWARD_BOUND,
)
def layer_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    normalized_shape: list[int],
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    output_mask: list[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of layer norm with respect to input, weight and bias."""
    view = _rows(input, normalized_shape)
    _, rows, positions = view.shape
    g = view.like(grad_out.contiguous())
    center, inverse = (saved.float().reshape(-1).contiguous() for saved in (mean, rstd))
    of_input = of_weight = of_bias = None
    program = ChannelProgram.by_row(view)
    if output_mask[0]:
        columns = [] if weight is None else [_column(weight, positions, 1.0)]
        name = "weighted_products" if columns else "products"
        sums = program.sums_of(name, view._replace(tensor=g), view.tensor, columns=columns)
        operands = *sums, center, inverse, _NO_WEIGHT, _NO_WEIGHT, float(positions)
        coefficients = program.coefficients("gradient", (rows,), operands, 4)
        name = "normalize_columns_backward" if columns else "normalize_backward"
        of_input = program.mapped(name, view, g, view.tensor, coefficients=coefficients, columns=columns)
        of_input = of_input.reshape(input.shape)
    if output_mask[1] or output_mask[2]:
        of_columns = ChannelView(g, (1, positions, rows), True)
        name, (plain, products) = "products_with_normalized", (output_mask[2], output_mask[1])
        normalization = center, inverse, constant(torch.zeros(rows, dtype=torch.float32))
        sums = program.sums_of(
            name, of_columns, view.tensor, coefficients=normalization, plain=plain, products=products
        )
        if output_mask[2]:
            of_bias = program.rounded(sums[0], _type_of(bias, g)).reshape(normalized_shape)
        if output_mask[1]:
            of_weight = program.rounded(sums[-1], _type_of(weight, g)).reshape(normalized_shape)
    program.run()
    return of_input, of_weight, of_bias


def _rows(x: Tensor, normalized_shape: list[int]) -> ChannelView:
    return rows_of(x, prod(x.shape[: x.dim() - len(normalized_shape)]), prod(normalized_shape))


def _column(values: Tensor | None, positions: int, default: float) -> Tensor:
    """Return weights or biases as f32 values of all positions."""
    if values is None:
        return constant(torch.full((positions,), default, dtype=torch.float32))
    return values.detach().float().contiguous()


# -- group norm ----------------------------------------------------------------------------------------------------

_GROUPS = f"{SECTIONS} of each image and channel, then the 16-ary tree over the channels of a group"


@row("native_group_norm", formula=_FORWARD, order=_GROUPS, bound=_BOUND)
def group_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float
) -> Stats:
    """Return the input with each group of channels of an image normalized, and the groups' means and 1/deviations.

    The latter are f32, because a mean of 16 bits would make the gradient of a weight wrong by some percent.
    """
    _check_types(input, weight, bias)
    if not C * HxW:
        moments = [torch.full((N, group), value, dtype=torch.float32) for value in (0.0, math.nan)]
        return torch.empty_like(input), *moments
    view = _images(input, N, C, HxW)
    program = ChannelProgram(input.numel())
    sums, count = _of_groups(program, program.sums_of("squares", view, combined=False), group), C // group * HxW
    *coefficients, _ = _moments(program, sums, (N, C), count, eps, _affine(weight, bias, C))
    result = program.mapped("normalize", view, view.tensor, coefficients=coefficients)
    of_groups = _moments(program, sums, (N, group), count, eps, (_NO_WEIGHT, _NO_BIAS))
    program.run()
    return result.reshape(input.shape), of_groups[0], of_groups[3]


@row(
    "native_group_norm_backward",
    formula=f"{_BACKWARD}; s and p of dx are those of the group, with g * weight, in f64",
    order=f"{_GROUPS}; of dweight and dbias: the 16-ary tree over images",
    bound=_BACKWARD_BOUND,
)
def group_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: list[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of group norm with respect to input, weight and bias."""
    if not C:
        of_weight, of_bias = (
            torch.empty(0, dtype=_type_of(weight, input)) if wanted else None for wanted in output_mask[1:]
        )
        return torch.empty_like(input) if output_mask[0] else None, of_weight, of_bias
    view = _images(input, N, C, HxW)
    g = view.like(grad_out.reshape(view.tensor.shape))
    program = ChannelProgram(input.numel())
    sums = program.sums_of("products", view._replace(tensor=g), view.tensor, combined=False)
    moments = [program.in_f64(saved.reshape(N, group)) for saved in (mean, rstd)]
    operands = *sums, *moments, _vector(weight, C, _NO_WEIGHT)
    *scaled, products = program.coefficients("weighted_sums", (N, C), operands, 0, [torch.float64] * 3)
    of_input = None
    if output_mask[0]:
        of_groups = [program.totals(terms.numpy().reshape(N, group, C // group, 1))[..., 0] for terms in scaled]
        factors = *moments, _NO_WEIGHT, operands[-1], float(C // group * HxW)
        coefficients = program.coefficients("gradient", (N, C), (*of_groups, *factors), 4)
        of_input = program.mapped("normalize_backward", view, g, view.tensor, coefficients=coefficients)
        of_input = of_input.reshape(input.shape)
    to = _type_of(weight, input)
    of_weight, of_bias = (
        program.rounded(program.totals(sums_of_images), to) if wanted else None
        for sums_of_images, wanted in zip((products.numpy(), sums[0]), output_mask[1:], strict=True)
    )
    program.run()
    return of_input, of_weight, of_bias


def _images(x: Tensor, images: int, channels: int, positions: int) -> ChannelView:
    return channels_of(x if x.shape[:2] == (images, channels) else x.reshape(images, channels, positions))


def _of_groups(program: ChannelProgram, sums: Floats, groups: int) -> Floats:
    """Return the sums of groups of channels, for sums (2, images, channels)."""
    _, images, channels = sums.shape
    return program.totals(sums.reshape(2, images, groups, channels // groups, 1))[..., 0]
