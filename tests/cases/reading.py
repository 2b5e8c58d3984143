"""What tests of cases share: one case of a source, and a case's call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from convgrad import cases
from convgrad.cases.case import Case
from convgrad.functional.call import problem_from_shapes


def one(source: str | Path) -> Case:
    (case,) = cases.read(source)
    return case


def inputs(case: Case, operands: tuple[np.ndarray, ...]) -> list[Any]:
    """Return the inputs of a case's call: arrays, and shapes in their place."""
    op, _ = problem_from_shapes(case.operator, case.shapes, case.attributes, case.operand_format, case.output_format)
    left = iter(operands)
    return [shape if port.is_shape else next(left) for port, shape in zip(op.operands, case.shapes, strict=False)]
