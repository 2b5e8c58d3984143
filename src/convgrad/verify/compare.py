"""Comparison of an array with the exact result: each element's error as a share of the proved bound."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from convgrad.array_types import Array, F64Array
from convgrad.formats import F64, Format, round_to, store
from convgrad.spec.activation import activate
from convgrad.spec.bound import error_bound, gamma
from convgrad.spec.exact_result import Answer
from convgrad.spec.layouts import from_canonical
from convgrad.spec.order import last_additions
from convgrad.spec.problem import Problem
from convgrad.verify.reference import Reference
from convgrad.verify.verdict import OK, UNDECIDED, WRONG, Verdict


def compare(
    got: Array,
    answer: Answer | Reference,
    problem: Problem,
    height: int | NDArray[np.int64],
    bound: F64Array | None = None,
) -> Verdict:
    """Return the verdict on a canonical result by the bound; ``height`` is the rounding depth, per element or for all.

    By default, the bound is for sums in the accumulator format of the operands; ``bound`` replaces it.

    A result may be any value between the activated and rounded ends of [exact - bound, exact + bound]. The bound
    includes the rounding errors of the sum, and those of the exact result in float64. The bound is 0 if operands are
    integers that add exactly in any order.

    | the exact value  | right results                                                            |
    |------------------|--------------------------------------------------------------------------|
    | finite           | from one rounded end to the other; infinity if an end rounds to infinity |
    | infinite         | the same infinity                                                        |
    | NaN              | NaN, which also encodes infinities in a format without them              |
    | of a sum that may overflow | undecided for every result                                     |
    """
    if got.size == 0:
        return Verdict(mask=np.zeros(problem.output_shape, np.bool_))
    fmt, value, active = problem.output_format, answer.value, activate(answer.value, problem)
    rounded = store(active + 0.0, fmt)
    if bound is None:
        bound = sum_bound(answer, problem.operand_format.accumulator, height, last_additions(problem))
    with np.errstate(all="ignore"):
        actual, target = got.astype(np.float64), rounded.astype(np.float64)
        undecided = np.isinf(bound)
        same = (actual == target) | (np.isnan(actual) & np.isnan(target))
        low, high = (round_to(activate(end, problem), fmt) for end in (value - bound, value + bound))
        between = (low <= actual) & (actual <= high)  # False for NaN
        if fmt.spent:
            between |= np.isnan(actual) & (np.isinf(low) | np.isinf(high))
        within = undecided | same | between
        total = bound + _rounding(np.abs(active) + bound, fmt)
        share = np.nan_to_num(np.abs(actual - target) / total, nan=np.inf, posinf=np.inf)
        share = np.where(within, np.minimum(share, 1.0), np.maximum(share, np.nextafter(1, 2)))
        share[undecided | same] = 0.0
        blind = ~undecided & np.isfinite(active) & (active != 0) & (round_to(np.abs(active) - bound, fmt) <= 0)
    worst = np.unravel_index(int(np.argmax(share)), share.shape)
    beyond = ~within
    return Verdict(
        elements=got.size,
        equal=int(np.count_nonzero(_bits(got) == _bits(rounded))),
        beyond=int(np.count_nonzero(beyond)),
        undecided=int(np.count_nonzero(undecided)),
        blind=int(np.count_nonzero(blind)),
        nonfinite=int(np.count_nonzero(~np.isfinite(target) & ~undecided)),
        share=float(share[worst]),
        worst=from_canonical([int(i) for i in worst], problem.layouts[-1]),
        got=float(actual[worst]),
        expected=float(target[worst]),
        bound=float(total[worst]),
        outcome=WRONG if beyond.any() else UNDECIDED if undecided.any() else OK,
        mask=beyond.transpose(np.argsort(problem.output_order)),
    )


def sum_bound(
    answer: Answer | Reference, accumulator: Format, height: int | NDArray[np.int64], added: int = 0
) -> F64Array:
    """Return the error bound of sums before the output's rounding; infinite if a sum may overflow.

    The bound includes the error of the exact result in float64. ``added`` is the number of bias and old value.
    """
    with np.errstate(all="ignore"):
        if isinstance(answer, Reference):
            own = answer.error
        else:
            own = gamma(int(answer.terms.max(initial=0)) + 2, F64.unit) * answer.magnitude
        bound = error_bound(height, answer.terms, answer.magnitude, accumulator, added) + own
        exact = answer.integral & (answer.magnitude <= 2.0**accumulator.significand_bits)
        bound = np.where(exact, 0.0, bound)
        return np.where(answer.magnitude + bound <= accumulator.largest, bound, np.inf)


def _rounding(values: F64Array, fmt: Format) -> F64Array:
    """Return the largest error of rounding numbers of magnitude at most ``values`` to a format."""
    rounding: F64Array = np.maximum(values * fmt.unit, fmt.tiny / 2)
    return rounding


def _bits(array: Array) -> Array:
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")
