"""The table of replaced operators: the formula of each, the order of its sums, and the error of its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import torch

Tensor = Any  # torch.Tensor, which type checkers find only if PyTorch is installed
Function = Callable[..., Any]
Defined = TypeVar("Defined", bound=Function)
LOW = frozenset((torch.bfloat16, torch.float16))
SUMMED = LOW | {torch.float32}  # types with a specified order of sums
ELEMENTWISE = SUMMED | {torch.float64}  # f64 is admitted where nothing is summed


@dataclass(frozen=True)
class Row:
    """Operators of ATen that convgrad computes by one definition.

    ``names`` are overloads such as "lerp.Scalar"; their in-place and ``out`` forms follow. ``formula`` has the
    operations in their order. ``order`` is the order of the sums, and ``bound`` the largest error of an element, where
    u = 2^-24. ``passed_on`` returns whether ATen computes a call, because it is then one IEEE operation per element.
    """

    names: tuple[str, ...]
    formula: str
    order: str
    bound: str
    function: Function
    types: frozenset[Any]
    passed_on: Function | None


ROWS: list[Row] = []
NO_SUM, BY_CHANNEL, ROW_MAJOR, OF_OPERATOR, SEQUENTIAL = (
    "no sum",
    "order of BiasAddBackward over images and positions",
    "chains of 256 in row-major order, 16-ary tree",
    "order of the convolution operator",
    "one after another",
)


def row(
    *names: str,
    formula: str,
    bound: str,
    order: str = NO_SUM,
    types: frozenset[Any] = SUMMED,
    passed_on: Function | None = None,
) -> Callable[[Defined], Defined]:
    """Add a function to the table as the definition of operators of ATen. It takes their arguments."""

    def add(function: Defined) -> Defined:
        ROWS.append(Row(names, formula, order, bound, function, types, passed_on))
        return function

    return add


@cache
def overloads_of(name: str) -> dict[str, str]:
    """Return the overloads with the definition of ``name``, and how each stores: "new", "in place" or "out".

    >>> sorted(overloads_of("lerp.Scalar").items())
    [('lerp.Scalar', 'new'), ('lerp.Scalar_out', 'out'), ('lerp_.Scalar', 'in place')]
    """
    packet, _, overload = name.partition(".")
    wanted = _arguments(getattr(getattr(torch.ops.aten, packet), overload or "default"))
    named = {}
    for other in (packet, f"{packet}_"):
        operators = getattr(torch.ops.aten, other, None)
        for one in operators.overloads() if operators is not None else ():
            operator = getattr(operators, one)
            if _arguments(operator) == wanted:
                stores = "out" if _has_out(operator) else "in place" if other != packet else "new"
                named[other if one == "default" else f"{other}.{one}"] = stores
    return named


def _arguments(operator: Any) -> list[tuple[str, str]]:
    """Return names and types of an operator's arguments, without those that only receive results."""
    return [(one.name, str(one.type)) for one in operator._schema.arguments if not one.is_out]


def _has_out(operator: Any) -> bool:
    return any(one.is_out for one in operator._schema.arguments)


def common_type(*tensors: Tensor) -> tuple[Any, tuple[Tensor, ...]]:
    """Return the type of an elementwise result, and the tensors in the type of the arithmetic.

    bf16 and f16 are computed in f32.
    """
    result = tensors[0].dtype
    for other in tensors[1:]:
        first = torch.empty((1,), dtype=result) if other.dim() == 0 or other is not tensors[1] else tensors[0]
        result = torch.result_type(first, other)
    inner = torch.float32 if result in LOW else result
    return result, tuple([one.to(inner) for one in tensors])


def stored(operation: Function, x: Any, y: Any, to: Any, out: Tensor | None) -> Tensor:
    """Return ``operation(x, y)`` in the type ``to``; write it to ``out`` at once if ``out`` has that type."""
    if out is None or out.dtype != x.dtype or out.dtype != to:
        return operation(x, y).to(to)
    return operation(x, y, out=out)
