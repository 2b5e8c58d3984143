"""The statistical half of a verdict: whether errors inside the bound are typical of the declared arithmetic.

A result inside its bound may still come from another arithmetic: the bound for 25,000 terms in any order is wide
enough for partial sums in bf16. ``statistics`` measure the size of the errors, their bias, and their correlation with
the effect of rounded operands. Right results of any order stay below the threshold of each statistic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from convgrad.spec.order import last_additions
from convgrad.verify.compare import sum_bound
from convgrad.verify.declared import SUM, DeclaredResult
from convgrad.verify.judge.errors import GRAIN, Errors, errors_of, grain
from convgrad.verify.judge.limits import detection_limits
from convgrad.verify.judge.naming import named
from convgrad.verify.judge.statistics import SIZES, STATISTICS
from convgrad.verify.reference import Reference
from convgrad.verify.verdict import Defect, Evidence

# Where additions lose whole terms, the model overestimates errors: those of right results stay below one deviation.
COARSE = 0.5  # largest share of the elements of which only the bound is checked
UNUSUAL = 2.0  # deviations above which such an element is undecided


@dataclass(frozen=True)
class Judgement:
    """The findings of the statistics: alarms, named defects, a reason if undecided, figures, and detection limits.

    ``coarse`` is the number of elements without statistics, because additions lose whole terms.
    """

    evidence: tuple[Evidence, ...] = ()
    defects: tuple[Defect, ...] = ()
    reason: str = ""
    statistics: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    coarse: int = 0


def judge(result: DeclaredResult, reference: Reference, origin: Sequence[int] = ()) -> Judgement:
    """Return the judgement on a result, in the output format of its problem, that is inside its bound.

    Two kinds of results are undecided, with a reason:

    - sums so long for their format that additions lose whole terms at more than half of the elements, or with unusually
      large errors. Elements that are as accurate as sums in the default format of the operands do not count;
    - results of an algorithm other than sums of products, with larger errors than a sum in any order can have.

    Equal calls return equal judgements, because the sampled elements are always the same. If a result is part of a
    larger one, ``origin`` is the index of its first element in the larger result. Places are named by indices of the
    larger result.
    """
    with np.errstate(all="ignore"):
        errors = errors_of(result, reference, origin)
        if errors is None:
            return Judgement()
        grains = grain(errors)
        fine, reason, lost = errors.judged & (grains <= GRAIN), "", 0
        if not np.array_equal(fine, errors.judged):
            coarse = (grains > GRAIN) & ~_accurate(errors, reference)
            large, lost = coarse & (np.abs(errors.z) > UNUSUAL), int(np.count_nonzero(coarse))
            if lost > COARSE * np.count_nonzero(errors.judged) or large.any():
                reason = f"at {lost} of {result.got.size} elements the sum is so large for {errors.accumulator}"
                reason = f"{reason} that additions lose whole terms"
            if large.any():
                reason = f"{reason}, and at {np.count_nonzero(large)} of them the error is unusually large"
            if not fine.any():
                return Judgement(reason=reason, coarse=lost)
            errors = errors.only(fine)
        if result.declared.algorithm != SUM:
            return _other(errors, result.declared.algorithm, reason)
        findings = [statistic(errors) for statistic in STATISTICS]
        evidence = tuple(evidence for finding in findings for evidence in finding.evidence)
        figures = {name: value for finding in findings for name, value in finding.figures.items()}
        figures["kappa"] = errors.kappa
        defects = named(errors, findings) if evidence else ()
        return Judgement(evidence, defects, reason, figures, detection_limits(errors), lost)


def _accurate(errors: Errors, reference: Reference) -> NDArray[np.bool_]:
    """Return a mask of the elements that are inside the bound of sums in the default format of the operands.

    A narrower format that is declared allows at least these errors.
    """
    own = errors.problem.operand_format.accumulator
    if own.significand_bits <= errors.accumulator.significand_bits:
        return np.zeros(errors.judged.shape, np.bool_)
    added = last_additions(errors.problem)
    bound = sum_bound(reference, own, reference.nonzero + added, added)
    inside: NDArray[np.bool_] = np.abs(errors.error) <= bound + errors.fmt.unit * (np.abs(errors.value) + bound)
    return inside


def _other(errors: Errors, algorithm: str, reason: str) -> Judgement:
    """Return the judgement on a result of an algorithm without an error model.

    The judgement is ok if a sum of products in some order could have errors as large, else undecided.
    """
    findings = [statistic(errors) for statistic in SIZES]
    figures = {name: value for finding in findings for name, value in finding.figures.items()}
    larger = [alarm for finding in findings for alarm in finding.evidence]
    if larger:
        alarm = larger[0]
        size = f"{alarm.statistic} is {alarm.value:.3g}, where sums in any order stay below {alarm.threshold:.3g}"
        reason = f"there is no model of the errors of {algorithm}, and {size}"
    return Judgement((), (), reason, figures)
