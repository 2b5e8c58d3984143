"""The certified reference: per output element what a verdict has to know of the exact sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.formats import F64, FORMATS, Format, round_to, store
from convgrad.spec import oracle
from convgrad.spec.activation import activate
from convgrad.spec.bound import gamma
from convgrad.spec.problem import Problem, canonical_shape
from convgrad.verify.gather import pieces
from convgrad.verify.granule import NUMBERS, granules, lowest_bits
from convgrad.verify.sums import Sums, two_sum
from convgrad.verify.terms import terms_of
from convgrad.verify.wide import exact_sum, to_odd

Array = NDArray[Any]
F64Array = NDArray[np.float64]
Progress = Callable[[float], None]

F64_TERMS = 1 << 16  # so many in all are added exactly, one by one, of f64 operands
_LOWEST = -1074  # of the granules of float64
_SLACK = 1 + 2.0**-40  # what computing a bound in float64 can lose


@dataclass(frozen=True, eq=False)
class Reference:
    """Canonical arrays, one entry per output element; bias and old value are part of the sums.

    Where the problem has an activation, ``value`` is that of S, and all else is of the sums before.
    ``value`` is the exact sum S in float64, ``error`` a rigorous bound on what that misses. ``magnitude`` is sum |x||y|
    (A, or slightly more), ``squares`` sum (xy)^2 (Q; good to 1 %), ``terms`` the number of products n, ``nonzero`` of
    those that are not 0. ``integral``: all operands are integers, so that sums of magnitude below 2^p are exact in p
    bits in any order.

    Of operands other than f64, ``value`` rounded to f32 or to fewer bits is S correctly rounded.
    """

    value: F64Array
    error: F64Array
    magnitude: F64Array
    squares: F64Array
    terms: NDArray[np.int64]
    nonzero: NDArray[np.int64]
    integral: bool

    def rounded(self, fmt: Format) -> Array:
        """Return the exact sums correctly rounded to a format; an exact zero is +0."""
        return store(self.value + 0.0, fmt)


@dataclass(frozen=True, eq=False)
class Facts:
    """What is known of all terms of a problem: a part of its output is certified by them as the whole is.

    ``granule`` has the exponents e of ``granules``; ``integral``: all operands are integers; ``finite``: all operands
    are finite; ``few``: the terms of f64 operands are so few that all are added exactly.
    """

    granule: NDArray[np.int32]
    integral: bool
    finite: bool
    few: bool

    def of_images(self, images: slice) -> Facts:
        """Return the same for some images of the output."""
        return self if len(self.granule) == 1 else replace(self, granule=self.granule[images])


def facts_of(problem: Problem, operands: Sequence[Array], old: Array | None = None) -> Facts:
    """Return the facts of a problem on canonical operands."""
    given = [*operands] if old is None else [*operands, old]
    few = False
    if problem.operand_format is F64:
        shape = canonical_shape(problem.geometry, problem.output)
        few = int(oracle.count_terms(problem, shape).sum()) <= F64_TERMS
    integral = all(_all(_is_integral, array) for array in given)
    return Facts(granules(problem, operands), integral, all(_all(np.isfinite, array) for array in given), few)


def _is_integral(values: Array) -> NDArray[np.bool_]:
    there = np.isfinite(values)
    whole: NDArray[np.bool_] = (values == np.rint(values)) | ~there
    return whole


def _all(holds: Callable[[Array], Array], array: Array) -> bool:
    """Return whether something holds of all numbers of an array; some of a large one are looked at at a time."""
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
    """Return the reference of a problem on canonical operands; ``old`` is what an accumulating problem adds to.

    Sums in float64 have a bound on their error. Where it does not decide to what an element rounds, in f32, bf16 and
    f16, its terms are added exactly. NaN and infinities reach the elements whose terms they are in, and count as 0
    in all else. Of f64 operands a value is the sum correctly rounded where there are few terms in all. ``facts`` are
    those of a larger problem, of which this one is a part.
    """
    if problem.accumulate and old is None:
        raise ValueError("an accumulating problem needs the old value it adds to")
    known = facts_of(problem, operands, old) if facts is None else facts
    finite, before = [_finite(a) for a in operands], None if old is None else _finite(old)
    with np.errstate(all="ignore"):
        result = _in_float64(problem, finite, before, progress, known)
        spoiled = np.zeros(result.value.shape, np.bool_)
        if not known.finite:
            answer = oracle.evaluate(problem, operands, old).value
            spoiled = ~np.isfinite(answer)
            result.value[spoiled], result.error[spoiled] = answer[spoiled], 0.0
        if problem.operand_format is not F64:
            open_ones = _undecided(result.value, result.error) & ~spoiled
        else:
            open_ones = (result.error > 0) & ~spoiled & known.few
        for index in zip(*(axis.tolist() for axis in np.nonzero(open_ones)), strict=True):
            nearest, rest = exact_sum(terms_of(problem, finite, index, before))
            narrow = problem.operand_format is not F64
            result.value[index] = value = to_odd(nearest, rest) if narrow else nearest
            result.error[index] = np.spacing(np.abs(value)) if rest else 0.0
        return _activated(result, problem)


def _activated(sums: Reference, problem: Problem) -> Reference:
    """Return the reference after the problem's activation, which moves no two sums further apart; 0 has no error."""
    if not problem.activation:
        return sums
    error = np.where(sums.value + sums.error <= 0, 0.0, sums.error)
    return replace(sums, value=activate(sums.value, problem), error=error)


def _finite(array: Array) -> Array:
    """Return the array itself, or one with 0 in place of NaN and infinities."""
    array = np.asarray(array)
    finite = np.isfinite(array)
    return array if finite.all() else np.where(finite, array, array.dtype.type(0))


def _in_float64(
    problem: Problem, operands: Sequence[Array], old: Array | None, progress: Progress, facts: Facts
) -> Reference:
    """Return the reference as float64 sums tell it, on finite operands."""
    shape = canonical_shape(problem.geometry, problem.output)
    value, error, magnitude, squares = (np.zeros(shape) for _ in range(4))
    terms = oracle.count_terms(problem, shape)
    given = dict(zip(problem.operands, operands, strict=True))
    counted = any(not np.all(array) for tensor, array in given.items() if tensor != "bias")
    nonzero = np.zeros(shape, np.int64) if counted else terms
    bias = given["bias"].reshape(-1, *[1] * (len(shape) - 2)) if "bias" in given else None
    entering = [np.broadcast_to(array, shape) for array in (bias, old) if array is not None]
    granule = np.broadcast_to(facts.granule, shape)
    if old is not None:
        granule = np.minimum(granule, lowest_bits(old))
    done = 0
    for piece in pieces(problem, operands):
        sums, at = Sums(piece.shape, counted), piece.index
        for x, y, where in piece.met:
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
    sums: Sums, value: F64Array, size: F64Array, terms: Array, underflow: F64Array | float, granule: Array
) -> tuple[F64Array, F64Array]:
    """Return bounds on the error of sums and on their magnitudes, of which ``size`` is what float64 says.

    A term goes through at most ``chunk`` roundings before its chunk is added, and through fewer where an element has
    fewer terms: zeros stand for the others. What chunks, bias and old value miss is added in float64, and so is the
    last of it. Sums of few bits have no error.
    """
    upper = size * (1 + 2 * gamma(sums.chunk + sums.adds + 3, F64.unit)) + underflow
    missing = gamma(np.minimum(terms, sums.chunk), F64.unit) + 2 * (F64.unit * (sums.joins + 2)) ** 2
    error = (missing * upper + F64.unit * np.abs(value) + underflow) * _SLACK
    error[~np.isfinite(value)] = np.inf  # sums of f64 may overflow
    exact = (upper <= np.ldexp(1.0, granule + F64.significand_bits)) & (granule >= _LOWEST) & np.isfinite(upper)
    return np.where(exact, 0.0, error), np.where(exact, size, upper)


def _undecided(value: F64Array, error: F64Array) -> NDArray[np.bool_]:
    """Return where value - error and value + error round to different numbers of a format other than f64.

    What separates the numbers of a format narrower than f32 are numbers of f32 whose last 12 bits are 0: where both
    ends round to one number of f32, and it is no such one, neither lies between them.
    """
    low, high = (end.astype(np.float32).view(np.uint32) for end in (value - error, value + error))
    open_ones: NDArray[np.bool_] = (error > 0) & ((low != high) | (low & 0xFFF == 0))
    if open_ones.any():
        ends = value[open_ones] - error[open_ones], value[open_ones] + error[open_ones]
        differ = [np.not_equal(*(round_to(end, fmt) for end in ends)) for fmt in FORMATS.values() if fmt is not F64]
        differ.append(np.not_equal(*map(np.signbit, ends)))
        open_ones[open_ones] = np.any(differ, axis=0)
    return open_ones
