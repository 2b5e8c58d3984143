"""Maps that select between numbers, in f32 or f64: maxima, interpolation with a weight per element, shrinking."""

from __future__ import annotations

from convgrad.spec.elementwise.arithmetic import Number, Operations
from convgrad.spec.elementwise.definition import Maps
from convgrad.spec.elementwise.maps import lerp_high, lerp_low

SELECTIONS = Maps()


@SELECTIONS.add()
def maximum(m: Operations, x: Number, y: Number) -> Number:
    """Return the larger number, or NaN if one is NaN; a zero is positive."""
    return m.select(m.equal(y, y), m.select(m.less(x, y), y, x), y) + 0.0


@SELECTIONS.add()
def minimum(m: Operations, x: Number, y: Number) -> Number:
    """Return the smaller number, or NaN if one is NaN; a zero is positive."""
    return m.select(m.equal(y, y), m.select(m.less(y, x), y, x), y) + 0.0


@SELECTIONS.add()
def fmax(m: Operations, x: Number, y: Number) -> Number:
    """Return the larger number, or the one that is not NaN; a zero is positive."""
    return m.select(m.equal(x, x), m.select(m.less(x, y), y, x), y) + 0.0


@SELECTIONS.add()
def fmin(m: Operations, x: Number, y: Number) -> Number:
    """Return the smaller number, or the one that is not NaN; a zero is positive."""
    return m.select(m.equal(x, x), m.select(m.less(y, x), y, x), y) + 0.0


@SELECTIONS.add()
def clamp(m: Operations, x: Number, low: Number, high: Number) -> Number:
    """Return x limited to a range, ``high`` if the range is empty, or NaN if one is NaN; a zero is positive."""
    return minimum(m, maximum(m, x, low), high)


@SELECTIONS.add()
def lerp(m: Operations, x: Number, end: Number, weight: Number) -> Number:
    """Return the value between two numbers."""
    low, high = lerp_low(m, x, end, weight), lerp_high(m, x, end, 1.0 - weight)
    return m.select(m.less(m.abs(weight), 0.5), low, high)


@SELECTIONS.add()
def softshrink(m: Operations, x: Number, limit: Number, term: Number) -> Number:
    """Return x - term above the limit, x + term below -limit, and else a zero with the sign of x, or NaN."""
    return m.select(m.less(limit, x), x - term, m.select(m.less(x, -limit), x + term, x * 0.0))


@SELECTIONS.add()
def shrink_backward(m: Operations, g: Number, x: Number, limit: Number) -> Number:
    """Return 0 where abs(x) <= limit, and g elsewhere and for NaN."""
    size = m.abs(x)
    return m.select(m.less(size, limit), 0.0, m.select(m.equal(size, limit), 0.0, g))
