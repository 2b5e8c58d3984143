"""Matched filters: a search for the errors that operands of fewer bits would cause.

A filter is the exact error of each element that rounded operands cause. The component proportional to the value is
removed from the filter and from the errors. Then t = sum d / sqrt(sum d^2) of d = error x filter is self-normalised,
and the coefficient is 1 if the operands were rounded in this way. A filter detects and names a defect even if the
defect's errors are smaller than all other errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from convgrad.array_types import F64Array
from convgrad.formats import BF16, F16, F32, TF32, Format
from convgrad.spec import exact_result
from convgrad.spec.geometry import Conv
from convgrad.spec.problem import Problem
from convgrad.verify.judge.conspire import AT_ONCE
from convgrad.verify.judge.errors import Errors
from convgrad.verify.judge.names import OPERANDS_ROUNDED, OPERANDS_TRUNCATED
from convgrad.verify.judge.sample import take
from convgrad.verify.judge.statistics.finding import Finding
from convgrad.verify.verdict import Defect, Evidence

THRESHOLD, COEFFICIENT, LARGE = 6.0, 0.25, 2.0  # a coefficient above LARGE is a correlation by chance and gives no name
FEWEST = 64  # elements that a correlation needs
MULTIPLY_ADDS = 2**31  # about a second; a filter of a larger problem is computed for a sample of elements
ELEMENTS, TERMS = 4096, 2**27  # maximum numbers of elements and of terms of this sample
FAR = 64  # a sample does not correlate with a filter if most of its errors are larger by this factor


@dataclass(frozen=True)
class Filter:
    """A way in which operands lose bits: rounding or truncation to a format."""

    fmt: Format
    truncated: bool

    @property
    def name(self) -> str:
        """The name of the defect that the filter detects."""
        return (OPERANDS_TRUNCATED if self.truncated else OPERANDS_ROUNDED).format(self.fmt)


FILTERS = tuple(Filter(fmt, truncated) for fmt in (TF32, BF16, F16, F32) for truncated in (False, True))


def coarser(values: F64Array, bit_filter: Filter) -> F64Array:
    """Return values rounded to a format's bits, to nearest even or towards 0; f16 overflows to infinity.

    >>> coarser(np.array([1 + 2**-8, 1 + 2**-7 + 2**-9]), Filter(BF16, False)).tolist()
    [1.0, 1.0078125]
    """
    shift = np.int64(53 - bit_filter.fmt.significand_bits)
    pattern = np.ascontiguousarray(values).view(np.int64)
    if not bit_filter.truncated:
        pattern = pattern + ((pattern >> shift) & 1) + ((np.int64(1) << (shift - 1)) - 1)
    kept = (pattern & ~((np.int64(1) << shift) - 1)).view(np.float64)
    small = (np.abs(values) < 2.0**bit_filter.fmt.min_exponent) & (values != 0)
    if small.any():
        steps = values[small] / bit_filter.fmt.tiny
        kept[small] = (np.trunc(steps) if bit_filter.truncated else np.rint(steps)) * bit_filter.fmt.tiny
    return (
        np.where(np.abs(kept) > bit_filter.fmt.largest, np.copysign(np.inf, kept), kept)
        if bit_filter.fmt is F16
        else kept
    )


def matched_filters(errors: Errors) -> Finding:
    """Return t of each filter that may explain errors of this size, and the name of the filter that explains them best.

    Filters that explain the errors almost as well are named, too.
    """
    if np.count_nonzero(errors.alone) < FEWEST:
        return Finding()
    figures: dict[str, float] = {}
    matches: list[tuple[float, Filter, float]] = []
    # Products with powers of 2 that are rounded to the declared format are products of rounded operands.
    bits = min(errors.problem.operand_format.significand_bits, errors.accumulator.significand_bits)
    filters = [
        bit_filter for bit_filter in FILTERS if bit_filter.fmt.significand_bits < bits and _possible(errors, bit_filter)
    ]
    if not filters:
        return Finding()
    at, all_caused = _caused(errors, filters)
    for bit_filter, caused in zip(filters, all_caused, strict=True):
        figures[f"t of {bit_filter.name}"], coefficient, residual = _matched(errors, at, caused)
        if figures[f"t of {bit_filter.name}"] > THRESHOLD and coefficient > COEFFICIENT:
            matches.append((residual, bit_filter, coefficient))
    if not matches:
        return Finding(figures)
    minimum = min(row[0] for row in matches)
    (_, best, coefficient), *others = [
        row for row in matches if row[0] <= 1.02 * minimum
    ]  # filters that explain the errors about as well
    t = figures[f"t of {best.name}"]
    evidence = Evidence(f"correlation with {best.name}", t, THRESHOLD)
    if coefficient > LARGE:
        return Finding(figures, (evidence,))
    alike = "".join(f", as well as {other.name}" for _, other, _ in others)
    return Finding(figures, (evidence,), (Defect(best.name, f"coefficient {coefficient:.2f}, t {t:.3g}{alike}"),))


def _possible(errors: Errors, bit_filter: Filter) -> bool:
    """Return whether the filter's coefficient, at most rms(error) / rms(filter) of the sample, can be relevant."""
    sample = errors.sample
    count = max(1, AT_ONCE // max(1, sample.x[:1].size))
    parts = [slice(begin, begin + count) for begin in range(0, len(sample.x), count)]
    caused = np.concatenate([_changes(sample.x[part], sample.y[part], bit_filter) for part in parts])
    if not np.isfinite(caused).all() or not caused.any():
        return False
    at = tuple(np.transpose(sample.at))
    filtered = _beside(caused / errors.deviation[at], errors.value[at] / errors.deviation[at])
    length, z = sqrt(float(np.square(filtered).mean())), errors.z[errors.alone]
    if not _is_evaluated(errors.problem) and float(np.median(np.abs(z))) > FAR * length:
        return False
    return sqrt(float(np.square(z).mean())) > COEFFICIENT / 2 * length


def _is_evaluated(problem: Problem) -> bool:
    """Return whether a filter is computed for all elements, not for a sample."""
    return not isinstance(problem.geometry, Conv) or problem.geometry.multiply_adds <= MULTIPLY_ADDS


def _changes(x: F64Array, y: F64Array, bit_filter: Filter) -> F64Array:
    """Return how much each sum of products [element, ...] changes when the filter removes bits of the operands."""
    with np.errstate(invalid="ignore", over="ignore"):
        changes: F64Array = (coarser(x, bit_filter) * coarser(y, bit_filter) - x * y).reshape(len(x), -1).sum(1)
    return changes


def _caused(errors: Errors, filters: Sequence[Filter]) -> tuple[tuple[NDArray[np.intp], ...], list[F64Array]]:
    """Return indices of elements, and for each filter their errors if it rounds the operands."""
    problem = errors.problem
    chosen = np.flatnonzero(errors.alone)
    if _is_evaluated(problem):
        changed = [_evaluated(errors, bit_filter) - errors.plain for bit_filter in filters]
        return np.unravel_index(chosen, errors.value.shape), [change.ravel()[chosen] for change in changed]
    count = min(ELEMENTS, max(FEWEST, TERMS // max(1, int(errors.terms.max()))), chosen.size)
    chosen = np.sort(np.random.default_rng(0).choice(chosen, count, replace=False))
    places = [tuple(int(i) for i in np.unravel_index(at, errors.value.shape)) for at in chosen]
    caused = np.zeros((len(filters), count))
    for at, place in enumerate(places):
        sample = take(problem, errors.operands, [place])
        right = sample.products.sum()
        for bit_filter, row in zip(filters, caused, strict=True):
            row[at] = (
                replace(sample, x=coarser(sample.x, bit_filter), y=coarser(sample.y, bit_filter)).products.sum() - right
            )
    return np.unravel_index(chosen, errors.value.shape), list(caused)


def _evaluated(errors: Errors, bit_filter: Filter) -> F64Array:
    """Return the exact result of operands that the filter rounds."""
    problem = errors.problem
    rounded = [
        operand if tensor == "bias" else coarser(np.asarray(operand, np.float64), bit_filter)
        for tensor, operand in zip(problem.operands, errors.operands, strict=True)
    ]
    return exact_result.evaluate(replace(problem, accumulate=False), rounded).value


def _matched(errors: Errors, at: tuple[NDArray[np.intp], ...], caused: F64Array) -> tuple[float, float, float]:
    """Return t and the coefficient of a filter, and the mean square of the errors minus the filter."""
    deviation = errors.deviation[at]
    z, value = errors.z[at], errors.value[at] / deviation
    filtered = _beside(caused / deviation, value)
    product = _beside(z, value) * filtered
    length = sqrt(errors.shared * float(np.square(product).sum()))
    if not length or not np.isfinite(length):
        return 0.0, 0.0, float("inf")
    left = float(np.square(z - caused / deviation).mean())
    return float(product.sum()) / length, float(product.sum()) / float(np.square(filtered).sum()), left


def _beside(filtered: F64Array, value: F64Array) -> F64Array:
    """Return a filter without its component proportional to the value."""
    square = float(value @ value)
    return filtered - value * (float(filtered @ value) / square) if square else filtered
