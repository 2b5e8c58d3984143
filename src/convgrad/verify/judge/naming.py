"""The name of the defect that explains all alarms of a result; alarms that follow from this defect get no name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from convgrad.array_types import F64Array
from convgrad.formats import round_to
from convgrad.verify.judge.common import common_change
from convgrad.verify.judge.errors import Errors
from convgrad.verify.judge.model import last_place
from convgrad.verify.judge.names import ACCUMULATED, LAST_TRUNCATED
from convgrad.verify.judge.partials import RUNNING, TENS, UNSURE, far_above, rounded_partials
from convgrad.verify.judge.statistics.finding import Finding
from convgrad.verify.verdict import Defect

MAXIMUM = 0.9  # minimum share of truncated values, among results where truncation and rounding to nearest differ
LEANINGS = tuple(f"{name} of the errors" for name in ("bias", "slope", "mean"))


def named(errors: Errors, findings: Sequence[Finding]) -> tuple[Defect, ...]:
    """Return the defect that the alarms show: in operands, the result, single elements, a group, or partial sums."""
    named = tuple(defect for finding in findings for defect in finding.named)
    rms = any(evidence.statistic.startswith("R,") for finding in findings for evidence in finding.evidence)
    partials = rounded_partials(errors) if rms else None
    if named and partials and named[0].name.startswith(ACCUMULATED.format("")):
        return _of_either(named[0], partials, far_above(errors))
    if named:
        return named[:1]
    if last_truncated(errors):
        return (Defect(LAST_TRUNCATED, "towards 0 where rounding to nearest is away from 0"),)
    leaning = any(evidence.statistic in LEANINGS for finding in findings for evidence in finding.evidence)
    if leaning and (common := common_change(errors)):
        return common
    return (partials,) if partials and (not leaning or partials.detail == RUNNING) else ()


def _of_either(named: Defect, partials: Defect, above: bool) -> tuple[Defect, ...]:
    """Return the defect of results on a grid: sums in the grid's format, rounded partial sums, or none if unclear."""
    if named.name == ACCUMULATED.format(partials.name.rpartition(" ")[2]):
        return (partials,)
    if not above or TENS in partials.detail:
        return (named,)
    return () if partials.detail.endswith(UNSURE) else (partials,)


def last_truncated(errors: Errors) -> bool:
    """Return whether results equal the truncated exact values where truncation and rounding to nearest differ."""
    value, got = errors.value[errors.alone], errors.got[errors.alone]
    nearest = round_to(value, errors.fmt)
    truncated = np.where(np.abs(nearest) > np.abs(value), _towards_zero(nearest, errors), nearest)
    differ = truncated != nearest
    return bool(differ.sum() >= 8 and (got == truncated)[differ].mean() > MAXIMUM)


def _towards_zero(values: F64Array, errors: Errors) -> F64Array:
    inward: F64Array = values - np.sign(values) * last_place(np.nextafter(values, 0), errors.fmt)
    return inward
