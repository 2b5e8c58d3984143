"""Batch norm and its gradients, from sums per channel and one scaling per channel."""

from __future__ import annotations

from convgrad.torch.training.elements import sqrt
from convgrad.torch.training.row import BY_CHANNEL, Tensor, formatted, row
from convgrad.torch.training.sums import channel_products, channel_sums, scaled_channels

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
