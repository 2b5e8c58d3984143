"""A case judged: its operands, made up where it brings none, and the verdict on what a function makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from convgrad.functional.call import prepare, problem_from_shapes
from convgrad.verify import Verdict, check
from convgrad.verify.cases.case import Case
from convgrad.verify.check import verdict_on
from convgrad.verify.declared import declared
from convgrad.verify.fill import Kind, fill
from convgrad.verify.foreign import answer, arguments

SEED = 0


def inputs_of(case: Case, kind: Kind) -> tuple[Any, ...]:
    """Return what ``convgrad.run`` takes: arrays, and shape operands as tuples."""
    op, problem = problem_from_shapes(case.operator, case.shapes, case.attributes, case.operand_format)
    ports = op.operands[: len(case.shapes)]
    if case.arrays is not None:
        made = iter(case.arrays().operands)
    else:
        shapes = [shape for port, shape in zip(ports, case.shapes, strict=True) if not port.is_shape]
        made = iter(fill(problem, shapes, kind, SEED))
    return tuple(shape if port.is_shape else next(made) for port, shape in zip(ports, case.shapes, strict=True))


def judged(case: Case, function: Callable[..., Any], kind: Kind) -> Verdict:
    """Return the verdict on a function's answer to the call as it stands."""
    return check(case.operator, function, *inputs_of(case, kind), **case.attributes)


def judged_in_full(case: Case, function: Callable[..., Any], kind: Kind) -> Verdict:
    """Return the verdict on the answer of a function that has every attribute filled in, as foreign ones have."""
    prepared = prepare(case.operator, inputs_of(case, kind), case.attributes)
    how = declared(case.operator, prepared.problem.operand_format)
    return verdict_on(answer(function, case.operator, *arguments(prepared)), prepared, how)
