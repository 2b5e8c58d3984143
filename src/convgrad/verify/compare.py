"""An array against the exact answer: the largest error as a share of the proved bound, element by element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.formats import F64, Format, round_to
from convgrad.spec.layouts import from_canonical
from convgrad.spec.oracle import Answer
from convgrad.spec.order import error_bound, gamma
from convgrad.spec.problem import Problem

F64Array = NDArray[np.float64]


@dataclass(frozen=True)
class Verdict:
    """The outcome of a comparison; ``share`` is the largest error over its bound, ``worst`` its place in the result."""

    elements: int
    equal: int
    beyond: int
    share: float
    worst: tuple[int, ...]
    got: float
    expected: float
    bound: float

    @property
    def ok(self) -> bool:
        """Whether every element lies within its bound."""
        return self.beyond == 0

    def __str__(self) -> str:
        """Return the verdict as one line."""
        if self.elements == 0:
            return "ok: nothing to compare"
        head = "ok" if self.ok else f"WRONG: {self.beyond} of {self.elements} elements beyond the bound"
        tail = "" if self.share == 0 else (
            f"; worst element {self.worst}: got {self.got:.9g}, expected {self.expected:.9g}, bound {self.bound:.3g}"
        )  # fmt: skip
        return f"{head}: {self.equal} of {self.elements} equal, largest error {self.share:.3g} of the bound{tail}"


def compare(got: NDArray[Any], answer: Answer, problem: Problem, height: int) -> Verdict:
    """Compare a canonical result, computed with sums of ``height``, with the exact answer.

    A result may be any value between the rounded ends of [exact - bound, exact + bound]. The bound counts the
    roundings of the sum, of the oracle's own float64 sum, and of the output.
    """
    bound = _sum_bound(answer, problem, height)
    return _judge(got, answer.value, bound, problem, answer.rounded(problem))


def compare_recorded(
    got: NDArray[Any], recorded: NDArray[Any], answer: Answer, problem: Problem, height: int
) -> Verdict:
    """Compare with a recorded result, exact but for its rounding; ``answer`` only gives the magnitudes."""
    expected = recorded.astype(np.float64)
    slack = _rounding(np.abs(expected), problem.output_format)
    return _judge(got, expected, _sum_bound(answer, problem, height) + slack, problem, recorded)


def _sum_bound(answer: Answer, problem: Problem, height: int) -> F64Array:
    """Return the bound before output rounding, the oracle's own error included; infinite where a sum may overflow."""
    accumulator = problem.operand_format.accumulator
    own = gamma(int(answer.terms.max(initial=0)) + 2, F64.unit) * answer.magnitude
    bound = error_bound(height, answer.terms, answer.magnitude, accumulator) + own
    return np.where(answer.magnitude + bound > accumulator.largest, np.inf, bound)


def _rounding(values: F64Array, fmt: Format) -> F64Array:
    """Return the most that rounding numbers up to ``values`` in size can change them."""
    rounding: F64Array = np.maximum(values * fmt.unit, fmt.tiny / 2)
    return rounding


def _judge(got: NDArray[Any], expected: F64Array, bound: F64Array, problem: Problem, rounded: NDArray[Any]) -> Verdict:
    fmt = problem.output_format
    if got.size == 0:
        return Verdict(0, 0, 0, 0.0, (), 0.0, 0.0, 0.0)
    with np.errstate(all="ignore"):
        actual, target = got.astype(np.float64), rounded.astype(np.float64)
        same = (actual == target) | (np.isnan(actual) & np.isnan(target))
        # What non-finite operands reach must match; elsewhere anything between the rounded ends may come.
        finite = np.isfinite(expected)
        between = (round_to(expected - bound, fmt) <= actual) & (actual <= round_to(expected + bound, fmt))
        within = same | (finite & (between | np.isinf(bound)))
        total = bound + _rounding(np.abs(expected) + bound, fmt)
        share = np.nan_to_num(np.abs(actual - expected) / total, nan=0.0)
        share = np.where(within, np.where(finite, np.minimum(share, 1.0), 0.0), np.maximum(share, np.nextafter(1, 2)))
    worst = np.unravel_index(int(np.argmax(share)), share.shape)
    return Verdict(
        elements=got.size,
        equal=int(np.count_nonzero(same)),
        beyond=int(np.count_nonzero(~within)),
        share=float(share[worst]),
        worst=from_canonical([int(i) for i in worst], problem.layouts[-1]),
        got=float(actual[worst]),
        expected=float(expected[worst]),
        bound=float(total[worst]),
    )
