"""The finding of a statistic: its figures, alarms and named defects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from convgrad.verify.verdict import Defect, Evidence


@dataclass(frozen=True)
class Finding:
    """The finding of a statistic: figures by name, alarms, and defects that these alarms alone can name."""

    figures: Mapping[str, float] = field(default_factory=dict)
    evidence: tuple[Evidence, ...] = ()
    named: tuple[Defect, ...] = ()


# The probability of a false alarm per result, for statistics whose tail is known.
LEVEL = 1e-5
