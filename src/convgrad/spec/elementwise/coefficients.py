"""Maps of coefficients, in f64: from sums per channel or row to the operands of norms, softmax and their gradients."""

from __future__ import annotations

from convgrad.spec.elementwise.arithmetic import Number, Operations
from convgrad.spec.elementwise.definition import Maps
from convgrad.spec.elementwise.functions import maximum

COEFFICIENTS = Maps()


@COEFFICIENTS.add(wide=True)
def moments(
    m: Operations,
    total: Number,
    squares: Number,
    weight: Number,
    bias: Number,
    running_mean: Number,
    running_variance: Number,
    count: Number,
    eps: Number,
    keep: Number,
    momentum: Number,
    unbiased: Number,
) -> tuple[Number, ...]:
    """Return the coefficients of ``normalize`` from the sums of elements and of squares, and 1/deviation.

    Two more results are the running values, each as running * keep + new * momentum. The first coefficient is the mean,
    rounded to f32. ``unbiased`` is count / (count - 1), by which the running variance is larger.
    """
    mean = total / count
    variance = maximum(m, squares - total * mean, 0.0) / count
    inverse = 1.0 / m.sqrt(variance + eps)
    new_mean = running_mean * keep + mean * momentum
    new_variance = running_variance * keep + (variance * unbiased) * momentum
    return *_normalization(m, mean, inverse, weight, bias), inverse, new_mean, new_variance


@COEFFICIENTS.add(wide=True)
def running_moments(
    m: Operations, mean: Number, variance: Number, weight: Number, bias: Number, eps: Number
) -> tuple[Number, ...]:
    """Return the coefficients of ``normalize`` from running values."""
    return _normalization(m, mean, 1.0 / m.sqrt(variance + eps), weight, bias)


def _normalization(
    m: Operations, mean: Number, inverse: Number, weight: Number, bias: Number
) -> tuple[Number, Number, Number]:
    """Return center, factor and term of ``normalize``. The term corrects the rounding of the center."""
    center = m.rounded(mean)
    factor = inverse * weight
    return center, factor, (center - mean) * factor + bias


@COEFFICIENTS.add(wide=True)
def gradient(
    m: Operations,
    total: Number,
    products: Number,
    mean: Number,
    inverse: Number,
    weight: Number,
    weight_of_g: Number,
    count: Number,
) -> tuple[Number, ...]:
    """Return the coefficients of ``normalize_backward`` from the sums of g and of g * x, and the weight's gradient.

    The last result is the gradient of the bias. If the sums include the weights, only ``weight_of_g`` is a weight, and
    ``weight`` is 1; else it is the reverse.
    """
    products = products - mean * total
    factor = inverse * weight
    slope = -factor * inverse * inverse * products / count
    return factor * weight_of_g, mean, slope, -factor * total / count, products * inverse, total


@COEFFICIENTS.add(wide=True)
def running_gradient(
    m: Operations, total: Number, products: Number, mean: Number, variance: Number, weight: Number, eps: Number
) -> tuple[Number, ...]:
    """Return the factor of g, the gradient of the weight and the gradient of the bias, with running values."""
    inverse = 1.0 / m.sqrt(variance + eps)
    return inverse * weight, (products - mean * total) * inverse, total


@COEFFICIENTS.add(wide=True)
def weighted_sums(
    m: Operations, total: Number, products: Number, mean: Number, inverse: Number, weight: Number
) -> tuple[Number, ...]:
    """Return the sums of g and of g * x, each times the weight, and the gradient of the weight."""
    return total * weight, products * weight, (products - mean * total) * inverse


@COEFFICIENTS.add(wide=True)
def mean(m: Operations, total: Number, count: Number) -> Number:
    """Return a sum divided by a number."""
    return total / count


@COEFFICIENTS.add(wide=True)
def root(m: Operations, squares: Number) -> Number:
    """Return the square root of a sum of squares."""
    return m.sqrt(squares)


@COEFFICIENTS.add(wide=True)
def variance(m: Operations, total: Number, squares: Number, count: Number, free: Number) -> tuple[Number, Number]:
    """Return the variance, and the mean, from the sums of elements and of squares, for degrees of freedom."""
    mean = total / count
    return maximum(m, squares - total * mean, 0.0) / free, mean


@COEFFICIENTS.add(wide=True)
def deviation(m: Operations, total: Number, squares: Number, count: Number, free: Number) -> Number:
    """Return the standard deviation, as the square root of ``variance``."""
    return m.sqrt(variance(m, total, squares, count, free)[0])
