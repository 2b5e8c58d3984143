"""Maps of losses, and of their gradients, where the gradient of each loss is g / count."""

from __future__ import annotations

from convgrad.spec.elementwise import functions as f
from convgrad.spec.elementwise.arithmetic import Number, Operations
from convgrad.spec.elementwise.definition import Maps
from convgrad.spec.elementwise.wide import decaying_exp64, log1p64, log1p_to_2, log64

LOSSES = Maps()


@LOSSES.add()
def mse_loss(m: Operations, x: Number, y: Number) -> Number:
    """Return the square of x - y."""
    d = x - y
    return d * d


@LOSSES.add()
def mse_loss_backward(m: Operations, g: Number, x: Number, y: Number, count: Number) -> Number:
    """Return the gradient of mse_loss."""
    return (g / count) * ((x - y) * 2.0)


@LOSSES.add()
def smooth_l1_loss(m: Operations, x: Number, y: Number, beta: Number) -> Number:
    """Return a square, divided by beta, for abs(x - y) < beta, and else a distance."""
    d = x - y
    size = m.abs(d)
    return m.select(m.less(size, beta), ((d * 0.5) * d) / beta, size - beta * 0.5)


@LOSSES.add()
def smooth_l1_loss_backward(m: Operations, g: Number, x: Number, y: Number, count: Number, beta: Number) -> Number:
    """Return the gradient of smooth_l1_loss."""
    d = x - y
    sign = m.select(m.less(0.0, d), 1.0, m.select(m.less(d, 0.0), -1.0, d + 0.0))
    return (g / count) * m.select(m.less(m.abs(d), beta), d / beta, sign)


@LOSSES.add()
def huber_loss(m: Operations, x: Number, y: Number, delta: Number) -> Number:
    """Return a square for abs(x - y) <= delta, and else a distance times delta."""
    d = x - y
    size = m.abs(d)
    return m.select(m.less(delta, size), delta * (size - delta * 0.5), (d * 0.5) * d)


@LOSSES.add()
def huber_loss_backward(m: Operations, g: Number, x: Number, y: Number, count: Number, delta: Number) -> Number:
    """Return the gradient of huber_loss."""
    d = x - y
    above = m.select(m.less(d, -delta), -delta, d)
    return (g / count) * m.select(m.less(delta, above), delta, above)


@LOSSES.add()
def soft_margin_loss(m: Operations, x: Number, y: Number) -> Number:
    """Return log(1 + exp(-x * y))."""
    return f.softplus(m, -y * x)


@LOSSES.add()
def soft_margin_loss_backward(m: Operations, g: Number, x: Number, y: Number, count: Number) -> Number:
    """Return the gradient of soft_margin_loss."""
    return (-y * (g / count)) * f.sigmoid(m, -y * x)


@LOSSES.add(wide=True)
def binary_cross_entropy(m: Operations, x: Number, target: Number, weight: Number) -> Number:
    """Return the cross entropy of a probability and a target, with logarithms above -100."""
    of_x, of_other = f.maximum(m, log64(m, x), -100.0), f.maximum(m, log1p64(m, -x), -100.0)
    return -(target * of_x + (1.0 - target) * of_other) * weight


@LOSSES.add()
def binary_cross_entropy_backward(
    m: Operations, g: Number, x: Number, target: Number, weight: Number, count: Number
) -> Number:
    """Return the gradient of binary_cross_entropy."""
    return (g / count) * (x - target) / f.maximum(m, (1.0 - x) * x, 1e-12) * weight


@LOSSES.add(wide=True)
def cross_entropy_of_logits(m: Operations, x: Number, target: Number, weight: Number) -> Number:
    """Return the cross entropy of sigmoid(x) and a target."""
    return ((1.0 - target) * x + _entropy(m, x)) * weight


@LOSSES.add(wide=True)
def weighted_cross_entropy_of_logits(
    m: Operations, x: Number, target: Number, positive_weight: Number, weight: Number
) -> Number:
    """Return the cross entropy of sigmoid(x) and a target, with a weight for targets of 1."""
    return ((1.0 - target) * x + _entropy(m, x) * ((positive_weight - 1.0) * target + 1.0)) * weight


def _entropy(m: Operations, x: Number) -> Number:
    """Return -log(sigmoid(x))."""
    return log1p_to_2(m, decaying_exp64(m, -m.abs(x))) + f.maximum(m, -x, 0.0)
