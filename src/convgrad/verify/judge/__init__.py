"""The statistical half of a verdict: whether errors inside the bound are those of the declared arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from convgrad.spec.problem import Problem
from convgrad.verify.declared import Declared
from convgrad.verify.reference import Reference
from convgrad.verify.verdict import Defect, Evidence


@dataclass(frozen=True)
class Judgement:
    """What the statistics say: alarms, defects named by them, why nothing can be said, figures, detection limits."""

    evidence: tuple[Evidence, ...] = ()
    found: tuple[Defect, ...] = ()
    reason: str = ""
    statistics: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)


def judge(
    got: NDArray[Any], reference: Reference, problem: Problem, operands: Sequence[NDArray[Any]], declared: Declared
) -> Judgement:
    """Return the judgement on a canonical result, of ``problem.output_format``, that lies inside its bound."""
    return Judgement()
