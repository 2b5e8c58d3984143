"""The tolerance of a case: the smallest atol and rtol that accept every right result, and the defects they miss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import floor, log10

import numpy as np

from convgrad import arrays, engines
from convgrad.array_types import Array, F64Array
from convgrad.float_environment import in_default_environment
from convgrad.formats import BF16, TF32, Format, round_to, store
from convgrad.functional.call import Prepared
from convgrad.spec.problem import Problem
from convgrad.verify.bound import bound_of
from convgrad.verify.declared import Declared
from convgrad.verify.reference import Reference, certify

DIGITS = 3  # significant digits to which atol and rtol are rounded up
SLACK = 1 + 2.0**-20  # factor that covers the rounding errors of atol + rtol |expected| in f32


@dataclass(frozen=True)
class Tolerance:
    """``atol`` and ``rtol`` of numpy.allclose and torch.testing.assert_close for one case, and undetected defects.

    ``unbounded`` counts the elements that are excluded, because their sums may overflow or are not finite. ``zeros``
    counts the elements where a result of 0 would pass. ``detections`` has pairs of a planted defect and the number of
    elements beyond the tolerance: 0 if the defect passes.
    """

    atol: float
    rtol: float
    elements: int
    unbounded: int = 0
    zeros: int = 0
    detections: tuple[tuple[str, int], ...] = ()

    @property
    def undetected(self) -> tuple[str, ...]:
        """The names of the planted defects that pass with this tolerance."""
        return tuple(name for name, beyond in self.detections if not beyond)

    def __str__(self) -> str:
        """Return the tolerance, and what it does not detect, as one line."""
        if self.elements and self.unbounded == self.elements:
            return "there is no tolerance, because no element has a bound"
        parts = [f"atol={self.atol:.{DIGITS}g}, rtol={self.rtol:.{DIGITS}g} let every right result pass"]
        parts += [f"not for {self.unbounded} elements that have no bound"] * bool(self.unbounded)
        parts += [f"a 0 would pass at {self.zeros} of {self.elements}"] * bool(self.zeros)
        parts += [f"not seen: {', '.join(self.undetected)}"] * bool(self.undetected)
        return "; ".join(parts)


@in_default_environment
def tolerance(prepared: Prepared, how: Declared, reference: Reference | None = None) -> Tolerance:
    """Return the smallest tolerance, |got - expected| <= atol + rtol |expected|, that no right result exceeds.

    ``expected`` is the exact result rounded to the output's type. A right result is between the rounded ends of
    [S - bound, S + bound]. atol and rtol cover these ends for each element, with the smallest average of
    atol + rtol |expected|. Evaluate the comparison in f32 or a wider format.

    >>> from convgrad.functional.call import prepare
    >>> from convgrad.verify.declared import declared
    >>> x = np.full((1, 4, 1), 0.1, np.float32)
    >>> attributes = {"strides": [1], "dilations": [1], "weights_shape": (1, 1, 1)}
    >>> call = prepare("ConvolutionBackwardWeights", (x, x), attributes)
    >>> print(tolerance(call, declared(call.problem.operator, call.problem.operand_format)))
    atol=1.12e-08, rtol=0 let every right result pass
    """
    problem = prepared.problem
    reference = reference or certify(problem, prepared.operands)
    fmt = problem.output_format
    expected = reference.rounded(fmt).astype(np.float64)
    with np.errstate(all="ignore"):
        bound = bound_of(reference, problem, how, prepared.operands)
        ends = round_to(reference.value - bound, fmt), round_to(reference.value + bound, fmt)
        off = np.maximum(np.abs(ends[0] - expected), np.abs(ends[1] - expected))
        counts = np.isfinite(off) & np.isfinite(expected)
    size, off = np.abs(expected[counts]), off[counts]
    atol, rtol = _minimum(size, off)
    detections = tuple(
        (name, _beyond(planted.astype(np.float64)[counts], expected[counts], atol, rtol))
        for name, planted in _planted(problem, prepared.operands, reference)
    )
    zeros = int(np.count_nonzero((size > 0) & (size <= atol + rtol * size)))
    return Tolerance(atol, rtol, expected.size, int(np.count_nonzero(~counts)), zeros, detections)


def _minimum(size: F64Array, off: F64Array) -> tuple[float, float]:
    """Return atol and rtol of the line atol + rtol x above all points (size, off) that is lowest at the mean size."""
    if not off.any():
        return 0.0, 0.0
    corners = _upper_left(size, off)
    mean = float(size.mean())
    at = next((number for number, (x, _) in enumerate(corners) if x > mean), len(corners))
    rtol = 0.0
    if 0 < at < len(corners):
        (x0, y0), (x1, y1) = corners[at - 1], corners[at]
        rtol = (y1 - y0) / (x1 - x0)
        if y0 - rtol * x0 < 0:  # atol cannot be negative
            rtol = max(y / x for x, y in corners if y)
    rtol = _up(rtol * SLACK)
    return _up(max(0.0, float((off - rtol * size / SLACK).max())) * SLACK), rtol


def _upper_left(size: F64Array, off: F64Array) -> list[tuple[float, float]]:
    """Return the corners of the points' upper convex hull with non-negative slope, by ascending size."""
    order = np.lexsort((-off, size))
    size, off = size[order], off[order]
    higher = np.concatenate(([True], off[1:] > np.maximum.accumulate(off)[:-1]))
    hull: list[tuple[float, float]] = []
    for x, y in zip(size[higher].tolist(), off[higher].tolist(), strict=True):
        while len(hull) > 1 and _turns_left(hull[-2], hull[-1], (x, y)):
            hull.pop()
        hull.append((x, y))
    return hull


def _turns_left(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    return (b[1] - a[1]) * (c[0] - a[0]) <= (c[1] - a[1]) * (b[0] - a[0])


def _up(value: float) -> float:
    """Return the smallest number of ``DIGITS`` digits that is not below ``value``."""
    if value == 0:
        return 0.0
    step = 10.0 ** (floor(log10(value)) + 1 - DIGITS)
    rounded = float(f"{value:.{DIGITS}g}")
    return rounded if rounded >= value else float(f"{rounded + step:.{DIGITS}g}")


def _beyond(got: F64Array, expected: F64Array, atol: float, rtol: float) -> int:
    return int(np.count_nonzero(~(np.abs(got - expected) <= atol + rtol * np.abs(expected))))


def _planted(problem: Problem, operands: tuple[Array, ...], reference: Reference) -> Iterator[tuple[str, Array]]:
    """Yield pairs of a defect's name and a result with this defect, for defects that a tolerance may not detect."""
    for fmt in (TF32, BF16):
        if fmt.significand_bits < problem.operand_format.significand_bits:
            yield f"operands rounded to {fmt}", _computed(problem, tuple(_rounded(a, fmt) for a in operands))
    if BF16.significand_bits < problem.output_format.significand_bits:
        yield "a result rounded to bf16", store(round_to(reference.value, BF16), problem.output_format)
    if len(operands) > 1 and len(problem.operands) > 1:
        first, *others = operands
        name, last = ("image", (-1,)) if len(first) > 1 else ("channel", (slice(None), -1))
        shortened = first.copy()
        shortened[last] = 0
        yield f"the last {name} left out", _computed(problem, (shortened, *others))


def _rounded(array: Array, fmt: Format) -> Array:
    return round_to(array.astype(np.float64), fmt).astype(array.dtype)


def _computed(problem: Problem, operands: tuple[Array, ...]) -> Array:
    out = arrays.empty(problem.output_shape, problem.output_format.dtype).transpose(problem.output_order)
    engines.execute(problem, operands, out, None)
    return out
