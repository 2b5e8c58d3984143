"""What a statistic finds: its figures, and its alarms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from convgrad.verify.verdict import Defect, Evidence


@dataclass(frozen=True)
class Finding:
    """Figures by name, what is beyond its threshold, and names where the alarm itself tells them."""

    figures: Mapping[str, float] = field(default_factory=dict)
    evidence: tuple[Evidence, ...] = ()
    named: tuple[Defect, ...] = ()


# The level of one result's verdict, which thresholds that know a tail are made for.
LEVEL = 1e-5
