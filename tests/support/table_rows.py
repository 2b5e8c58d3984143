"""The rows of the operator table as tests meet them: by id, with a legal call of each, searched without chance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from convgrad.spec.activation import ACTIVATED
from convgrad.spec.operators import OPERATORS, Operator, find
from tests.support.helpers import FUNCTIONS, operands_of, random_case

searching = settings(
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

OPTIONS = {"dtype": None, "out": None, "accumulate": False, "threads": None}


def options_of(op: Operator) -> dict[str, Any]:
    """Return what an operator's function takes beside attributes, with defaults."""
    options = OPTIONS | ({} if op.solves_for in ("bias", "bias_add") else {"max_error": None})
    return options | ({"activation": None} if op.name in ACTIVATED else {})


ROW_IDS = [f"{op.name}-{op.operands[1].name}" if len(op.operands) > 1 else op.name for op in OPERATORS]
rows = pytest.mark.parametrize("op", OPERATORS, ids=ROW_IDS)
functions = pytest.mark.parametrize("name", FUNCTIONS)


def row(name: str) -> Operator:
    return find(name)


def attributes_of(op: Operator) -> dict[str, Any]:
    """Return the keyword attributes of an operator's function with their defaults, by the table."""
    operands = {port.name for port in op.operands}
    result: dict[str, Any] = {}
    for attribute in op.attributes:
        if attribute.name in operands:
            continue  # a shape: the third operand
        default = attribute.default
        if attribute.per_axis:
            pads = None if op.calculates_pads else 0
            default = {"strides": 1, "dilations": 1, "pads_begin": pads, "pads_end": pads}.get(attribute.means)
        result[attribute.name] = default
    return result


def legal(op: Operator, seed: int = 0) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return operands and attributes of a legal f32 call of a row."""
    rng = np.random.default_rng([seed, OPERATORS.index(op)])
    case = random_case(rng, op)
    while case.format.name != "f32" or case.dtype:
        case = random_case(rng, op)
    return operands_of(case, "integers", seed), case.attributes


def replaced(operands: tuple[Any, ...], changes: dict[int, Any]) -> tuple[Any, ...]:
    """Put other operands in; one behind the last is appended."""
    result = list(operands)
    for place, value in changes.items():
        if place < len(result):
            result[place] = value
        elif place == len(result):
            result.append(value)
    return tuple(result)
