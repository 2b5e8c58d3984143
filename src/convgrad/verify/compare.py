"""An array against the exact answer: the largest error as a share of the proved bound, element by element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.formats import F64, Format, round_to
from convgrad.spec.bound import error_bound, gamma
from convgrad.spec.layouts import from_canonical
from convgrad.spec.oracle import Answer
from convgrad.spec.problem import Problem

F64Array = NDArray[np.float64]


@dataclass(frozen=True)
class Verdict:
    """The outcome of a comparison; ``share`` is the largest error over its bound, ``worst`` its place in the result.

    ``equal`` counts equal bits. ``undecided`` elements have no bound, because their sums may overflow or are too long.
    ``blind`` counts elements so small beside their bound that a 0 would pass: the power of the comparison.
    ``nonfinite`` counts those whose exact value is, or rounds to, an infinity or NaN. ``share`` is infinite where a
    result is finite and must not be, or the reverse.
    """

    elements: int
    equal: int
    beyond: int
    undecided: int
    blind: int
    nonfinite: int
    share: float
    worst: tuple[int, ...]
    got: float
    expected: float
    bound: float

    @property
    def ok(self) -> bool:
        """Whether every element is proved to lie within its bound."""
        return self.beyond == 0 and self.undecided == 0

    @property
    def brief(self) -> str:
        """The verdict without the worst element."""
        if self.elements == 0:
            return "ok: the result is empty, with nothing to compare but its shape"
        head = "ok"
        if self.beyond:
            head = f"WRONG: {self.beyond} of {self.elements} elements beyond the bound"
        elif self.undecided:
            head = f"UNDECIDED: {self.undecided} of {self.elements} elements may overflow or have too long a sum"
        strange = f", {self.nonfinite} not finite" if self.nonfinite else ""
        return f"{head}: {self.equal} of {self.elements} equal{strange}, largest error {self.share:.3g} of the bound"

    def __str__(self) -> str:
        """Return the verdict as one line."""
        parts = [self.brief]
        if self.share:
            numbers = f"got {self.got:.9g}, expected {self.expected:.9g}, bound {self.bound:.3g}"
            parts.append(f"worst element {self.worst}: {numbers}")
        if self.blind:
            parts.append(f"a 0 would pass at {self.blind}")
        return "; ".join(parts)


def compare(got: NDArray[Any], answer: Answer, problem: Problem, height: int) -> Verdict:
    """Compare a canonical result, computed with sums of ``height``, with the exact answer.

    A result may be any value between the rounded ends of [exact - bound, exact + bound]. The bound counts the roundings
    of the sum and of the oracle's own float64 sum; it is 0 where integers add exactly in any order.

    | the exact value  | what is right                                                            |
    |------------------|--------------------------------------------------------------------------|
    | finite           | from one rounded end to the other; infinity where that end rounds to it  |
    | infinite         | the same infinity                                                        |
    | NaN              | NaN                                                                      |
    | of a sum that may overflow | undecided, whatever was got                                    |
    """
    if got.size == 0:
        return Verdict(0, 0, 0, 0, 0, 0, 0.0, (), 0.0, 0.0, 0.0)
    fmt, value, rounded = problem.output_format, answer.value, answer.rounded(problem)
    bound = _sum_bound(answer, problem, height)
    with np.errstate(all="ignore"):
        actual, target = got.astype(np.float64), rounded.astype(np.float64)
        undecided = np.isinf(bound)
        same = (actual == target) | (np.isnan(actual) & np.isnan(target))
        between = (round_to(value - bound, fmt) <= actual) & (actual <= round_to(value + bound, fmt))  # never for a NaN
        within = undecided | same | between
        total = bound + _rounding(np.abs(value) + bound, fmt)
        share = np.nan_to_num(np.abs(actual - target) / total, nan=np.inf, posinf=np.inf)
        share = np.where(within, np.minimum(share, 1.0), np.maximum(share, np.nextafter(1, 2)))
        share[undecided | same] = 0.0
        blind = ~undecided & np.isfinite(value) & (value != 0) & (round_to(np.abs(value) - bound, fmt) <= 0)
    worst = np.unravel_index(int(np.argmax(share)), share.shape)
    return Verdict(
        elements=got.size,
        equal=int(np.count_nonzero(_bits(got) == _bits(rounded))),
        beyond=int(np.count_nonzero(~within)),
        undecided=int(np.count_nonzero(undecided)),
        blind=int(np.count_nonzero(blind)),
        nonfinite=int(np.count_nonzero(~np.isfinite(target) & ~undecided)),
        share=float(share[worst]),
        worst=from_canonical([int(i) for i in worst], problem.layouts[-1]),
        got=float(actual[worst]),
        expected=float(target[worst]),
        bound=float(total[worst]),
    )


def _sum_bound(answer: Answer, problem: Problem, height: int) -> F64Array:
    """Return the bound before output rounding, the oracle's own error included; infinite where a sum may overflow."""
    accumulator = problem.operand_format.accumulator
    with np.errstate(all="ignore"):
        own = gamma(int(answer.terms.max(initial=0)) + 2, F64.unit) * answer.magnitude
        bound = error_bound(height, answer.terms, answer.magnitude, accumulator) + own
        exact = answer.integral & (answer.magnitude <= 2.0**accumulator.significand_bits)
        bound = np.where(exact, 0.0, bound)
        return np.where(answer.magnitude + bound <= accumulator.largest, bound, np.inf)


def _rounding(values: F64Array, fmt: Format) -> F64Array:
    """Return the most that rounding numbers up to ``values`` in size can change them."""
    rounding: F64Array = np.maximum(values * fmt.unit, fmt.tiny / 2)
    return rounding


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")
