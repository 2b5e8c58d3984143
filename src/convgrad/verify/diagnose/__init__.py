"""What a wrong result tells of its defect: where it lies, and its name where it is recognised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.spec.problem import Problem
from convgrad.verify.reference import Reference
from convgrad.verify.verdict import Defect

Array = NDArray[Any]


@dataclass(frozen=True)
class Diagnosis:
    """Where a result is wrong, in words, and the defects recognised."""

    where: str = ""
    found: tuple[Defect, ...] = ()


def diagnose(
    got: Array,
    beyond: NDArray[np.bool_],
    reference: Reference,
    problem: Problem,
    operands: Sequence[Array],
    old: Array | None = None,
) -> Diagnosis:
    """Return the diagnosis of a canonical result whose elements ``beyond`` are wrong."""
    return Diagnosis()
