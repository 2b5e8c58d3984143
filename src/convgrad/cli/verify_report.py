"""The output of ``convgrad verify``: a line or a JSON object per case, the counts at the end, and a JUnit XML file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from convgrad.cli.exits import DIFFERS, DONE, WRONG
from convgrad.cli.report import judged as verdict_values
from convgrad.spec.problem import Problem
from convgrad.verify.cases.case import Case
from convgrad.verify.cases.place import TYPED
from convgrad.verify.cost import cost_s, measured_blas_s
from convgrad.verify.parts import SampleWish
from convgrad.verify.verdict import DEGRADED, NOT_REPEATABLE, NOT_SERVED, OK, UNDECIDED, Verdict
from convgrad.verify.verdict import WRONG as BEYOND
from convgrad.words import counted, printable

FAILED = "not judged"
ANNOUNCED_S = 5.0  # the time of a verdict is printed first if it is longer
COUNTED = (OK, DEGRADED, BEYOND, UNDECIDED, NOT_REPEATABLE, NOT_SERVED, FAILED)


@dataclass(frozen=True)
class Judged:
    """The outcome of a case: a verdict, or an ``error`` with its exit code.

    ``code`` is 0 if convgrad does not support the case. ``reproduce`` is the command line that judges only this case.
    """

    case: Case
    candidate: str = ""
    operands: str = ""
    verdict: Verdict | None = None
    error: str = ""
    code: int = DONE
    time_s: float = 0.0
    call_s: float = 0.0
    reproduce: str = ""
    hint: str = ""  # about the operands
    element: ElementTree.Element | None = None  # of an earlier report, which has the verdict

    @property
    def outcome(self) -> str:
        """The verdict's outcome; without a verdict, whether the case was not judged or is not served."""
        if self.element is not None:
            return next((child.get("type", OK) for child in self.element), OK)
        if self.verdict is not None:
            return self.verdict.outcome
        return FAILED if self.code else NOT_SERVED

    @property
    def is_sampled(self) -> bool:
        """Whether a sample of the elements was judged."""
        if self.element is not None:
            return "\nsample  " in "".join(self.element.itertext())
        return self.verdict is not None and bool(self.verdict.sample)

    @property
    def text(self) -> tuple[str, ...]:
        """The lines of the verdict, or the error as one line."""
        if self.verdict is None:
            return (f"{self.outcome.upper()}: {self.error}",)
        return self.verdict.brief, *self.verdict.details

    def lines(self) -> str:
        """Return the outcome as lines of text."""
        case = self.case
        first, *details = self.text
        lines = [f"{case.name}  {first}"]
        if self.outcome == OK and self.is_sampled:
            lines.append(f"  {details[-1]}")
        if self.outcome not in (OK, NOT_SERVED):
            is_located = case.place in self.error or case.place.startswith(TYPED)  # the user can see a typed case
            lines += [f"  {detail}" for detail in details]
            lines += [f"  {'operands':8}  {self.hint}"] * bool(self.hint)
            lines += [f"  {case.place}"] * (not is_located)
            lines += [f"  {'case':8}  {case.why}"] * bool(case.why)
            lines += [f"  reproduce: {self.reproduce}"] * bool(self.reproduce)
        return "\n".join(printable(line, None) for line in lines)

    def values(self) -> dict[str, object]:
        """Return the outcome as values ready for JSON."""
        case = self.case
        about = {
            "case": case.name,
            "place": case.place,
            "operator": case.operator,
            "shapes": [list(shape) for shape in case.shapes],
            "attributes": dict(case.attributes),
            "types": [case.operand_format.name, case.output_format.name],
            "why": case.why,
            "judged": self.candidate,
            "operands": self.operands,
            "time_ms": round(1e3 * self.time_s, 3),
            "call_ms": round(1e3 * self.call_s, 3),
            "outcome": self.outcome,
        }
        if self.verdict is None:
            return about | {"ok": False, "error": self.error, "reproduce": self.reproduce}
        return about | verdict_values(self.verdict) | ({} if self.verdict.ok else {"reproduce": self.reproduce})


def counts(all_judged: Sequence[Judged]) -> Mapping[str, int]:
    """Return the number of cases by outcome, in the order of COUNTED, without outcomes that do not occur."""
    numbers = Counter(judged.outcome for judged in all_judged)
    return {outcome: numbers[outcome] for outcome in COUNTED if numbers[outcome]}


def in_words(outcomes: Mapping[str, int]) -> str:
    """Return the counts in words.

    >>> in_words({"ok": 998, "wrong": 1})
    '998 ok, 1 wrong'
    """
    return ", ".join(f"{number} {outcome}" for outcome, number in outcomes.items())


def estimate(case: Case, problem: Problem, sample: SampleWish | None) -> list[str]:
    """Return a line with the time that a verdict will take, and how to change it; no line for a short time."""
    if sample is None and cost_s(problem) < ANNOUNCED_S / 10:
        return []
    seconds, whole_s = (cost_s(problem, wish, measured_blas_s()) for wish in (sample, None))
    if sample is None and seconds < ANNOUNCED_S:
        return []
    more = f" on a sample of the elements, and about {_seconds(whole_s)} with --sample all" if sample else ""
    return [f"{case.name}: the verdict takes about {_seconds(seconds)}{more} (without the call of the function)"]


def _seconds(seconds: float) -> str:
    """Return an estimated time in words.

    >>> _seconds(7.2), _seconds(649.3)
    ('7 s', '11 min')
    """
    return f"{max(seconds, 1):.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def summary(all_judged: Sequence[Judged], cases: int, seconds: float, refused: int = 0, empty: int = 0) -> str:
    """Return the last line: the counts of all outcomes, of sources that could not be read and of files without a case.

    >>> summary([], 3, 0.25, refused=1, empty=12)
    'interrupted after 0 of 3 cases: nothing was judged, in 0.25 s; 1 refused; 12 files without a case'
    """
    words = in_words(counts(all_judged))
    head = f"{cases} case{'s' * (cases != 1)}" if len(all_judged) == cases else _interrupted(all_judged, cases)
    samples = sum(judged.is_sampled for judged in all_judged)
    head += f" ({samples} in a sample of the elements)" * bool(samples)
    unread = [f"{refused} refused"] * bool(refused) + [f"{counted(empty, 'file')} without a case"] * bool(empty)
    return "; ".join([f"{head}: {words or 'nothing was judged,'} in {seconds:.3g} s", *unread])


def exit_code(all_judged: Sequence[Judged], strict: bool = False, others: bool = False) -> int:
    """Return WRONG if a verdict is not ok, DIFFERS if calls differ, otherwise the exit code of the first error.

    Without such a verdict or error, return DONE, or WRONG if no case was judged; ``others`` is whether other cases were
    judged. Cases that are not served are not judged; if ``strict``, they count as not ok.
    """
    outcomes = [
        judged.outcome for judged in all_judged if judged.outcome != FAILED and (strict or judged.outcome != NOT_SERVED)
    ]
    bad = set(outcomes) - {OK}
    if bad:
        return DIFFERS if bad == {NOT_REPEATABLE} else WRONG
    return next((judged.code for judged in all_judged if judged.code), DONE if outcomes or others else WRONG)


def explains_exit(judged: Judged, before: Collection[str], strict: bool) -> bool:
    """Return whether a case is the first one that is not served, and ``strict``, so that the exit code is 1.

    ``before`` has the outcomes of the cases before it.
    """
    return strict and judged.outcome == NOT_SERVED and NOT_SERVED not in before


def junit(
    all_judged: Sequence[Judged],
    cases: int,
    seconds: float,
    refused: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> bytes:
    """Return a JUnit XML file with a test case for each outcome; a verdict that is not ok is a failure.

    ``properties`` describe the run, so that it can be resumed.
    Each reading error, and an interruption, is an additional test case with an error, because such a run is incomplete.
    """
    stopped = len(all_judged) < cases
    failures = sum(_TAGS.get(judged.outcome) == "failure" for judged in all_judged)
    numbers = {
        "tests": len(all_judged) + stopped + len(refused),
        "failures": failures,
        "errors": sum(judged.outcome == FAILED for judged in all_judged) + stopped + len(refused),
        "skipped": sum(judged.outcome == NOT_SERVED for judged in all_judged),
        "time": f"{seconds:.3f}",
    }
    attributes = {"name": "convgrad verify", **{name: str(number) for name, number in numbers.items()}}
    root = ElementTree.Element("testsuites", attributes)
    suite = ElementTree.SubElement(root, "testsuite", attributes)
    if properties:
        listed = ElementTree.SubElement(suite, "properties")
        for name, value in properties.items():
            ElementTree.SubElement(listed, "property", {"name": name, "value": _fit(value)})
    suite.extend(_element(judged) for judged in all_judged)
    for message in refused:
        unread = ElementTree.SubElement(suite, "testcase", {"name": "refused", "classname": "convgrad", "time": "0"})
        ElementTree.SubElement(unread, "error", {"type": "refused", "message": _fit(message)})
    if stopped:
        last = ElementTree.SubElement(suite, "testcase", {"name": "interrupted", "classname": "convgrad", "time": "0"})
        ElementTree.SubElement(last, "error", {"type": "interrupted", "message": _interrupted(all_judged, cases)})
    ElementTree.indent(root)
    return b'<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, "unicode").encode() + b"\n"


_FAILURES: Mapping[str, str] = dict.fromkeys((DEGRADED, BEYOND, UNDECIDED, NOT_REPEATABLE), "failure")
_TAGS: Mapping[str, str] = {**_FAILURES, NOT_SERVED: "skipped", FAILED: "error"}


def _element(judged: Judged) -> ElementTree.Element:
    """Return the XML element of an outcome; the verdict of an ok case becomes the output of the test."""
    if judged.element is not None:
        return judged.element
    named = {
        "name": judged.case.name,
        "classname": _fit(judged.case.operator) or "convgrad",
        "time": f"{judged.time_s:.6f}",
    }
    element = ElementTree.Element("testcase", named)
    if judged.outcome == OK:
        ElementTree.SubElement(element, "system-out").text = "\n".join(map(_fit, judged.text))
        return element
    about = {"type": judged.outcome, "message": _fit(judged.text[0])}
    said = ElementTree.SubElement(element, _TAGS[judged.outcome], about)
    again = [f"reproduce: {judged.reproduce}"] * bool(judged.reproduce)
    said.text = "\n".join(_fit(line) for line in (*judged.text, judged.case.place, *again))
    return element


def _interrupted(all_judged: Sequence[Judged], cases: int) -> str:
    return f"interrupted after {len(all_judged)} of {cases} cases"


def _fit(text: str) -> str:
    return printable(text, None)  # XML cannot represent most control characters
