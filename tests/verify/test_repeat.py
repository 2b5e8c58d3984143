"""Repeated calls: any difference in bits or verdicts is an outcome of its own, and every distinct result is judged."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad.verify import Defect, Verdict, check
from convgrad.verify.isolate import HUNG
from convgrad.verify.repeat import HELD, verdict_on_calls
from tests.support.verify_helpers import LINES, Run, call, here, junit, said_by_the_command, values  # noqa: F401 - fixtures


@pytest.fixture(name="functions")
def functions_beside(here: None, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: F811
    """The module of functions to judge, which count no call yet."""
    module = importlib.import_module("foreign_functions")
    monkeypatch.setattr(module, "_calls", [])
    return module


ONES = np.ones(4, np.float32)
CRASH = Verdict(outcome="wrong", reason="it crashed", found=(Defect("crashed"),))
HANG = Verdict(outcome="wrong", reason="it did not return", found=(Defect(HUNG),))


def bits(number: int) -> np.ndarray:
    return np.array([number] * 4, np.uint32).view(np.float32)


def accepted(answers: Sequence[Any]) -> list[Verdict]:
    return [answer if isinstance(answer, Verdict) else Verdict() for answer in answers]


# Answers of calls, and the reason, which is empty if they are alike
ANSWERS: dict[str, tuple[list[Any], str]] = {
    "alike": ([ONES, ONES.copy(), ONES[::-1]], ""),
    "one element": ([ONES, ONES, np.array([1, 1, 2, 1], np.float32)], "call 3 of 3 differs from call 1 in 1 of 4"),
    "the sign of a zero": ([0 * ONES, -0.0 * ONES], "call 2 of 2 differs from call 1 in 4 of 4 elements"),
    "NaN and NaN": ([bits(0x7FC00000), bits(0x7FC00000)], ""),
    "other NaNs": ([bits(0x7FC00000), bits(0x7FC00001)], "call 2 of 2 differs from call 1 in 4 of 4 elements"),
    "another type": ([ONES, ONES.astype(np.float16)], "call 2 of 2 has another type or shape than call 1"),
    "another shape": ([ONES, ONES[None]], "call 2 of 2 has another type or shape than call 1"),
    "a crash": ([ONES, CRASH, ONES], "call 2 of 3 has another verdict than call 1"),
    "a first crash": ([CRASH, ONES], "call 2 of 2 has another verdict than call 1"),
    "crashes alone": ([CRASH, Verdict(outcome="wrong", reason="again", found=CRASH.found)], ""),
    "not served once": ([ONES, Verdict(outcome="not served")], "call 2 of 2 has another verdict than call 1"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_answers_that_differ(case: str) -> None:
    answers, reason = ANSWERS[case]
    calls: Iterator[Any] = iter(answers)
    verdict = verdict_on_calls(lambda: next(calls), len(answers), accepted)
    assert (verdict.outcome == "not repeatable", verdict.reason.startswith(reason)) == (bool(reason), True)
    assert (len(verdict.calls) > 1) == bool(reason)
    assert next(calls, None) is None


def test_every_distinct_result_is_judged_and_the_worst_shown() -> None:
    numbers = count()
    seen: list[float] = []

    def judge(answers: Sequence[Any]) -> list[Verdict]:
        assert len(answers) <= HELD
        seen.extend(float(answer[0]) for answer in answers)
        return [Verdict(outcome="wrong" if answer[0] == 30 else "ok", where=f"{answer[0]}") for answer in answers]

    verdict = verdict_on_calls(lambda: ONES * (next(numbers) // 2), 80, judge)
    assert seen == [float(n) for n in range(40)]
    assert (verdict.outcome, verdict.where) == ("not repeatable", "30.0")
    assert verdict.calls[1].startswith("call 3 and 1 equal call: ok")
    assert verdict.calls[-1] == "32 more distinct results"


def test_no_call_is_made_after_one_that_does_not_return() -> None:
    calls: Iterator[Any] = iter([ONES, HANG, ONES])
    verdict = verdict_on_calls(lambda: next(calls), 3, accepted)
    assert verdict.outcome == "not repeatable"
    assert len(list(calls)) == 1


SRC, WEIGHTS = np.ones((1, 3, 1), np.float32), np.ones((1, 1, 1), np.float32)


@pytest.mark.parametrize("wrong", range(3))
def test_functions_that_return_the_same_memory_again(wrong: int) -> None:
    numbers, out = count(), np.empty_like(SRC)

    def function(*_: object, **__: object) -> Any:
        return np.multiply(SRC, np.float32(2 if next(numbers) == wrong else 1), out=out)

    verdict = check("Convolution", function, SRC, WEIGHTS, repeat=3)
    assert (verdict.outcome, verdict.beyond) == ("not repeatable", 3)
    assert next(line for line in verdict.calls if "WRONG" in line).startswith(f"call {wrong + 1}")
    assert "in 3 of 3 elements" in verdict.reason


def test_check_calls_a_function_again(functions: Any) -> None:
    verdict = check("Convolution", functions.forgets, SRC, WEIGHTS, repeat=5)
    assert (verdict.outcome, verdict.beyond, len(verdict.calls)) == ("not repeatable", 1, 2)
    assert str(verdict).startswith(
        "NOT REPEATABLE: call 4 of 5 differs from call 1 in 1 of 3 elements\n  result    call 1"
    )
    assert check("Convolution", convgrad.run, SRC, WEIGHTS, repeat=3) == check("Convolution", SRC, SRC, WEIGHTS)


@pytest.mark.parametrize("repeat", [0, -1, 1.5, True, None, "2", 2])
def test_what_cannot_be_repeated(repeat: Any) -> None:
    """An array is no function, so that 2 is wrong too."""
    with pytest.raises(
        convgrad.InvalidAttributeError, match="repeat must be a positive integer, and 1 if the result is"
    ):
        check("Convolution", SRC, SRC, WEIGHTS, repeat=repeat)


def test_a_run_of_cases(said: Run, functions: Any) -> None:
    """Call 4 is wrong in the first case, and call 6 raises an error in the second."""
    words = "cases.txt", "--only", "*BWD_WB*", *call("forgets"), "--repeat", 4, "--junit", "report.xml"
    code, out, _ = said(*words)
    assert (code, "2 cases: 2 not repeatable" in out) == (4, True)
    assert "call 4 of 4 differs from call 1 in 1 of 108 elements" in out
    assert "call 2 of 4 has another verdict than call 1" in out
    assert out.count("--repeat 4") == 2
    assert junit("report.xml") == {"tests": 2, "failures": 2, "errors": 0, "skipped": 0}
    code, out, _ = said(*words, "--resume")
    assert (code, "2 cases: 2 not repeatable" in out) == (4, True)
    assert said(*words[:-3], 5, *words[-2:], "--resume")[0] == 2  # another command
    code, out, _ = said("cases.txt", *call("forgets"), "--repeat", 12, "--json")
    assert (code, values(out)[-1]["summary"]) == (4, {"not repeatable": 5})
    assert len(values(out)[0]["calls"]) == 3


def test_a_wrong_case_counts_before_one_that_differs(said: Run, functions: Any) -> None:
    Path("mine.py").write_text(
        "import foreign_functions\n"
        "def f(operator, *a, **k):\n"
        "    if operator == 'Convolution':\n"
        "        return 9 + foreign_functions.right(operator, *a, **k)\n"
        "    return foreign_functions.forgets(operator, *a, **k)\n"
    )
    code, out, _ = said("cases.txt", "--call", "mine:f", "--repeat", 4)
    assert (code, "1 wrong" in out, "not repeatable" in out) == (1, True, True)


def test_our_own_engine_is_repeatable_and_files_are_not_repeated(said: Run) -> None:
    assert said(LINES[1], "--repeat", 3)[0] == 0
    for others in (("--got", "."), ("--export", "out"), ("--print-tolerance",), ("--element", "0,0,0")):
        code, _, err = said(LINES[1], "--repeat", 3, *others)
        assert (code, f"{others[0]} and --repeat exclude each other" in err) == (2, True)
    assert said(LINES[1], "--repeat", 0)[0] == 2
