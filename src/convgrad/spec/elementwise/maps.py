"""Maps of functions and activations, of norms and softmax, and of a few updates in place."""

from __future__ import annotations

from convgrad.spec.elementwise import functions as f
from convgrad.spec.elementwise.arithmetic import Number, Operations
from convgrad.spec.elementwise.definition import Maps

ELEMENTS = Maps()

_GELU_LINEAR, _GELU_LINEAR_LOW = float.fromhex("0x1.988454p+0"), float.fromhex("-0x1.857936p-25")  # 2 sqrt(2/pi)
_GELU_CUBIC, _GELU_CUBIC_LOW = float.fromhex("0x1.2444f2p-4"), float.fromhex("0x1.49b16ap-29")  # 0.044715 times that

for _function, _ulps in {f.exp: 1, f.expm1: 1.5, f.log: 1, f.log1p: 1.5, f.sigmoid: 2.5, f.tanh: 2.5, f.erf: 2}.items():
    ELEMENTS.add(_ulps)(_function)


@ELEMENTS.add(0.5)
def sqrt(m: Operations, x: Number) -> Number:
    """Return the square root."""
    return m.sqrt(x)


# -- activations ---------------------------------------------------------------------------------------------------


@ELEMENTS.add()
def sigmoid_backward(m: Operations, g: Number, y: Number) -> Number:
    """Return the gradient of sigmoid from its result."""
    return (g * (1.0 - y)) * y


@ELEMENTS.add()
def tanh_backward(m: Operations, g: Number, y: Number) -> Number:
    """Return the gradient of tanh from its result."""
    return g * (1.0 - y * y)


@ELEMENTS.add(3.5)
def silu(m: Operations, x: Number) -> Number:
    """Return x * sigmoid(x)."""
    return f.share_of(m, x, x)


@ELEMENTS.add()
def silu_backward(m: Operations, g: Number, x: Number) -> Number:
    """Return the gradient of SiLU."""
    x = f.bounded(m, x, 150.0)
    s, other = f.shares(m, x)
    return g * (s * m.fma(x, other, 1.0))


@ELEMENTS.add(7)
def gelu(m: Operations, x: Number) -> Number:
    """Return x * P(x), P the normal distribution function."""
    return f.normal_share_of(m, x)


@ELEMENTS.add()
def gelu_backward(m: Operations, g: Number, x: Number) -> Number:
    """Return the gradient of GELU."""
    x = f.bounded(m, x, 30.0)
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


@ELEMENTS.add(3.5)
def gelu_tanh(m: Operations, x: Number) -> Number:
    """Return the approximation of GELU by tanh, which is x * sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3))."""
    bounded = f.bounded(m, x, 30.0)
    high, low, _ = _gelu_argument(m, bounded)
    return f.share_of(m, x, high, low)


@ELEMENTS.add()
def gelu_tanh_backward(m: Operations, g: Number, x: Number) -> Number:
    """Return the gradient of the approximation of GELU by tanh."""
    bounded = f.bounded(m, x, 30.0)
    high, low, square = _gelu_argument(m, bounded)
    s, other = f.shares(m, high, low)
    return g * m.fma(bounded * (s * other), m.fma(square, 3.0 * _GELU_CUBIC, _GELU_LINEAR), s)


@ELEMENTS.add()
def glu(m: Operations, x: Number, gate: Number) -> Number:
    """Return x * sigmoid(gate)."""
    return x * f.sigmoid(m, gate)


@ELEMENTS.add()
def glu_backward(m: Operations, g: Number, x: Number, gate: Number) -> tuple[Number, Number]:
    """Return the gradients of ``glu`` with respect to x and to the gate."""
    s, other = f.shares(m, gate)
    return g * s, (g * x) * (s * other)


@ELEMENTS.add(4.5)
def mish(m: Operations, x: Number) -> Number:
    """Return x * tanh(log(1 + exp(x)))."""
    return f.mish(m, x)


@ELEMENTS.add()
def mish_backward(m: Operations, g: Number, x: Number) -> Number:
    """Return the gradient of Mish."""
    return g * f.mish_slope(m, f.bounded(m, x, 150.0))


@ELEMENTS.add()
def xlogy(m: Operations, x: Number, y: Number) -> Number:
    """Return x * log(y); 0 if x is 0 and y is not NaN."""
    product = m.select(m.equal(x, 0.0), 0.0, x * f.log(m, y))
    return m.select(m.equal(y, y), product, y)


@ELEMENTS.add()
def elu(m: Operations, x: Number, alpha_scale: Number, scale: Number, input_scale: Number) -> Number:
    """Return ELU: expm1(x * input_scale) * alpha_scale for x <= 0, else x * scale."""
    negative = f.expm1(m, f.minimum(m, x, 0.0) * input_scale) * alpha_scale
    return m.select(m.less(0.0, x), x * scale, negative)


@ELEMENTS.add()
def elu_backward(
    m: Operations, g: Number, x: Number, alpha_scale: Number, scale: Number, input_scale: Number
) -> Number:
    """Return the gradient of ELU from its input."""
    e = f.exp(m, f.minimum(m, x, 0.0) * input_scale)
    return m.select(m.less(0.0, x), g * scale, g * (input_scale * (alpha_scale * e)))


@ELEMENTS.add()
def elu_backward_of_result(
    m: Operations, g: Number, y: Number, alpha_scale: Number, scale: Number, input_scale: Number
) -> Number:
    """Return the gradient of ELU from its result."""
    return m.select(m.less(0.0, y), g * scale, g * (input_scale * (y + alpha_scale)))


@ELEMENTS.add()
def softplus(m: Operations, x: Number, beta: Number, threshold: Number) -> Number:
    """Return log1p(exp(x * beta)) / beta, or x if x * beta is above the threshold."""
    scaled = x * beta
    return m.select(m.less(threshold, scaled), x, f.softplus(m, scaled) / beta)


@ELEMENTS.add()
def softplus_backward(m: Operations, g: Number, x: Number, beta: Number, threshold: Number) -> Number:
    """Return the gradient of softplus."""
    scaled = x * beta
    return m.select(m.less(threshold, scaled), g, g * f.sigmoid(m, scaled))


@ELEMENTS.add(2)
def log_sigmoid(m: Operations, x: Number) -> Number:
    """Return log(sigmoid(x))."""
    return -f.softplus(m, -x)


@ELEMENTS.add()
def log_sigmoid_backward(m: Operations, g: Number, x: Number) -> Number:
    """Return the gradient of log_sigmoid."""
    return g * f.sigmoid(m, -x)


@ELEMENTS.add()
def hardtanh_backward(m: Operations, g: Number, x: Number, low: Number, high: Number) -> Number:
    """Return the gradient of hardtanh: g between two limits, and 0 elsewhere and for NaN."""
    return m.select(m.less(low, x), m.select(m.less(x, high), g, 0.0), 0.0)


@ELEMENTS.add()
def hardswish_backward(m: Operations, g: Number, x: Number) -> Number:
    """Return the gradient of hardswish."""
    slope = g * (x / 3.0 + 0.5)
    return m.select(m.less(x, 3.0), m.select(m.less(-3.0, x), slope, 0.0), m.select(m.less(2.0, x), g, slope))


# -- rows of softmax, and norms ------------------------------------------------------------------------------------


@ELEMENTS.add()
def exp_of_difference(m: Operations, x: Number, largest: Number) -> Number:
    """Return exp(x - largest) for x <= largest."""
    return f.decaying_exp(m, x - largest)


@ELEMENTS.add()
def quotient(m: Operations, x: Number, y: Number) -> Number:
    """Return x / y."""
    return x / y


@ELEMENTS.add()
def difference_of_two(m: Operations, x: Number, first: Number, second: Number) -> Number:
    """Return (x - first) - second."""
    return (x - first) - second


@ELEMENTS.add()
def softmax_backward(m: Operations, g: Number, y: Number, total: Number) -> Number:
    """Return the gradient of softmax from its result; ``total`` is the sum of g * y of the row."""
    return y * (g - total)


@ELEMENTS.add()
def log_softmax_backward(m: Operations, g: Number, y: Number, total: Number) -> Number:
    """Return the gradient of log_softmax from its result; ``total`` is the sum of g of the row."""
    return m.fma(-f.exp(m, y), total, g)


@ELEMENTS.add()
def product(m: Operations, x: Number, factor: Number) -> Number:
    """Return x * factor."""
    return x * factor


@ELEMENTS.add()
def normalize(m: Operations, x: Number, center: Number, factor: Number, term: Number) -> Number:
    """Return (x - center) * factor + term with two roundings. The difference is exact if x is near the center."""
    return m.fma(x - center, factor, term)


@ELEMENTS.add()
def normalize_columns(
    m: Operations, x: Number, center: Number, factor: Number, term: Number, weight: Number, bias: Number
) -> Number:
    """Return ((x - center) * factor + term) * weight + bias with three roundings."""
    return m.fma(normalize(m, x, center, factor, term), weight, bias)


@ELEMENTS.add()
def normalize_columns_backward(
    m: Operations, g: Number, x: Number, of_g: Number, center: Number, of_x: Number, term: Number, weight: Number
) -> Number:
    """Return g * weight * of_g + ((x - center) * of_x + term) with four roundings."""
    return normalize_backward(m, g * weight, x, of_g, center, of_x, term)


@ELEMENTS.add()
def normalize_backward(
    m: Operations, g: Number, x: Number, of_g: Number, center: Number, of_x: Number, term: Number
) -> Number:
    """Return g * of_g + ((x - center) * of_x + term) with three roundings."""
    return m.fma(g, of_g, m.fma(x - center, of_x, term))


# -- terms of sums: the first result is summed, and its product with the second one ------------------------------------


@ELEMENTS.add()
def squares(m: Operations, x: Number) -> tuple[Number, Number]:
    """Return x and x."""
    return x, x


@ELEMENTS.add()
def products(m: Operations, x: Number, y: Number) -> tuple[Number, Number]:
    """Return x and y."""
    return x, y


@ELEMENTS.add()
def weighted_products(m: Operations, x: Number, y: Number, weight: Number) -> tuple[Number, Number]:
    """Return x * weight and y."""
    return x * weight, y


@ELEMENTS.add()
def products_with_normalized(
    m: Operations, g: Number, x: Number, center: Number, factor: Number, term: Number
) -> tuple[Number, Number]:
    """Return g and (x - center) * factor + term."""
    return g, normalize(m, x, center, factor, term)


# -- updates in place -----------------------------------------------------------------------------------------------


@ELEMENTS.add()
def add(m: Operations, x: Number, y: Number, factor: Number) -> Number:
    """Return x + y * factor with two roundings."""
    return x + y * factor


@ELEMENTS.add()
def subtract(m: Operations, x: Number, y: Number, factor: Number) -> Number:
    """Return x - y * factor with two roundings."""
    return x - y * factor


@ELEMENTS.add()
def lerp_low(m: Operations, x: Number, end: Number, weight: Number) -> Number:
    """Return the value between two numbers for abs(weight) < 0.5."""
    return x + (end - x) * weight


@ELEMENTS.add()
def lerp_high(m: Operations, x: Number, end: Number, weight: Number) -> Number:
    """Return the value between two numbers for other weights; ``weight`` is 1 - weight."""
    return end - (end - x) * weight


@ELEMENTS.add()
def addcmul(m: Operations, x: Number, y: Number, z: Number, factor: Number) -> Number:
    """Return x + (y * factor) * z with three roundings."""
    return x + (y * factor) * z


@ELEMENTS.add()
def addcdiv(m: Operations, x: Number, y: Number, z: Number, factor: Number) -> Number:
    """Return x + (y * factor) / z with three roundings."""
    return x + (y * factor) / z
