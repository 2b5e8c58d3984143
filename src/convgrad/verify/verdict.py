"""Verdicts: the outcome, its evidence, the names of defects, and the figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from convgrad.words import counted

Outcome = Literal["ok", "degraded", "wrong", "undecided", "not served", "not repeatable"]
OK: Outcome = "ok"
DEGRADED: Outcome = "degraded"
WRONG: Outcome = "wrong"
UNDECIDED: Outcome = "undecided"
NOT_SERVED: Outcome = "not served"
NOT_REPEATABLE: Outcome = "not repeatable"
LINE = 120  # characters of a verdict's first line


@dataclass(frozen=True)
class Evidence:
    """A statistic beyond its threshold, which is the reason for *degraded*.

    Args:
        statistic: The name of the statistic.
        value: Its value.
        threshold: The largest value of correct results.
        where: The affected place, if any. Default: "".
    """

    statistic: str
    value: float
    threshold: float
    where: str = ""


@dataclass(frozen=True)
class Defect:
    """A recognised defect.

    Args:
        name: The name of the defect.
        detail: A phrase with the figures that support it. Default: "".
    """

    name: str
    detail: str = ""


@dataclass(frozen=True)
class Verdict:
    """The verdict on a result.

    ==============  =================================================================================================
    outcome         means
    ==============  =================================================================================================
    not repeatable  calls with equal operands gave different bits or verdicts: see ``calls``, with a line per verdict
    not served      the function raised NotImplementedError or returned NotImplemented: it has no such operator
    wrong           an element is beyond the rigorous bound of the declared arithmetic, or there is no valid result
    degraded        every element is inside its bound, but errors do not fit the declared arithmetic: see ``evidence``
    undecided       the result cannot be judged: see ``reason``
    ok              none of the above
    ==============  =================================================================================================

    If calls differ, everything but the outcome and ``reason`` is of the worst of their results.

    Args:
        elements: The number of elements. Default: 0.
        equal: The number of elements that have the bits of the rounded exact value. Default: 0.
        beyond: The number of elements beyond the bound, which ``mask`` marks. Default: 0.
        undecided: The number of elements without a bound, because their sums may overflow. Default: 0.
        blind: The number of undetectable zeros: elements so small compared with their bound that a 0 would pass.
            Default: 0.
        coarse: The number of elements of which only the bound was checked, because in the declared format, additions
            lose whole terms. Default: 0.
        nonfinite: The number of elements whose exact value is, or rounds to, an infinity or NaN. Default: 0.
        share: The largest ratio of an element's error to its bound. The ratio is infinite if the element is finite but
            its exact value is not, or the reverse. Default: 0.0.
        worst: The index of the element with this ratio. Default: ().
        got: The value of this element. Default: 0.0.
        expected: The exact value of this element. Default: 0.0.
        bound: The bound on the error of this element. Default: 0.0.
        outcome: The outcome, one of the words of the table. Default: "ok".
        reason: The reason why there is no valid result, or why it cannot be judged. Default: "".
        where: The place of the element with the largest ratio, or of the wrong elements. Default: "".
        sample: Empty, or a text which states that some elements were checked, and what this may miss; all counts are
            then of these elements. Default: "".
        calls: A line per distinct verdict, if calls with equal operands differ. Default: ().
        evidence: The statistics beyond their thresholds. Default: ().
        found: The recognised defects. Default: ().
        statistics: Figures by name. Default: {}.
        limits: The smallest detectable defects by name. Default: {}.
        mask: The elements beyond the bound as an array of bools of the result's shape, in the caller's layout; None if
            there is no valid result. Default: None.
    """

    elements: int = 0
    equal: int = 0
    beyond: int = 0
    undecided: int = 0
    blind: int = 0
    coarse: int = 0
    nonfinite: int = 0
    share: float = 0.0
    worst: tuple[int, ...] = ()
    got: float = 0.0
    expected: float = 0.0
    bound: float = 0.0
    outcome: Outcome = OK
    reason: str = ""
    where: str = ""
    sample: str = ""
    calls: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    found: tuple[Defect, ...] = ()
    statistics: Mapping[str, float] = field(default_factory=dict, compare=False)
    limits: Mapping[str, float] = field(default_factory=dict, compare=False)
    mask: NDArray[np.bool_] | None = field(default=None, compare=False, repr=False)

    @property
    def ok(self) -> bool:
        """Whether the outcome is ok."""
        return self.outcome == OK

    @property
    def defects(self) -> tuple[str, ...]:
        """The names of the recognised defects."""
        return tuple(defect.name for defect in self.found)

    @property
    def brief(self) -> str:
        """The first line of the verdict: the outcome, and how many elements are equal."""
        if self.reason:
            return _shortened(f"{self._head}: {self.reason}")
        if self.elements == 0:
            return "ok: the result is empty, with nothing to compare but its shape"
        head = self._head
        if self.beyond:
            head = f"{head}: {self.beyond} of {self.elements} elements beyond the bound"
        elif self.undecided:
            head = f"{head}: {self.undecided} of {self.elements} elements have no bound"
        elif self.evidence:
            head = f"{head}: unlike the declared arithmetic"
        return f"{head}: {self.equal} of {self.elements} equal, largest error {self.share:.3g} of the bound"

    @property
    def details(self) -> tuple[str, ...]:
        """The other lines of the verdict, each with a label: causes, evidence, places and the worst element."""
        lines = [("in full", self.reason)] if self.reason and not self.brief.endswith(self.reason) else []
        lines += [("result", line) for line in self.calls]
        lines += [("cause", f"{defect.name}{f' ({defect.detail})' if defect.detail else ''}") for defect in self.found]
        if self.undecided and not self.beyond and not self.reason:
            lines.append(("reason", "their sums may overflow"))
        if self.evidence and not (self.beyond or self.undecided):
            lines.append(("evidence", f"all elements are inside the bound, but {self._alarms}"))
        if self.where:
            lines.append(("where", self.where))
        if self.share:
            numbers = f"got {self.got:.9g}, expected {self.expected:.9g}, bound {self.bound:.3g}"
            lines.append(("worst", f"element {self.worst}: {numbers}"))
        if self.nonfinite:
            lines.append(("note", f"{counted(self.nonfinite, 'exact value')} not finite"))
        if self.coarse and not self.beyond:
            only = "so only the bound was checked"
            lines.append(("note", f"at {counted(self.coarse, 'element')}, additions lose whole terms, {only}"))
        if self.blind:
            lines.append(("note", f"a 0 would pass at {counted(self.blind, 'element')}"))
        if self.sample:
            lines.append(("sample", self.sample))
        return tuple(f"{label:8}  {text}" for label, text in lines)

    @property
    def _head(self) -> str:
        return self.outcome if self.ok else self.outcome.upper()

    @property
    def _alarms(self) -> str:
        """The strongest evidence against the result, and the number of other statistics beyond their thresholds."""
        first, *others = sorted(
            self.evidence, key=lambda evidence: -abs(evidence.value) / max(evidence.threshold, 1e-300)
        )
        statistics = "statistic" if len(others) == 1 else "statistics"
        more = f", and {len(others)} {statistics} more" if others else ""
        place = f" at {first.where}" if first.where else ""
        where_right = f"where right results stay within {first.threshold:.3g}"
        return f"{first.statistic}{place} is {first.value:.3g} {where_right}{more}"

    def __str__(self) -> str:
        """Return the first line and the details, one per line."""
        return "\n  ".join((self.brief, *self.details))


def _shortened(line: str) -> str:
    """Return a line of at most LINE characters; a longer one ends in "..."."""
    return line if len(line) <= LINE else f"{line[: LINE - 3]}..."
