"""Maps of powers by products and roots, which also compute in f64, and of remainders."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan

from convgrad.spec.elementwise.arithmetic import Number, Operations
from convgrad.spec.elementwise.definition import Definition, Map, Maps

POWERS = Maps()


_POWERS: dict[float, Callable[[Operations, Number], Number]] = {
    0: lambda m, x: m.select(m.equal(x, x), 1.0, 1.0),
    0.25: lambda m, x: m.sqrt(m.sqrt(x)),
    0.5: lambda m, x: m.sqrt(x),
    0.75: lambda m, x: m.sqrt(x) * m.sqrt(m.sqrt(x)),
    1: lambda m, x: x,
    1.25: lambda m, x: x * m.sqrt(m.sqrt(x)),
    1.5: lambda m, x: x * m.sqrt(x),
    2: lambda m, x: x * x,
    3: lambda m, x: (x * x) * x,
    4: lambda m, x: (x * x) * (x * x),
}
EXPONENTS = (-3, -2, -1.5, -1.25, -1, -0.75, -0.5, -0.25, 0, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4)


def power_name(exponent: float) -> str:
    """Return the name of the map of a power."""
    return f"power_{'minus_' * (exponent < 0)}{4 * abs(exponent):g}_quarters"


def _power(exponent: float) -> Definition:
    """Return a power by products, square roots and a division. -inf and -0 count as inf and 0 for most fractions."""

    def power(m: Operations, x: Number) -> Number:
        if abs(exponent) != 0.5 and exponent % 1:
            x = m.select(m.equal(x, -inf), inf, x) + 0.0
        raised = _POWERS[abs(exponent)](m, x)
        return 1.0 / raised if exponent < 0 else raised

    return power


for _exponent in EXPONENTS:
    POWERS[power_name(_exponent)] = Map(power_name(_exponent), _power(_exponent))


# -- remainders ----------------------------------------------------------------------------------------------------

_SCALE = 2.0**100
_REDUCTIONS = 15  # the quotient of two numbers is below 2^277, and each reduction removes 23 bits


def _reduced(m: Operations, left: Number, by: Number) -> Number:
    """Return a number minus a multiple of ``by``, which is exact. It has 23 bits less, or is at most ``by``.

    n = left / by, rounded and without its fraction, has 24 bits, so left - n * by has no more. In order that the
    quotient is finite, ``by`` is first multiplied by powers of two.
    """
    size = m.abs(left)
    for _ in range(2):
        larger = by * _SCALE
        by = m.select(m.less(larger, size), larger, by)
    quotient = left / by
    return m.fma(-m.copysign(m.floor(m.abs(quotient)), quotient), by, left)


@POWERS.add()
def fmod(m: Operations, x: Number, y: Number) -> Number:
    """Return the exact remainder of x / y with the sign of x."""
    size, by = m.abs(x), m.select(m.equal(y, 0.0), nan, m.abs(y))
    size = m.select(m.less(size, inf), size, nan)
    quotient = size / by
    left = m.select(m.equal(quotient, inf), size, m.fma(-m.floor(quotient), by, size))
    left = m.repeated(m.less(by, m.abs(left)), _REDUCTIONS, lambda left: _reduced(m, left, by), left)
    left = m.select(m.less(left, 0.0), left + by, left)  # its quotient was rounded up
    left = m.select(m.equal(left, by), 0.0, left)
    return m.copysign(m.select(m.less(size, by), size, left), x)


@POWERS.add()
def remainder(m: Operations, x: Number, y: Number) -> Number:
    """Return the remainder of x / y with the sign of y."""
    left = fmod(m, x, y)
    is_negative = m.less(y, 0.0)
    below, above = m.select(is_negative, left, left + y), m.select(is_negative, left + y, left)
    return m.select(m.equal(left, 0.0), left, m.select(m.less(left, 0.0), below, above))
