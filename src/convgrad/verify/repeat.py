"""Repeated calls of a function: its results must have the same bits, and every distinct one is judged."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from convgrad.array_types import Array
from convgrad.verify.copies import same_elements
from convgrad.verify.isolate import HUNG
from convgrad.verify.verdict import DEGRADED, NOT_REPEATABLE, NOT_SERVED, OK, UNDECIDED, WRONG, Verdict

Answer = Array | Verdict
Judge = Callable[[Sequence[Answer]], Sequence[Verdict]]

HELD = 16  # distinct results that are kept to be judged together
LISTED = 8  # distinct results whose verdicts are listed
WORST = (WRONG, DEGRADED, UNDECIDED, NOT_SERVED, OK)


@dataclass
class _Distinct:
    """A distinct answer: the number of the first call that gave it, the number of these calls, and its verdict."""

    first: int
    calls: int = 1
    verdict: Verdict | None = None


def verdict_on_calls(call: Callable[[], Answer], times: int, judge: Judge) -> Verdict:
    """Return the verdict on ``times`` calls with equal operands; *not repeatable* if their answers differ.

    Answers are equal if they are arrays with the same bits, or if they are verdicts with the same outcome and defects,
    such as crashes. After a call that does not return, no other is made. ``judge`` returns a verdict per answer.
    """
    if times == 1:
        return judge([call()])[0]
    distinct: dict[object, _Distinct] = {}
    waiting: list[tuple[_Distinct, Answer]] = []
    first, differs, number = None, "", 0

    def judge_waiting() -> None:
        for (distinct_answer, _), verdict in zip(waiting, judge([answer for _, answer in waiting]), strict=True):
            distinct_answer.verdict = verdict
        waiting.clear()

    while number < times:
        number += 1
        answer = call()
        key = _key(answer)
        if key not in distinct and isinstance(answer, np.ndarray):
            answer = answer.copy()  # the next call may return the same memory
        first = answer if first is None else first
        if key in distinct:
            distinct[key].calls += 1
        else:
            differs = differs or (f"call {number} of {times} {_difference(answer, first)}" if distinct else "")
            distinct[key] = _Distinct(number)
            waiting.append((distinct[key], answer))
        if len(waiting) == HELD:
            judge_waiting()
        if isinstance(answer, Verdict) and HUNG in answer.defects:
            break
    judge_waiting()
    return _of_all([*distinct.values()], differs)


def _key(answer: Answer) -> object:
    if isinstance(answer, Verdict):
        return answer.outcome, answer.defects
    bits = hashlib.sha256(np.ascontiguousarray(answer).tobytes()).digest()
    return answer.dtype.str, answer.dtype.name, answer.shape, bits


def _difference(answer: Answer, first: Answer) -> str:
    """Return the difference between an answer and that of the first call, in words."""
    if isinstance(answer, Verdict) or isinstance(first, Verdict):
        return "has another verdict than call 1"
    if answer.dtype != first.dtype or answer.shape != first.shape:
        return "has another type or shape than call 1"
    return f"differs from call 1 in {int(np.count_nonzero(~same_elements(answer, first)))} of {answer.size} elements"


def _of_all(distinct: Sequence[_Distinct], differs: str) -> Verdict:
    """Return the only verdict, or the worst one as *not repeatable*, with a line per distinct answer."""
    verdicts = [answer.verdict for answer in distinct if answer.verdict is not None]
    worst = min(verdicts, key=lambda verdict: WORST.index(verdict.outcome))
    if not differs:
        return worst
    lines = [f"{_calls(answer)}: {answer.verdict.brief}" for answer in distinct[:LISTED] if answer.verdict is not None]
    lines += [f"{len(distinct) - LISTED} more distinct results"] * (len(distinct) > LISTED)
    return replace(worst, outcome=NOT_REPEATABLE, reason=differs, calls=tuple(lines))


def _calls(answer: _Distinct) -> str:
    others = answer.calls - 1
    return f"call {answer.first}" + f" and {others} equal call{'s' * (others != 1)}" * (others > 0)
