"""Batch, layer and group norm, and their gradients, from sums per channel or per row."""

from __future__ import annotations

from convgrad.torch.training.elements import sqrt
from convgrad.torch.training.row import BY_CHANNEL, ROW_MAJOR, Tensor, formatted, row
from convgrad.torch.training.sums import channel_products, channel_sums, count, products, scaled_channels, total

_FORWARD = (
    "m = sum/n; d = x - m; v = (sum of d * d)/n; i = 1/sqrt(v + eps); y = d * (i * weight) + bias; "
    "running = running * (1 - momentum) + new * momentum, where the new variance is v * (n/(n - 1))"
)
_BACKWARD = (
    "s = sum of g; t = sum of d * g; k = i * weight; dx = g * k + (d * (-k * (i * i * t/n)) + -k * (s/n)); "
    "dweight = t * i; dbias = s"
)
Stats = tuple[Tensor, Tensor, Tensor]


@row(
    "native_batch_norm",
    "_native_batch_norm_legit",
    formula=_FORWARD,
    order=BY_CHANNEL,
    bound="(h + 8) u (abs(y - bias) + max abs(m) i abs(weight)) + u abs(y)",
)
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
    """Return the normalised input, and mean and 1/deviation of each channel, which the gradient needs."""
    x = _flat(input)
    if training:
        number = x.numel() // max(x.shape[1], 1)
        mean = channel_sums(x) / number
        deviations = x - _per_channel(mean, x)
        variance = channel_products(deviations, deviations) / number
        _update(running_mean, mean, momentum)
        _update(running_var, variance * (number / max(number - 1, 1)), momentum)
        inverse = 1 / sqrt(variance + eps)
        saved = mean, inverse
    else:
        deviations, inverse = x - _per_channel(running_mean.float(), x), 1 / sqrt(running_var.float() + eps)
        saved = input.new_empty(0), input.new_empty(0)
    factor = inverse if weight is None else inverse * weight.float()
    result = scaled_channels(deviations, factor, None if bias is None else bias.float())
    return _like(result, input), *saved


@row(
    "_native_batch_norm_legit.no_stats",
    formula=f"{_FORWARD}; without running values",
    order=BY_CHANNEL,
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
    order=BY_CHANNEL,
    bound="(h + 12) u abs(k) (abs(g) + sum(abs(g))/n + abs(d) i i sum(abs(d g))/n)",
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
    x, g = _flat(input), _flat(grad_out)
    if train:
        mean, inverse = save_mean, save_invstd
    else:
        mean, inverse = running_mean.float(), 1 / sqrt(running_var.float() + eps)
    factor = inverse if weight is None else inverse * weight.float()
    deviations = x - _per_channel(mean, x)
    sums, products = channel_sums(g), channel_products(deviations, g)
    of_input = None
    if output_mask[0]:
        of_input = g * _per_channel(factor, x)
        if train:
            number = x.numel() // max(x.shape[1], 1)
            slope = -factor * (inverse * inverse * products / number)
            of_input.add_(scaled_channels(deviations, slope, -factor * (sums / number)))
        of_input = _like(of_input, input)
    to = input.dtype if weight is None else weight.dtype
    return of_input, (products * inverse).to(to) if output_mask[1] else None, sums.to(to) if output_mask[2] else None


def _flat(x: Tensor) -> Tensor:
    """Return a tensor (N, C, ...) in f32 with two or more spatial axes, which have the extent 1 if there are none."""
    return x.float().reshape(*x.shape, *[1] * max(0, 4 - x.dim()))


def _per_channel(values: Tensor, x: Tensor) -> Tensor:
    return values.reshape(-1, *[1] * (x.dim() - 2))


def _like(found: Tensor, input: Tensor) -> Tensor:
    """Return a result in the type and shape of the input."""
    return formatted(found.reshape(input.shape), input)


def _update(running: Tensor | None, new: Tensor, momentum: float) -> None:
    """Move a running value towards its new value."""
    if running is not None:
        running.copy_(running.float() * (1 - momentum) + new * momentum)


_ROW_FORWARD = "m = sum/n; d = x - m; v = (sum of d * d)/n; i = 1/sqrt(v + eps); y = (d * i) * weight + bias"
_ROW_BACKWARD = (
    "z = (x - m) * i; k = g * weight; dx = (k - ((sum of k)/n + z * ((sum of k * z)/n))) * i; "
    "dweight = sum of g * z; dbias = sum of g"
)
_ROW_BOUND = "(h + 8) u (abs(y - bias) + abs(m) i abs(weight)) + u abs(y)"
_ROW_BACKWARD_BOUND = "(h + 12) u i (abs(k) + sum(abs(k))/n + abs(z) sum(abs(k z))/n)"


@row("native_layer_norm", formula=_ROW_FORWARD, order=ROW_MAJOR, bound=_ROW_BOUND)
def layer_norm(
    input: Tensor, normalized_shape: list[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Stats:
    """Return the input with each row normalised, and mean and 1/deviation of each row, which the gradient needs."""
    dims = list(range(input.dim() - len(normalized_shape), input.dim()))
    normalised, mean, inverse = _normalised(input.float(), dims, eps)
    return _affine(normalised, weight, bias).to(input.dtype), mean, inverse


@row("native_layer_norm_backward", formula=_ROW_BACKWARD, order=ROW_MAJOR, bound=_ROW_BACKWARD_BOUND)
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
    first = input.dim() - len(normalized_shape)
    inner, outer = list(range(first, input.dim())), list(range(first))
    g, inverse = grad_out.float(), rstd.float()
    normalised = (input.float() - mean.float()) * inverse
    of_input = _of_input(_affine(g, weight, None), normalised, inverse, inner) if output_mask[0] else None
    of_weight = (products(g, normalised, outer) if outer else g * normalised) if output_mask[1] else None
    return of_input, of_weight, (total(g, outer) if outer else g) if output_mask[2] else None


@row("native_group_norm", formula=_ROW_FORWARD, order=ROW_MAJOR, bound=_ROW_BOUND)
def group_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float
) -> Stats:
    """Return the input with each group of channels of an image normalised, and the groups' means and 1/deviations."""
    normalised, mean, inverse = _normalised(input.float().reshape(N, group, C // group * HxW), [2], eps)
    result = _affine(normalised.reshape(N, C, HxW), _column(weight), _column(bias))
    return _like(result, input), mean.reshape(N, group), inverse.reshape(N, group)


@row(
    "native_group_norm_backward",
    formula=_ROW_BACKWARD,
    order=f"{ROW_MAJOR}; of dweight and dbias: {BY_CHANNEL}",
    bound=_ROW_BACKWARD_BOUND,
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
    g, inverse = grad_out.float().reshape(N, C, HxW), rstd.float().reshape(N, group, 1)
    rows = N, group, C // group * HxW
    normalised = (input.float().reshape(rows) - mean.float().reshape(N, group, 1)) * inverse
    of_input = None
    if output_mask[0]:
        scaled = _affine(g, _column(weight), None).reshape(rows)
        of_input = _like(_of_input(scaled, normalised, inverse, [2]), input)
    of_weight = channel_products(g, normalised.reshape(N, C, HxW)) if output_mask[1] else None
    return of_input, of_weight, channel_sums(g) if output_mask[2] else None


def _normalised(x: Tensor, dims: list[int], eps: float) -> Stats:
    """Return an f32 tensor normalised over dimensions, and its means and 1/deviations, which keep the dimensions."""
    number = count(x, dims)
    mean = total(x, dims, True) / number
    deviations = x - mean
    inverse = 1 / sqrt(products(deviations, deviations, dims, True) / number + eps)
    return deviations * inverse, mean, inverse


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else x * weight.float()
    return x if bias is None else x + bias.float()


def _of_input(scaled: Tensor, normalised: Tensor, inverse: Tensor, dims: list[int]) -> Tensor:
    """Return the gradient of a normalised input, from that of the normalised values."""
    number = count(scaled, dims)
    middle = total(scaled, dims, True) / number
    slope = products(scaled, normalised, dims, True) / number
    return (scaled - (middle + normalised * slope)) * inverse


def _column(values: Tensor | None) -> Tensor | None:
    return None if values is None else values.reshape(-1, 1)
