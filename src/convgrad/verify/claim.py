"""Claims that an array is the result of a call; the array is judged part by part, with one verdict on the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from convgrad.array_types import Array
from convgrad.formats import round_to
from convgrad.spec.exact_result import count_terms
from convgrad.spec.layouts import from_canonical
from convgrad.spec.problem import Problem, canonical_shape
from convgrad.verify.bound import bounded_by
from convgrad.verify.declared import SUM, Declared, DeclaredResult
from convgrad.verify.diagnose import Diagnosis, diagnose
from convgrad.verify.diagnose.place import place
from convgrad.verify.diagnose.running import running_sums
from convgrad.verify.judge import Judgement, judge
from convgrad.verify.judge.names import ONE_GROUP, SINGLE
from convgrad.verify.judge.statistics.size import LARGEST, largest_threshold
from convgrad.verify.pardon import computed_in_f32, pardoned
from convgrad.verify.parts import OutputPart, SampleWish, said_of
from convgrad.verify.reference import Reference, certify
from convgrad.verify.verdict import DEGRADED, OK, UNDECIDED, WRONG, Defect, Evidence, Verdict

PLACED = (SINGLE, ONE_GROUP.partition("{}")[0])  # beginnings of the names of defects that affect one place
REPEATED = 1 << 10  # maximum number of elements of an undecided result whose running sums are repeated
DIAGNOSED = 1 << 22  # maximum number of elements of a wrong result that is diagnosed as a whole


@dataclass
class Claim:
    """The claim that the canonical array ``got`` is a problem's result, computed as declared and added to ``old``.

    Call ``add`` with the parts of the output, or of a ``sample``, in order; ``verdict`` then returns the verdict. An
    element has the same bound in its part as in the whole result. The verdict adds the counts of all parts, and has the
    worst element of all parts. Statistics are computed for each part, as if the part were a whole result.

    ``scattered`` is true for the part of a sample whose groups are blocks of channels that are not neighbours.
    """

    got: Array
    problem: Problem
    operands: Sequence[Array]
    how: Declared
    old: Array | None = None
    _parts: int = 0
    _bounded: Verdict = field(default_factory=Verdict)
    _mask: NDArray[np.bool_] | None = None
    sample: SampleWish | None = None
    scattered: bool = False
    _judged: list[Judgement] = field(default_factory=list)
    _whole: Verdict | None = None
    _first_wrong: Verdict | None = None

    @property
    def is_one_part(self) -> bool:
        """Whether an element's bound needs all outputs of a Winograd tile, so that the output cannot be split."""
        return self.how.filtering is not None

    @property
    def result(self) -> DeclaredResult:
        """The claimed result."""
        return DeclaredResult(self.got, self.problem, self.operands, self.how, self.old)

    def whole(self, reference: Reference) -> Verdict:
        """Return the verdict on all elements, judged as one part."""
        problem, how = self.problem, self.how
        bounded = bounded_by(self.got, reference, problem, how, self.operands)
        if bounded.outcome == WRONG and bounded.mask is not None:
            beyond = bounded.mask.transpose(problem.output_order)
            if problem.activation:  # no name is certain, because the activation hides sums
                return replace(bounded, where=place(beyond, reference.terms, problem))
            diagnosis = self._diagnosed(beyond, reference)
            defects = diagnosis.defects or computed_in_f32(self.result, reference)
            defects = defects or judge(self.result, reference).defects
            where = "; ".join([diagnosis.where, *pardoned(self.result, reference)])
            return replace(bounded, where=where, found=defects)
        bounded = _explained(bounded, how)
        if not self._is_to_be_judged(bounded):
            return bounded
        verdict = _with_judgement(bounded, judge(self.result, reference))
        if verdict.outcome == UNDECIDED and self._is_running_sum():
            return replace(verdict, outcome=OK, reason="", coarse=0)
        if verdict.outcome != DEGRADED or verdict.found:
            return verdict
        return replace(verdict, found=self._named(reference))

    def _diagnosed(self, beyond: NDArray[np.bool_], reference: Reference) -> Diagnosis:
        return diagnose(self.result, beyond, reference, self.scattered)

    def _is_running_sum(self) -> bool:
        """Return whether all elements have the bits of one running sum in the declared format, if it is narrow."""
        keep, own = self.how.accumulation, self.problem.operand_format.accumulator
        if self.how.algorithm != SUM or self.got.size > REPEATED or keep.significand_bits >= own.significand_bits:
            return False
        fmt, got = self.problem.output_format, self.got.astype(np.float64).ravel()
        sums = running_sums(self.problem, self.operands, self.old, np.arange(got.size), keep)
        return any(np.array_equal(round_to(total, fmt), got) for _, total in sums)

    def _named(self, reference: Reference) -> tuple[Defect, ...]:
        """Return the defects recognised in a result inside its bound.

        The bound of long sums is so wide that zeros or a transposed result may be inside.
        """
        unequal = self.got != reference.rounded(self.problem.output_format)
        return self._diagnosed(unequal, reference).defects if unequal.any() else ()

    def _is_to_be_judged(self, bounded: Verdict) -> bool:
        """Return whether statistics are computed: not for Winograd tiles or activations, which have only a bound."""
        bound_alone = self.problem.algorithm or self.problem.activation
        return bounded.outcome == OK and bounded.elements > 0 and not bound_alone

    def add(self, part: OutputPart, reference: Reference) -> None:
        """Judge the next part; ``reference`` is the part's reference."""
        if part.elements == self.got.size:
            self._whole = self.whole(reference)
            return
        problem = replace(part.problem, output_format=self.problem.output_format)
        got = self.got[part.index]
        bounded = bounded_by(got, reference, problem, self.how, part.operands)
        self._parts += 1
        if bounded.mask is not None and bounded.beyond:
            if self._mask is None:
                self._mask = np.zeros(self.got.shape, np.bool_)
            self._mask[part.index] = bounded.mask.transpose(problem.output_order)
        canonical = [bounded.worst[axis] for axis in problem.output_order]
        worst = from_canonical(part.whole_index(canonical), problem.layouts[-1])
        self._bounded = self._merged(self._bounded, replace(bounded, worst=worst, mask=None))
        is_named = self.sample is not None or self.got.size > DIAGNOSED
        claim = Claim(got, problem, part.operands, self.how, part.old, scattered=part.scattered)
        if self._is_to_be_judged(self._bounded):
            judged = judge(claim.result, reference, part.origin)
            if (
                is_named
                and judged.evidence
                and not judged.defects
                and not any(judgement.evidence for judgement in self._judged)
            ):
                judged = replace(judged, defects=tuple(Defect(defect.name) for defect in claim._named(reference)))
            self._judged.append(_without_places(judged) if part.scattered else judged)
        if is_named and bounded.outcome == WRONG and self._first_wrong is None:
            self._first_wrong = self._of_part(claim, part, reference)

    def _of_part(self, claim: Claim, part: OutputPart, reference: Reference) -> Verdict:
        """Return the verdict on a wrong part; names have no details, because the part has its own indices."""
        verdict = claim.whole(reference)
        origin = from_canonical(part.origin, self.problem.layouts[-1])
        among = "its source channels numbered by block" if part.scattered else f"indices relative to {origin}"
        defects = tuple(Defect(defect.name) for defect in verdict.found)
        return replace(verdict, where=f"in the first wrong part, {among}: {verdict.where}", found=defects)

    def _merged(self, verdict: Verdict, other: Verdict) -> Verdict:
        """Return one verdict that combines the verdicts of the bound on two sets of elements."""
        if not verdict.elements:
            return other
        first = max(
            verdict,
            other,
            key=lambda candidate: (candidate.share, [-candidate.worst[axis] for axis in self.problem.output_order]),
        )
        outcomes = (verdict.outcome, other.outcome)
        return replace(
            first,
            elements=verdict.elements + other.elements,
            equal=verdict.equal + other.equal,
            beyond=verdict.beyond + other.beyond,
            undecided=verdict.undecided + other.undecided,
            blind=verdict.blind + other.blind,
            nonfinite=verdict.nonfinite + other.nonfinite,
            outcome=next(outcome for outcome in (WRONG, UNDECIDED, OK) if outcome in outcomes),
        )

    def verdict(self) -> Verdict:
        """Return the verdict on the whole result, after ``add`` was called with all parts."""
        if self._whole is not None:
            return self._whole
        if self.sample is not None:
            return replace(self._of_parts(), sample=said_of(self.problem, self.sample, self._bounded.elements))
        return self._of_parts()

    def _of_parts(self) -> Verdict:
        mask = np.zeros(self.got.shape, np.bool_) if self._mask is None else self._mask
        bounded = replace(self._bounded, mask=mask.transpose(np.argsort(self.problem.output_order)))
        if not self._is_to_be_judged(bounded):
            verdict = _explained(bounded, self.how)
        else:
            verdict = _with_judgement(bounded, _of_all(self._judged, bounded.elements))
        if self.sample is not None:
            first = self._first_wrong
            return replace(verdict, where=first.where, found=first.found) if first else verdict
        if verdict.outcome in (WRONG, DEGRADED) and self.got.size <= DIAGNOSED:
            whole = self.whole(certify(self.problem, self.operands, self.old))
            return verdict if whole.outcome == OK else whole  # the whole may hide the errors of one part
        if verdict.outcome == WRONG:
            terms = count_terms(self.problem, canonical_shape(self.problem.geometry, self.problem.output))
            where = place(mask, terms, self.problem)
            defects = self._first_wrong.found if self._first_wrong else ()
            return replace(verdict, where=f"{where}; causes are looked for in the first wrong part", found=defects)
        return verdict


def _explained(bounded: Verdict, how: Declared) -> Verdict:
    """Return the verdict of the bound, with a reason added if no element has a bound."""
    if bounded.undecided == bounded.elements > 0 and how.algorithm != SUM:
        unknown = f"no bound is known of the errors of {how.algorithm} in this problem"
        return replace(bounded, reason=f"{unknown}; declare {SUM} to compare the errors with those of a sum")
    return bounded


def _with_judgement(bounded: Verdict, judged: Judgement) -> Verdict:
    """Return the verdict on a result inside its bound, with the outcome, evidence and figures of the statistics."""
    return replace(
        bounded,
        outcome=DEGRADED if judged.evidence else UNDECIDED if judged.reason else OK,
        reason=judged.reason,
        evidence=judged.evidence,
        found=judged.defects,
        statistics=judged.statistics,
        limits=judged.limits,
        coarse=judged.coarse,
    )


def _of_all(parts: Sequence[Judgement], elements: int) -> Judgement:
    """Return the judgement on all parts: the strongest alarm of each statistic and the largest figures.

    The largest error is compared with the threshold for all ``elements``. The thresholds of other statistics hardly
    depend on the number of parts. A defect is named if all parts that name a defect name the same one.
    """
    alarms: dict[str, Evidence] = {}
    defects: list[Defect] = []
    threshold = largest_threshold(elements)
    for judgement in parts:
        kept = [
            evidence for evidence in judgement.evidence if evidence.statistic != LARGEST or evidence.value > threshold
        ]
        for evidence in kept:
            before = alarms.setdefault(evidence.statistic, evidence)
            alarms[evidence.statistic] = max(before, evidence, key=_strength)
        if kept:
            defects += [
                defect for defect in judgement.defects if len(kept) == len(judgement.evidence) or defect.name != SINGLE
            ]
    reasons = [judgement.reason for judgement in parts if judgement.reason]
    others = f"; so it is in {len(reasons) - 1} of {len(parts)} parts more" if len(reasons) > 1 else ""
    return Judgement(
        tuple(alarms.values()),
        _agreed(defects),
        f"{reasons[0]}{others}" if reasons else "",
        _largest([judgement.statistics for judgement in parts]),
        _largest([judgement.limits for judgement in parts]),
        sum(judgement.coarse for judgement in parts),
    )


def _without_places(judgement: Judgement) -> Judgement:
    """Return a judgement without its places, which are those of a sample with reordered channels."""
    evidence = tuple(replace(alarm, where="") for alarm in judgement.evidence)
    return replace(judgement, evidence=evidence, defects=tuple(Defect(defect.name) for defect in judgement.defects))


def _strength(evidence: Evidence) -> float:
    return abs(evidence.value) / max(evidence.threshold, 1e-300)


def _agreed(defects: Sequence[Defect]) -> tuple[Defect, ...]:
    """Return the defect that all parts name, or none if they name different defects or different places."""
    names, details = {defect.name for defect in defects}, {defect.detail for defect in defects}
    alone = len(names) == 1 and (len(details) == 1 or not next(iter(names)).startswith(PLACED))
    return tuple(defects[:1]) if alone else ()


def _largest(figures: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return for each figure the value of largest magnitude of all parts, by the figure's name."""
    largest: dict[str, float] = {}
    for name, value in (pair for figures_of_part in figures for pair in figures_of_part.items()):
        largest[name] = max(largest.get(name, value), value, key=abs)
    return largest
