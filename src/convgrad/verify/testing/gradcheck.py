"""A check of the gradients of any function, by differences whose error follows from the differences themselves.

For a random direction v of one array and a random cotangent u, let s(t) = <u, f(x + t v)>. The values of s at the NODES
Chebyshev nodes of [-h, h] are fitted by Chebyshev polynomials, c0 T0 + ... + c6 T6. The slope of the fit at 0 is
(c1 - 3 c3 + 5 c5) / h. If sigma is the standard deviation of the residuals, the standard error of the slope is
sigma sqrt(2 (1 + 9 + 25) / NODES) / h. LIMIT standard errors cover these errors of the slope:

- Rounding errors of f, which are random: the error divided by the standard error has Student's t distribution with
  NODES - 7 degrees of freedom, and exceeds LIMIT with a probability below 1e-20.
- Truncation: the residuals contain the terms from c7 T7 on. If each of these coefficients is at most 0.9 times the
  previous one, the slope has an error of at most 25 standard errors.
- A kink of f: with one kink at any t in [-h, h], also at 0, the error is at most 32.3 standard errors.

If h is so small that rounding hides all changes of an element of f, its rounding errors are not random. Then its last
place, or its smallest change at a larger h, bounds the change that is lost at each node.

Of several h, the fit with the smallest error is used: a smaller h has a smaller truncation error and larger rounding
errors. The rounding errors of the gradient follow from its linearity in u: the gradient is computed for several
multiples of u, and the scatter of the results gives the standard error of their mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import fsum, sqrt
from operator import itemgetter
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from convgrad import arrays
from convgrad.array_types import F64Array
from convgrad.arrays import libraries

Function = Callable[..., object]

NODES = 32
LIMIT = 33.0  # standard errors
STEPS = tuple(2.0**-exponent for exponent in (5, 10, 15, 20, 25))
PRECISE = 2.0**-30  # an error, relative to a typical derivative, at which no smaller step is tried
MULTIPLES = np.linspace(1, 2, 8, endpoint=False)  # of u; most of them are not powers of 2, so roundings differ
EPS = float(np.finfo(np.float64).eps)

_POLYNOMIALS = np.cos(np.outer(np.arange(7), (2 * np.arange(NODES) + 1) * np.pi / (2 * NODES)))  # T0 to T6 at the nodes
_NORMS = np.array([NODES, *[NODES / 2] * 6])  # sums of their squares
_SLOPES = np.array([0, 1, 0, -3, 0, 5, 0])  # at 0
_WEIGHTS = np.abs(_SLOPES / _NORMS @ _POLYNOMIALS)  # of the errors at the nodes in the error of the slope


def gradcheck(
    function: Function,
    operands: Sequence[ArrayLike],
    gradients: Callable[..., Sequence[object]],
    *,
    seed: int = 0,
) -> tuple[float, ...]:
    """Assert that the gradients of a function are right, and return the relative error of each check.

    Both functions get f64 arrays of the libraries of ``operands``, and ``gradients`` gets diff_result as an array of
    the library of the result. The function must be smooth near the operands.

    For each operand, the derivative along one random direction is compared with a fit to differences. You choose no
    tolerance: the error of the fit follows from its residuals, and rounding errors of your functions are part of it.
    Steps are relative to the root mean square of the operand, or to 1 if the operand is 0.

    The result has one number per operand: the error of the check divided by the size of a typical derivative. Larger
    errors of the gradient are found. The number of an operand that is not checked is NaN.

    Args:
        function: The function to differentiate. ``function(*operands)`` returns one array.
        operands: The arrays at which the gradients are checked, of any floating-point types and shapes.
        gradients: The gradients to check. ``gradients(diff_result, *operands)`` returns one gradient per operand, or
            None for an operand that is not checked.

    Keyword Args:
        seed: The seed of the random directions. Default: 0.

    Raises:
        AssertionError: A gradient is wrong or not finite, or has the wrong shape. Or the differences are so inexact
            that a gradient of 0 would pass, for example because the function has random parts.
        ConvgradError: An operand or a result is not an array of floating-point numbers.

    >>> [error] = gradcheck(np.sin, [np.arange(3.0)], lambda diff, x: [diff * np.cos(x)])
    >>> error < 1e-10
    True
    >>> gradcheck(np.sin, [np.arange(3.0)], lambda diff, x: [2 * diff * np.cos(x)])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    AssertionError: WRONG: gradient 0 gives a derivative of ..., which is 2 times the right one...
    """
    __tracebackhide__ = True
    rng = np.random.default_rng(seed)
    makers = [libraries.like(operand) for operand in operands]
    values = [_f64(operand, f"operand {number}") for number, operand in enumerate(operands)]

    def new_operands(moved: Mapping[int, F64Array] = MappingProxyType({})) -> list[object]:
        """Return the operands for a call: new arrays, some of them replaced."""
        return [make(moved.get(at, value).copy()) for at, (make, value) in enumerate(zip(makers, values, strict=True))]

    result = function(*new_operands())
    before, fmt = _f64(result, "the result"), arrays.take(libraries.detached(result), "gradcheck", "the result")[1]
    cotangent = np.asarray(rng.standard_normal(before.shape))
    last_places = np.abs(cotangent) * (2 * fmt.unit * np.abs(before) + fmt.tiny)
    like = libraries.like(result)

    def gradients_of(diff_result: F64Array) -> list[F64Array | None]:
        """Return copies of the gradients, because the next call may return the same memory."""
        computed = enumerate(gradients(like(diff_result), *new_operands()))
        return [None if gradient is None else _f64(gradient, f"gradient {number}") for number, gradient in computed]

    computed = [gradients_of(cotangent * multiple) for multiple in MULTIPLES]
    if len(computed[0]) != len(values):
        raise AssertionError(f"WRONG: {len(computed[0])} gradients were returned for {len(values)} operands")
    errors = []
    for number, value in enumerate(values):
        own = [gradient for gradients_of_call in computed if (gradient := gradients_of_call[number]) is not None]
        if not own:
            errors.append(np.nan)
            continue
        name = f"gradient {number}"
        estimates = [gradient / multiple for gradient, multiple in zip(own, MULTIPLES, strict=True)]
        if estimates[0].shape != value.shape:
            raise AssertionError(f"WRONG: {name} must be of shape {value.shape}; got {estimates[0].shape}")
        scale = _norm(value) / sqrt(value.size) if value.any() else 1.0
        direction = scale * np.asarray(rng.standard_normal(value.shape))

        typical = scale * _norm(estimates[0])
        right, error, lost = 0.0, np.inf, last_places
        for step in STEPS:
            moved = (new_operands({number: value + step * node * direction}) for node in _POLYNOMIALS[1])
            changes = np.array([cotangent * (_f64(function(*operands), "the result") - before) for operands in moved])
            lost, unseen = _lost_changes(changes, last_places, lost)
            slope, own_error = _slope(changes, step, name)
            right, error = min((right, error), (slope, own_error + unseen / step), key=itemgetter(1))
            if error <= PRECISE * typical:
                break
        derivative, own_error = _mean([estimate * direction for estimate in estimates], name)
        error += own_error
        if abs(derivative - right) > error:
            ratio = f", which is {derivative / right + 0.0:.6g} times the right one" if abs(right) > error else ""
            words = f"{name} gives a derivative of {derivative:.9g}{ratio}"
            raise AssertionError(f"WRONG: {words}: differences give {right:.9g} with an error below {error:.3g}")
        if error > max(typical, sqrt(EPS) * fsum(np.abs(cotangent * before).ravel())):
            raise AssertionError(
                f"UNDECIDED: {name} cannot be checked: differences give a derivative of {right:.3g} with an error of "
                f"{error:.3g}, so a gradient of 0 would pass. The function must be smooth and deterministic"
            )
        errors.append(error / typical if typical else 0.0)
    return tuple(errors)


def _lost_changes(changes: F64Array, last_places: F64Array, lost: F64Array) -> tuple[F64Array, float]:
    """Return how much of a change rounding may hide at each element, and the error of the slope times h that follows.

    ``lost`` is the result for a larger h. Equal changes at two nodes show that an element is rounded to fewer bits
    than its type has. Its smallest change is then at least its last place.
    """
    ordered = np.sort(changes, axis=0)
    smallest = np.min(np.abs(ordered), axis=0, initial=np.inf, where=ordered != 0)
    repeated = ((ordered[1:] == ordered[:-1]) & (ordered[1:] != 0)).any(axis=0)
    unchanged = np.isinf(smallest)
    unseen = float(_WEIGHTS.sum()) * fsum(lost[unchanged].ravel())
    return np.where(unchanged, lost, np.where(repeated, smallest, last_places)), unseen


def _slope(changes: F64Array, step: float, name: str) -> tuple[float, float]:
    """Return the slope at 0 of the fit to the sums of the changes at the nodes, and the largest error of the slope."""
    sums = np.array([_sum(change, name) for change in changes])
    coefficients = _POLYNOMIALS @ sums / _NORMS
    residuals = sums - coefficients @ _POLYNOMIALS
    deviation = _norm(residuals) * sqrt(_SLOPES @ (_SLOPES / _NORMS) / (NODES - len(_NORMS)))
    own = NODES * EPS * float(_WEIGHTS @ np.abs(sums))  # rounding errors of the fit
    return float(_SLOPES @ coefficients) / step, (LIMIT * deviation + own) / step


def _mean(products: Sequence[F64Array], name: str) -> tuple[float, float]:
    """Return the mean of the sums of several arrays, and the largest error of the mean."""
    sums = [_sum(product, name) for product in products]
    own = EPS * fsum(np.abs(products[0]).ravel())  # each element of the gradient and each product is rounded once
    mean = fsum(sums) / len(sums)
    deviation = _norm(np.array(sums) - mean) / sqrt(len(sums) - 1)
    return mean, LIMIT * deviation / sqrt(len(sums)) + own


def _norm(values: F64Array) -> float:
    """Return the Euclidean norm of numbers whose squares may overflow or underflow."""
    largest = float(np.max(np.abs(values), initial=0.0))
    return largest * float(np.linalg.norm(values / largest)) if 0 < largest < np.inf else largest


def _sum(array: F64Array, name: str) -> float:
    if not np.isfinite(array).all():
        raise AssertionError(f"WRONG: {name}, or the result near the operands, is not finite")
    return fsum(array.ravel())


def _f64(value: object, name: str) -> F64Array:
    return arrays.take(libraries.detached(value), "gradcheck", name)[0].astype(np.float64)
