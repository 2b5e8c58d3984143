"""The table of maps: functions that compute each element of their results from the elements at the same place.

A map is a Python function of the arithmetic and of numbers, so its code is its definition. bf16 and f16 elements are
widened to f32 first, and results are rounded once to the type of their tensor. Every NaN becomes the canonical one.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from dataclasses import dataclass

from convgrad.cached import cached_property
from convgrad.spec.elementwise import functions as f
from convgrad.spec.elementwise.arithmetic import Number, Operations

Definition = Callable[..., Number | tuple[Number, ...]]

_GELU_LINEAR, _GELU_LINEAR_LOW = float.fromhex("0x1.988454p+0"), float.fromhex("-0x1.857936p-25")  # 2 sqrt(2/pi)
_GELU_CUBIC, _GELU_CUBIC_LOW = float.fromhex("0x1.2444f2p-4"), float.fromhex("0x1.49b16ap-29")  # 0.044715 times that


@dataclass(frozen=True)
class Map:
    """A function of elements and its definition. A call may store only the first of several results.

    ``ulps`` limits the error of a function of one number, in units in the last place of the exact result: 2^-23 times
    the power of two below it, at least 2^-149.
    """

    name: str
    definition: Definition
    ulps: float = 0.0

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """The names of the operands, in order."""
        return tuple(inspect.signature(self.definition).parameters)[1:]


MAPS: dict[str, Map] = {}


def _map(ulps: float = 0.0) -> Callable[[Definition], Definition]:
    """Add a definition to the table under its own name."""

    def add(definition: Definition) -> Definition:
        MAPS[definition.__name__] = Map(definition.__name__, definition, ulps)
        return definition

    return add


for _function, _ulps in {f.exp: 1, f.expm1: 1.5, f.log: 1, f.log1p: 1.5, f.sigmoid: 2.5, f.tanh: 2.5, f.erf: 2}.items():
    _map(_ulps)(_function)


@_map(0.5)
def sqrt(m: Operations, x: Number) -> Number:
    """Return the square root."""
    return m.sqrt(x)


# -- activations ---------------------------------------------------------------------------------------------------


@_map()
def sigmoid_backward(m: Operations, g: Number, y: Number) -> Number:
    """Return the gradient of sigmoid from its result."""
    return (g * (1.0 - y)) * y


@_map()
def tanh_backward(m: Operations, g: Number, y: Number) -> Number:
    """Return the gradient of tanh from its result."""
    return g * (1.0 - y * y)


@_map(3)
def silu(m: Operations, x: Number) -> Number:
    """Return x * sigmoid(x)."""
    return f.share_of(m, x, x)


@_map()
def silu_backward(m: Operations, g: Number, x: Number) -> Number:
    """Return the gradient of SiLU."""
    x = f.minimum(m, f.maximum(m, x, -150.0), 150.0)
    s, other = f.shares(m, x)
    return g * (s * m.fma(x, other, 1.0))


@_map(6)
def gelu(m: Operations, x: Number) -> Number:
    """Return x * P(x), P the normal distribution function."""
    return f.normal_share_of(m, x)


@_map()
def gelu_backward(m: Operations, g: Number, x: Number) -> Number:
    """Return the gradient of GELU."""
    x = f.minimum(m, f.maximum(m, x, -30.0), 30.0)
    distribution, density = f.normal(m, x)
    return g * m.fma(x, density, distribution)


def _gelu_argument(m: Operations, x: Number) -> tuple[Number, Number, Number]:
    """Return 2 sqrt(2/pi) (x + 0.044715 x^3) as a sum of two numbers, and x^2.

    The second number matters for negative x, because exp turns absolute errors of its argument into relative ones.
    """
    square = x * x
    cubic = square * _GELU_CUBIC
    slope = cubic + _GELU_LINEAR
    part = slope - cubic
    low = ((cubic - (slope - part)) + (_GELU_LINEAR - part)) + (m.fma(square, _GELU_CUBIC, -cubic) + _GELU_LINEAR_LOW)
    low = m.fma(m.fma(x, x, -square), _GELU_CUBIC, m.fma(square, _GELU_CUBIC_LOW, low))
    high = x * slope
    return high, m.fma(x, low, m.fma(x, slope, -high)), square


@_map(3)
def gelu_tanh(m: Operations, x: Number) -> Number:
    """Return the approximation of GELU by tanh, which is x * sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3))."""
    bounded = f.minimum(m, f.maximum(m, x, -30.0), 30.0)
    high, low, _ = _gelu_argument(m, bounded)
    return f.share_of(m, x, high, low)


@_map()
def gelu_tanh_backward(m: Operations, g: Number, x: Number) -> Number:
    """Return the gradient of the approximation of GELU by tanh."""
    bounded = f.minimum(m, f.maximum(m, x, -30.0), 30.0)
    high, low, square = _gelu_argument(m, bounded)
    s, other = f.shares(m, high, low)
    return g * m.fma(bounded * (s * other), m.fma(square, 3.0 * _GELU_CUBIC, _GELU_LINEAR), s)


@_map()
def elu(m: Operations, x: Number, alpha_scale: Number, scale: Number, input_scale: Number) -> Number:
    """Return ELU: expm1(x * input_scale) * alpha_scale for x <= 0, else x * scale."""
    negative = f.expm1(m, f.minimum(m, x, 0.0) * input_scale) * alpha_scale
    return m.select(m.less(0.0, x), x * scale, negative)


@_map()
def elu_backward(
    m: Operations, g: Number, x: Number, alpha_scale: Number, scale: Number, input_scale: Number
) -> Number:
    """Return the gradient of ELU from its input."""
    e = f.exp(m, f.minimum(m, x, 0.0) * input_scale)
    return m.select(m.less(0.0, x), g * scale, g * (input_scale * (alpha_scale * e)))


@_map()
def elu_backward_of_result(
    m: Operations, g: Number, y: Number, alpha_scale: Number, scale: Number, input_scale: Number
) -> Number:
    """Return the gradient of ELU from its result."""
    return m.select(m.less(0.0, y), g * scale, g * (input_scale * (y + alpha_scale)))


@_map()
def softplus(m: Operations, x: Number, beta: Number, threshold: Number) -> Number:
    """Return log1p(exp(x * beta)) / beta, or x if x * beta is above the threshold."""
    scaled = x * beta
    return m.select(m.less(threshold, scaled), x, f.softplus(m, scaled) / beta)


@_map()
def softplus_backward(m: Operations, g: Number, x: Number, beta: Number, threshold: Number) -> Number:
    """Return the gradient of softplus."""
    scaled = x * beta
    return m.select(m.less(threshold, scaled), g, g * f.sigmoid(m, scaled))


@_map(2)
def log_sigmoid(m: Operations, x: Number) -> Number:
    """Return log(sigmoid(x))."""
    return -f.softplus(m, -x)


@_map()
def log_sigmoid_backward(m: Operations, g: Number, x: Number) -> Number:
    """Return the gradient of log_sigmoid."""
    return g * f.sigmoid(m, -x)


# -- rows of softmax, and norms ------------------------------------------------------------------------------------


@_map()
def exp_of_difference(m: Operations, x: Number, largest: Number) -> Number:
    """Return exp(x - largest) for x <= largest."""
    return f.exp_of_negative(m, x - largest)


@_map()
def softmax(m: Operations, x: Number, largest: Number, total: Number) -> Number:
    """Return exp(x - largest) / total for x <= largest."""
    return exp_of_difference(m, x, largest) / total


@_map()
def difference_of_two(m: Operations, x: Number, first: Number, second: Number) -> Number:
    """Return (x - first) - second."""
    return (x - first) - second


@_map()
def softmax_backward(m: Operations, g: Number, y: Number, total: Number) -> Number:
    """Return the gradient of softmax from its result; ``total`` is the sum of g * y of the row."""
    return y * (g - total)


@_map()
def log_softmax_backward(m: Operations, g: Number, y: Number, total: Number) -> Number:
    """Return the gradient of log_softmax from its result; ``total`` is the sum of g of the row."""
    return m.fma(-f.exp(m, y), total, g)


@_map()
def product(m: Operations, x: Number, factor: Number) -> Number:
    """Return x * factor."""
    return x * factor


@_map()
def normalize(m: Operations, x: Number, center: Number, factor: Number, term: Number) -> Number:
    """Return (x - center) * factor + term with two roundings. The difference is exact if x is near the center."""
    return m.fma(x - center, factor, term)


@_map()
def normalize_columns(
    m: Operations, x: Number, center: Number, factor: Number, term: Number, weight: Number, bias: Number
) -> Number:
    """Return ((x - center) * factor + term) * weight + bias with three roundings."""
    return m.fma(normalize(m, x, center, factor, term), weight, bias)


@_map()
def normalize_columns_backward(
    m: Operations, g: Number, x: Number, of_g: Number, center: Number, of_x: Number, term: Number, weight: Number
) -> Number:
    """Return g * weight * of_g + ((x - center) * of_x + term) with four roundings."""
    return normalize_backward(m, g * weight, x, of_g, center, of_x, term)


@_map()
def normalize_backward(
    m: Operations, g: Number, x: Number, of_g: Number, center: Number, of_x: Number, term: Number
) -> Number:
    """Return g * of_g + ((x - center) * of_x + term) with three roundings."""
    return m.fma(g, of_g, m.fma(x - center, of_x, term))


# -- terms of sums: the first result is summed, and its product with the second one ------------------------------------


@_map()
def squares(m: Operations, x: Number) -> tuple[Number, Number]:
    """Return x and x."""
    return x, x


@_map()
def products(m: Operations, x: Number, y: Number) -> tuple[Number, Number]:
    """Return x and y."""
    return x, y


@_map()
def weighted_products(m: Operations, x: Number, y: Number, weight: Number) -> tuple[Number, Number]:
    """Return x * weight and y."""
    return x * weight, y


@_map()
def products_with_normalized(
    m: Operations, g: Number, x: Number, center: Number, factor: Number, term: Number
) -> tuple[Number, Number]:
    """Return g and (x - center) * factor + term."""
    return g, normalize(m, x, center, factor, term)


# -- optimizers ----------------------------------------------------------------------------------------------------


@_map()
def add(m: Operations, x: Number, y: Number, factor: Number) -> Number:
    """Return x + y * factor with two roundings."""
    return x + y * factor


@_map()
def subtract(m: Operations, x: Number, y: Number, factor: Number) -> Number:
    """Return x - y * factor with two roundings."""
    return x - y * factor


@_map()
def lerp_low(m: Operations, x: Number, end: Number, weight: Number) -> Number:
    """Return the value between two numbers for abs(weight) < 0.5."""
    return x + (end - x) * weight


@_map()
def lerp_high(m: Operations, x: Number, end: Number, weight: Number) -> Number:
    """Return the value between two numbers for other weights; ``weight`` is 1 - weight."""
    return end - (end - x) * weight


@_map()
def addcmul(m: Operations, x: Number, y: Number, z: Number, factor: Number) -> Number:
    """Return x + (y * factor) * z with three roundings."""
    return x + (y * factor) * z


@_map()
def addcdiv(m: Operations, x: Number, y: Number, z: Number, factor: Number) -> Number:
    """Return x + (y * factor) / z with three roundings."""
    return x + (y * factor) / z


def _sgd(decay: bool, momentum: str, nesterov: bool) -> Definition:
    """Return a step of SGD on a parameter p, the buffer b of its momentum, and its gradient g; b is not read first."""

    def step(
        m: Operations, p: Number, b: Number, g: Number, rate: Number, factor: Number, decay_factor: Number, keep: Number
    ) -> tuple[Number, Number]:
        g = g + p * decay_factor if decay else g
        b = {"none": b, "first": g, "later": b * factor + g * keep}[momentum]
        used = g if momentum == "none" else g + b * factor if nesterov else b
        return p - used * rate, b

    return step


def _adam(decay: str, is_low: bool, amsgrad: bool) -> Definition:
    """Return a step of Adam on a parameter p, averages of gradients and of squares, the largest average, and g.

    The moving averages of gradients use ``lerp_low`` or ``lerp_high``.
    """

    def step(
        m: Operations,
        p: Number,
        average: Number,
        squares: Number,
        largest: Number,
        g: Number,
        decay_factor: Number,
        weight: Number,
        beta2: Number,
        weight2: Number,
        root: Number,
        eps: Number,
        rate: Number,
    ) -> tuple[Number, ...]:
        p = p * decay_factor if decay == "decoupled" else p
        g = g + p * decay_factor if decay == "coupled" else g
        average = lerp_low(m, average, g, weight) if is_low else lerp_high(m, average, g, weight)
        squares = addcmul(m, squares * beta2, g, g, weight2)
        if amsgrad:
            larger = m.select(m.less(largest, squares), squares, largest)
            largest = m.select(m.equal(squares, squares), larger, squares)
        divisor = m.sqrt(largest if amsgrad else squares) / root + eps
        return addcdiv(m, p, average, divisor, rate), average, squares, largest

    return step


def sgd_name(decay: bool, momentum: str, nesterov: bool) -> str:
    """Return the name of the map of a step of SGD; ``momentum`` is none, first or later."""
    return f"sgd{'_decay' * decay}_{momentum}{'_nesterov' * nesterov}"


def adam_name(decay: str, is_low: bool, amsgrad: bool) -> str:
    """Return the name of the map of a step of Adam; ``decay`` is none, coupled or decoupled."""
    return f"adam_{decay}_{'low' if is_low else 'high'}{'_amsgrad' * amsgrad}"


for _case in itertools.product((False, True), ("none", "first", "later"), (False, True)):
    if _case[1:] != ("none", True):
        MAPS[sgd_name(*_case)] = Map(sgd_name(*_case), _sgd(*_case))
for _choice in itertools.product(("none", "coupled", "decoupled"), (False, True), (False, True)):
    MAPS[adam_name(*_choice)] = Map(adam_name(*_choice), _adam(*_choice))
