"""The reference of a verdict: the exact sum of each output element, its error bound, and facts about its terms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from convgrad.array_types import Array, F64Array, Selection
from convgrad.formats import F64, FORMATS, Format, round_to, store
from convgrad.spec import exact_result
from convgrad.spec.bound import gamma
from convgrad.spec.problem import Problem, canonical_shape
from convgrad.verify.gather import pieces
from convgrad.verify.granule import NUMBERS, granules, lowest_bits
from convgrad.verify.sums import Sums, two_sum
from convgrad.verify.terms import terms_of
from convgrad.verify.wide import exact_sum, to_odd

Progress = Callable[[float], None]

F64_TERMS = 1 << 16  # f64 problems with at most this many terms in all outputs are added exactly
_LOWEST = -1074  # exponent of the smallest float64 number
_SLACK = 1 + 2.0**-40  # factor that covers the rounding errors of a bound computed in float64


@dataclass(frozen=True, eq=False)
class Reference:
    """The exact sums and facts about their terms, as canonical arrays with one entry per output element.

    Sums include bias and the old value. ``value`` is the exact sum S in float64, and ``error`` is a rigorous bound on
    the error of ``value``. ``magnitude`` is A = sum |x||y|, or slightly more. ``squares`` is Q = sum (xy)^2, accurate
    to 1 %. ``terms`` is the number of products n, and ``nonzero`` the number of nonzero products. ``integral`` is true
    if all operands are integers: sums with A below 2^p are then exact in p bits in any order.

    If the problem has an activation, all fields describe the sums before the activation.

    For operands other than f64, rounding ``value`` to f32 or to fewer bits gives S correctly rounded.
    """

    value: F64Array
    error: F64Array
    magnitude: F64Array
    squares: F64Array
    terms: NDArray[np.int64]
    nonzero: NDArray[np.int64]
    integral: bool

    def at(self, index: slice) -> Reference:
        """Return the reference of the elements at these indices of the first axis."""
        value, error, magnitude, squares = self.value, self.error, self.magnitude, self.squares
        sums = value[index], error[index], magnitude[index], squares[index]
        return Reference(*sums, self.terms[index], self.nonzero[index], self.integral)

    def rounded(self, fmt: Format) -> Array:
        """Return the exact sums correctly rounded to a format; an exact zero is +0."""
        return store(self.value + 0.0, fmt)


@dataclass(frozen=True, eq=False)
class Facts:
    """Facts about the operands of a whole problem, so that a part of its output gets the same reference as the whole.

    ``granule`` is the result of ``granules``: exponents e such that 2^e divides all terms of an element. ``integral``:
    all operands are integers. ``finite``: all operands are finite. ``few``: operands are f64, and the problem has at
    most ``F64_TERMS`` terms, which are added exactly.
    """

    granule: NDArray[np.int32]
    integral: bool
    finite: bool
    few: bool

    def at(self, index: Selection) -> Facts:
        """Return the facts about the part of the canonical output at ``index``."""
        first, *others = index
        if not isinstance(first, slice):  # channels of a sample of a weight gradient
            return replace(self, granule=self.granule[first, others[0]])
        return self if len(self.granule) == 1 else replace(self, granule=self.granule[first])


def facts_of(problem: Problem, operands: Sequence[Array], old: Array | None = None) -> Facts:
    """Return the facts about a problem's canonical operands and old value."""
    values = [*operands] if old is None else [*operands, old]
    few = False
    if problem.operand_format is F64:
        shape = canonical_shape(problem.geometry, problem.output)
        few = int(exact_result.count_terms(problem, shape).sum()) <= F64_TERMS
    integral = all(_all(_is_integral, array) for array in values)
    return Facts(granules(problem, operands), integral, all(_all(np.isfinite, array) for array in values), few)


def _is_integral(values: Array) -> NDArray[np.bool_]:
    there = np.isfinite(values)
    whole: NDArray[np.bool_] = (values == np.rint(values)) | ~there
    return whole


def _all(holds: Callable[[Array], Array], array: Array) -> bool:
    """Return whether a predicate is true for all numbers of an array; a large array is checked in parts."""
    array = np.asarray(array)
    if array.size <= NUMBERS:
        return bool(holds(array).all())
    if len(array) == 1:
        return _all(holds, array[0])
    step = max(1, NUMBERS // array[0].size)
    return all(_all(holds, array[begin : begin + step]) for begin in range(0, len(array), step))


def certify(
    problem: Problem,
    operands: Sequence[Array],
    old: Array | None = None,
    progress: Progress = lambda share: None,
    facts: Facts | None = None,
) -> Reference:
    """Return the reference of a problem on canonical operands; an accumulating problem adds to ``old``.

    Sums are computed in float64, with an error bound. If the bound leaves open how an element rounds to a narrower
    format, the terms of this element are added exactly. ``value`` is NaN or infinite for elements with NaN or infinite
    terms, and the other fields count such terms as 0. For f64 operands, ``value`` is the correctly rounded sum if the
    problem has at most ``F64_TERMS`` terms in all. If this problem is part of a larger one, ``facts`` are the facts
    about the larger problem.
    """
    if problem.accumulate and old is None:
        raise ValueError("an accumulating problem needs the old value it adds to")
    known = facts_of(problem, operands, old) if facts is None else facts
    finite, before = [_finite(a) for a in operands], None if old is None else _finite(old)
    with np.errstate(all="ignore"):
        result = _in_float64(problem, finite, before, progress, known)
        spoiled = np.zeros(result.value.shape, np.bool_)
        if not known.finite:
            answer = exact_result.evaluate(problem, operands, old).value
            spoiled = ~np.isfinite(answer)
            result.value[spoiled], result.error[spoiled] = answer[spoiled], 0.0
        if problem.operand_format is not F64:
            open_ones = _undecided(result.value, result.error) & ~spoiled
        else:
            open_ones = (result.error > 0) & ~spoiled & known.few
        for index in zip(*(axis.tolist() for axis in np.nonzero(open_ones)), strict=True):
            nearest, remainder = exact_sum(terms_of(problem, finite, index, before))
            narrow = problem.operand_format is not F64
            result.value[index] = value = to_odd(nearest, remainder) if narrow else nearest
            result.error[index] = np.spacing(np.abs(value)) if remainder else 0.0
        return result


def _finite(array: Array) -> Array:
    """Return the array itself, or a copy with 0 instead of NaN and infinities."""
    array = np.asarray(array)
    finite = np.isfinite(array)
    return array if finite.all() else np.where(finite, array, array.dtype.type(0))


def _in_float64(
    problem: Problem, operands: Sequence[Array], old: Array | None, progress: Progress, facts: Facts
) -> Reference:
    """Return the reference that float64 sums give, for finite operands."""
    shape = canonical_shape(problem.geometry, problem.output)
    value, error, magnitude, squares = (np.zeros(shape) for _ in range(4))
    terms = exact_result.count_terms(problem, shape)
    tensors = dict(zip(problem.operands, operands, strict=True))
    counted = any(not np.all(array) for tensor, array in tensors.items() if tensor != "bias")
    nonzero = np.zeros(shape, np.int64) if counted else terms
    bias = tensors["bias"].reshape(-1, *[1] * (len(shape) - 2)) if "bias" in tensors else None
    entering = [np.broadcast_to(array, shape) for array in (bias, old) if array is not None]
    granule = np.broadcast_to(facts.granule, shape)
    if old is not None:
        granule = np.minimum(granule, lowest_bits(old))
    done = 0
    for piece in pieces(problem, operands):
        sums, at = Sums(piece.shape, counted), piece.index
        for x, y, where in piece.factors:
            sums.add(x, y, where)
        sums.join()
        if sums.nonzero is not None:
            nonzero[at] = piece.canonical(sums.nonzero)
        parts = map(piece.canonical, (sums.high, sums.low, sums.magnitude, sums.squares))
        high, low, size, squares[at] = parts
        for array in entering:
            values = array[at].astype(np.float64)
            high, missed = two_sum(high, values)
            low, size = low + missed, size + np.abs(values)
            squares[at] += np.square(values)
        value[at] = total = high + low
        underflow = terms[at] * F64.tiny if problem.operand_format is F64 else 0.0
        error[at], magnitude[at] = _bounds(sums, total, size, terms[at], underflow, granule[at])
        done += prod(piece.shape)
        progress(done / max(value.size, 1))
    return Reference(value, error, magnitude, squares, terms, nonzero, facts.integral)


def _bounds(
    sums: Sums, value: F64Array, size: F64Array, terms: Array, underflow: Array | float, granule: Array
) -> tuple[F64Array, F64Array]:
    """Return bounds on the error of float64 sums, and on sum |x||y|; ``size`` is sum |x||y| as computed in float64.

    A product has at most ``sums.chunk`` roundings within its chunk. A product of an element with fewer terms has fewer
    roundings, because adding a 0 is exact. The additions of chunks, bias and old value are compensated: their rounding
    errors are added up in float64. A sum has no error if sum |x||y| is at most 2^53 granules.
    """
    upper = size * (1 + 2 * gamma(sums.chunk + sums.adds + 3, F64.unit)) + underflow
    missing = gamma(np.minimum(terms, sums.chunk), F64.unit) + 2 * (F64.unit * (sums.joins + 2)) ** 2
    error = (missing * upper + F64.unit * np.abs(value) + underflow) * _SLACK
    error[~np.isfinite(value)] = np.inf  # sums of f64 operands may overflow
    exact = (upper <= np.ldexp(1.0, granule + F64.significand_bits)) & (granule >= _LOWEST) & np.isfinite(upper)
    return np.where(exact, 0.0, error), np.where(exact, size, upper)


def _undecided(value: F64Array, error: F64Array) -> NDArray[np.bool_]:
    """Return a mask of elements for which value - error and value + error round differently in a format except f64.

    A midpoint between neighbours in a format narrower than f32 is an f32 number whose last 12 bits are 0. If both ends
    round to one f32 number whose last 12 bits are not all 0, no midpoint is between the ends.
    """
    low, high = (end.astype(np.float32).view(np.uint32) for end in (value - error, value + error))
    open_ones: NDArray[np.bool_] = (error > 0) & ((low != high) | (low & 0xFFF == 0))
    if open_ones.any():
        ends = value[open_ones] - error[open_ones], value[open_ones] + error[open_ones]
        differ = [np.not_equal(*(round_to(end, fmt) for end in ends)) for fmt in FORMATS.values() if fmt is not F64]
        differ.append(np.not_equal(*map(np.signbit, ends)))
        open_ones[open_ones] = np.any(differ, axis=0)
    return open_ones
