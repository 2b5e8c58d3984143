"""Batch, layer and group norm, and their gradients: sums in f64, coefficients in f64, and one map per tensor."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np
import torch

from convgrad.spec.chains import tree
from convgrad.torch.training.row import SECTIONS, Tensor, row
from convgrad.torch.training.sums import variance
from convgrad.torch.training.tensors import (
    ChannelView,
    Floats,
    channels_of,
    floats,
    mapped,
    rows_of,
    sums_of,
    tensor_of,
)

_FORWARD = (
    "m = sum/n; v = max(0, sum of x * x - sum * m)/n; i = 1/sqrt(v + eps), in f64; c = m rounded to f32; "
    "y = (x - c) * f + t, fused, where f = i * weight and t = bias + (c - m) * f, in f64, are then rounded to f32"
)
_BACKWARD = (
    "s = sum of g; p = sum of g * x - m * s; k = i * weight; a = -k * i * i * p/n, in f64; "
    "dx = g * k + ((x - m) * a - k * s/n), fused, where m, k, a and k * s/n are then rounded to f32; "
    "dweight = p * i; dbias = s"
)
_BOUND = "3 u abs(y - bias) + 2 u abs(y) + h v (1 + m * m/v) abs(y - bias)"
_BACKWARD_BOUND = "3 u k (abs(g) + abs(s)/n + abs(x - m) i i abs(p)/n), and 2 h v of the sums of absolute values"
Stats = tuple[Tensor, Tensor, Tensor]


class _Moments(NamedTuple):
    """Means and 1/deviations in f64."""

    mean: Floats
    inverse: Floats


def _moments(sums: Floats, number: int, eps: float) -> tuple[_Moments, Floats]:
    """Return the moments of f64 sums of elements and of squares, and the variances."""
    with np.errstate(all="ignore"):
        mean, spread = variance(sums[0], sums[1], number, number)
        return _Moments(mean, 1 / np.sqrt(spread + eps)), spread


def _normalization(moments: _Moments, weight: Floats | None, bias: Floats | None) -> tuple[Floats, Floats, Floats]:
    """Return center, factor and term of the map ``normalize``."""
    with np.errstate(all="ignore"):
        center = moments.mean.astype(np.float32).astype(np.float64)
        factor = moments.inverse if weight is None else moments.inverse * weight
        term = (center - moments.mean) * factor
    return center, factor, term if bias is None else term + bias


class _Gradient(NamedTuple):
    """The sums p of a gradient with the deviations, and the coefficients of the map ``normalize_backward``."""

    products: Floats
    of_g: Floats
    center: Floats
    of_x: Floats
    term: Floats


def _gradient(sums: Floats, moments: _Moments, weight: Floats | None, number: int) -> _Gradient:
    """Return the gradient's coefficients from the f64 sums of g and of g * x."""
    with np.errstate(all="ignore"):
        mean, inverse = moments
        products = sums[1] - mean * sums[0]
        factor = inverse if weight is None else inverse * weight
        slope = -factor * inverse * inverse * products / number
        return _Gradient(products, factor, mean, slope, -factor * sums[0] / number)


def _of_parameter(gradient: Floats, parameter: Tensor | None, other: Tensor) -> Tensor:
    """Return the gradient of a parameter in its type, or in that of another tensor."""
    return tensor_of(gradient, (other if parameter is None else parameter).dtype)


def _optional(values: Tensor | None) -> Floats | None:
    return None if values is None else floats(values)


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
    seen = channels_of(input)
    if training:
        images, _, positions = seen.shape
        number = images * positions
        moments, spread = _moments(sums_of("squares", seen), number, eps)
        _update(running_mean, moments.mean, momentum)
        _update(running_var, spread * (number / max(number - 1, 1)), momentum)
        saved = tensor_of(moments.mean), tensor_of(moments.inverse)
    else:
        moments = _of_running(running_mean, running_var, eps)
        saved = input.new_empty(0), input.new_empty(0)
    return mapped("normalize", seen, seen.tensor, *_normalization(moments, _optional(weight), _optional(bias))), *saved


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
    seen = channels_of(input)
    g = seen.like(grad_out)
    moments = _Moments(floats(save_mean), floats(save_invstd)) if train else _of_running(running_mean, running_var, eps)
    images, _, positions = seen.shape
    sums = sums_of("products", seen._replace(tensor=g), seen.tensor)
    found = _gradient(sums, moments, _optional(weight), images * positions)
    of_input = None
    if output_mask[0] and train:
        of_input = mapped("normalize_backward", seen, g, seen.tensor, *found[1:])
    elif output_mask[0]:
        of_input = mapped("product", seen, g, found.of_g)
    to = input.dtype if weight is None else weight.dtype
    return (
        of_input,
        tensor_of(found.products * moments.inverse, to) if output_mask[1] else None,
        tensor_of(sums[0], to) if output_mask[2] else None,
    )


def _of_running(mean: Tensor, spread: Tensor, eps: float) -> _Moments:
    """Return the moments of evaluation mode."""
    with np.errstate(all="ignore"):
        return _Moments(floats(mean), 1 / np.sqrt(floats(spread) + eps))


def _update(running: Tensor | None, new: Floats, momentum: float) -> None:
    """Move a running value towards its new value: running * (1 - momentum) + new * momentum in f64."""
    if running is not None:
        running.copy_(tensor_of(floats(running) * (1 - momentum) + new * momentum))


# -- layer norm ----------------------------------------------------------------------------------------------------

_COLUMNS = "then z = y without weight and bias, and the result is z * weight + bias, fused"


@row("native_layer_norm", formula=f"{_FORWARD}; {_COLUMNS}", order=SECTIONS, bound=_BOUND)
def layer_norm(
    input: Tensor, normalized_shape: list[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Stats:
    """Return the input with each row normalized, and mean and 1/deviation of each row, which the gradient needs."""
    seen = _rows(input, normalized_shape)
    *_, positions = seen.shape
    moments, _ = _moments(sums_of("squares", seen), positions, eps)
    coefficients = _normalization(moments, None, None)
    if weight is None and bias is None:
        result = mapped("normalize", seen, seen.tensor, *coefficients)
    else:
        columns = _column(weight, positions, 1.0), _column(bias, positions, 0.0)
        result = mapped("normalize_columns", seen, seen.tensor, *coefficients, columns=columns)
    shape = (*input.shape[: input.dim() - len(normalized_shape)], *[1] * len(normalized_shape))
    return result.reshape(input.shape), *[tensor_of(one).reshape(shape) for one in moments]


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
    seen = _rows(input, normalized_shape)
    _, rows, positions = seen.shape
    g = seen.like(grad_out.contiguous())
    moments = _Moments(floats(mean).reshape(-1), floats(rstd).reshape(-1))
    of_input = of_weight = of_bias = None
    if output_mask[0]:
        weights, of_g = [] if weight is None else [_column(weight, positions, 1.0)], seen._replace(tensor=g)
        name = "weighted_products" if weights else "products"
        found = _gradient(sums_of(name, of_g, seen.tensor, columns=weights), moments, None, positions)
        name = "normalize_columns_backward" if weights else "normalize_backward"
        of_input = mapped(name, seen, g, seen.tensor, *found[1:], columns=weights).reshape(input.shape)
    if output_mask[1] or output_mask[2]:
        of_columns = ChannelView(g, (1, positions, rows), True)
        normalization = _normalization(moments, None, None)
        name, (plain, products) = "products_with_normalized", (output_mask[2], output_mask[1])
        sums = sums_of(name, of_columns, seen.tensor, *normalization, plain=plain, products=products)
        of_bias = _of_parameter(sums[0], bias, g).reshape(normalized_shape) if output_mask[2] else None
        of_weight = _of_parameter(sums[-1], weight, g).reshape(normalized_shape) if output_mask[1] else None
    return of_input, of_weight, of_bias


def _rows(x: Tensor, normalized_shape: list[int]) -> ChannelView:
    return rows_of(x, prod(x.shape[: x.dim() - len(normalized_shape)]), prod(normalized_shape))


def _column(values: Tensor | None, positions: int, default: float) -> Tensor:
    """Return weights or biases as f32 values of all positions."""
    if values is None:
        return torch.full((positions,), default)
    return values.detach().float().contiguous()


# -- group norm ----------------------------------------------------------------------------------------------------

_GROUPS = f"{SECTIONS} of each image and channel, then the 16-ary tree over the channels of a group"


@row("native_group_norm", formula=_FORWARD, order=_GROUPS, bound=_BOUND)
def group_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float
) -> Stats:
    """Return the input with each group of channels of an image normalized, and the groups' means and 1/deviations."""
    seen = _images(input, N, C, HxW)
    moments, _ = _moments(_of_groups(sums_of("squares", seen, combined=False), group), C // group * HxW, eps)
    spread = _Moments(*[_of_channels(one, C) for one in moments])
    result = mapped("normalize", seen, seen.tensor, *_normalization(spread, _optional(weight), _optional(bias)))
    types = {input.dtype, *[one.dtype for one in (weight, bias) if one is not None]}
    saved = input.dtype if len(types) == 1 else torch.float32
    return result.reshape(input.shape), *[tensor_of(one, saved) for one in moments]


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
    seen = _images(input, N, C, HxW)
    g = seen.like(grad_out.reshape(seen.tensor.shape))
    sums = sums_of("products", seen._replace(tensor=g), seen.tensor, combined=False)
    moments = _Moments(*[_of_channels(floats(one).reshape(N, group), C) for one in (mean, rstd)])
    scales = _optional(weight)
    of_input = None
    if output_mask[0]:
        scaled = _of_groups(sums if scales is None else sums * scales, group)
        found = _gradient(np.stack([_of_channels(one, C) for one in scaled]), moments, None, C // group * HxW)
        factor = found.of_g if scales is None else found.of_g * scales
        of_input = mapped("normalize_backward", seen, g, seen.tensor, factor, *found[2:]).reshape(input.shape)
    with np.errstate(all="ignore"):
        products = (sums[1] - moments.mean * sums[0]) * moments.inverse
    of_weight, of_bias = (
        _of_parameter(_over_images(one), weight, input) if wanted else None
        for one, wanted in zip((products, sums[0]), output_mask[1:], strict=True)
    )
    return of_input, of_weight, of_bias


def _images(x: Tensor, images: int, channels: int, positions: int) -> ChannelView:
    return channels_of(x if x.shape[:2] == (images, channels) else x.reshape(images, channels, positions))


def _of_groups(sums: Floats, groups: int) -> Floats:
    """Return the sums of groups of channels, for sums (2, images, channels)."""
    _, images, channels = sums.shape
    each = sums.reshape(2, images, groups, channels // groups)
    found: Floats = tree([each[..., channel] for channel in range(each.shape[-1])])
    return found


def _of_channels(values: Floats, channels: int) -> Floats:
    """Return the values of groups (images, groups) for each channel."""
    return values.repeat(channels // values.shape[1], 1)


def _over_images(sums: Floats) -> Floats:
    return tree([*sums]) if len(sums) else sums.sum(0)
