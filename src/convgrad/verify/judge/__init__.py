"""The statistical half of a verdict: whether errors inside the bound are those of the declared arithmetic.

A result inside its bound may still be that of another arithmetic: the bound of any order of 25,000 terms is wide
enough for partial sums in bf16. How large errors are, whether they lean, whether they follow what rounded operands
would cause, is told by ``statistics``, each with a threshold that right results of any order stay below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.spec.problem import Problem
from convgrad.verify.declared import SUM, Declared
from convgrad.verify.judge.errors import GRAIN, Errors, errors_of, grain
from convgrad.verify.judge.limits import detection_limits
from convgrad.verify.judge.naming import named
from convgrad.verify.judge.statistics import SIZES, STATISTICS
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
    got: NDArray[Any],
    reference: Reference,
    problem: Problem,
    operands: Sequence[NDArray[Any]],
    declared: Declared,
    old: NDArray[Any] | None = None,
    origin: Sequence[int] = (),
) -> Judgement:
    """Return the judgement on a canonical result, of ``problem.output_format``, that lies inside its bound.

    Undecided, with a reason, are sums so long for their format that additions lose whole terms, and results of a
    declared algorithm other than sums of products whose errors are larger than those of a sum in any order. The same
    call has the same judgement: the sampled elements are always the same. ``origin`` is where a result that is a part
    of a larger one begins there: places are named as they are in the larger one.
    """
    with np.errstate(all="ignore"):
        errors = errors_of(got, reference, problem, operands, declared, old, origin)
        if errors is None:
            return Judgement()
        grains = grain(errors)
        fine, reason = errors.judged & (grains <= GRAIN), ""
        if not np.array_equal(fine, errors.judged):
            lost = int(np.count_nonzero(grains > GRAIN))
            reason = f"at {lost} elements the sum is so large for {errors.accumulator} that additions lose whole terms"
            if not fine.any():
                return Judgement(reason=reason)
            errors = errors.only(fine)
        if declared.algorithm != SUM:
            return _other(errors, declared.algorithm, reason)
        findings = [statistic(errors) for statistic in STATISTICS]
        evidence = tuple(one for finding in findings for one in finding.evidence)
        figures = {name: value for finding in findings for name, value in finding.figures.items()}
        figures["kappa"] = errors.kappa
        found = named(errors, findings) if evidence else ()
        return Judgement(evidence, found, reason, figures, detection_limits(errors))


def _other(errors: Errors, algorithm: str, reason: str) -> Judgement:
    """Return the judgement on an algorithm without a model: ok where a sum's errors could be as large."""
    findings = [statistic(errors) for statistic in SIZES]
    figures = {name: value for finding in findings for name, value in finding.figures.items()}
    larger = [one for finding in findings for one in finding.evidence]
    if larger:
        one = larger[0]
        size = f"{one.statistic} is {one.value:.3g}, where sums in any order stay below {one.threshold:.3g}"
        reason = f"there is no model of the errors of {algorithm}, and {size}"
    return Judgement((), (), reason, figures)
