"""The findings of a statistic: its figures and its alarms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from convgrad.verify.verdict import Defect, Evidence


@dataclass(frozen=True)
class Finding:
    """Figures by name, the statistics beyond their thresholds, and the defects that these alone name."""

    figures: Mapping[str, float] = field(default_factory=dict)
    evidence: tuple[Evidence, ...] = ()
    named: tuple[Defect, ...] = ()


# The level of one result's verdict, used by thresholds whose tail is known.
LEVEL = 1e-5
