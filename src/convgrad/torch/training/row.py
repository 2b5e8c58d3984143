"""The table of replaced operators: the formula of each, the order of its sums, and the error of its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, reduce
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from convgrad.float_environment import in_default_environment

if TYPE_CHECKING:
    from torch._ops import OpOverload

Function = Callable[..., Any]
Defined = TypeVar("Defined", bound=Function)
LOW = frozenset((torch.bfloat16, torch.float16))
SUMMED = LOW | {torch.float32}  # types with a specified order of sums
ELEMENTWISE = SUMMED | {torch.float64}  # f64 is admitted where nothing is summed

PASS, PROMOTE, SERVE = "pass", "promote", "serve"  # integers and bools: to ATen, converted to floats, to the function


@dataclass(frozen=True)
class OperatorRow:
    """Operators of ATen that convgrad computes by one definition.

    ``names`` are overloads such as "lerp.Scalar"; their in-place and ``out`` forms follow. ``formula`` has the
    operations in their order. ``order`` is the order of the sums, and ``bound`` the largest error of an element, where
    u = 2^-24. ``passed_on`` returns whether ATen computes a call, because it is then one IEEE operation per element.
    ``integers`` is what happens to a call without floats: PASS, PROMOTE or SERVE. If a row ``corrects``, ATen
    computes the operator, and ``function`` changes its results in place. If it ``records``, ``function`` calls
    differentiable operators, which autograd records in place of this one.
    """

    names: tuple[str, ...]
    formula: str
    order: str
    bound: str
    function: Function
    types: frozenset[torch.dtype]
    passed_on: Function | None
    integers: str = PASS
    corrects: bool = False
    records: bool = False


class UnservedError(Exception):
    """A row does not compute a call. The message continues "OPERATOR ...", and ``cure`` says what to do.

    If ``cure`` is empty, the operator has a cure.
    """

    def __init__(self, reason: str, cure: str) -> None:
        super().__init__(reason)
        self.cure = cure


COMPLEX_CURE = "Use torch.view_as_real, and compute with real numbers"
TYPE_CURE = "Use tensors of f32"  # for tensors of a type that a row does not compute
ROWS: list[OperatorRow] = []
NO_SUM, SECTIONS, OF_OPERATOR, SEQUENTIAL = (
    "no sum",
    "f64 sections",
    "order of the convolution operator",
    "one after another",
)


def row(
    *names: str,
    formula: str,
    bound: str,
    order: str = NO_SUM,
    types: frozenset[torch.dtype] = SUMMED,
    passed_on: Function | None = None,
    integers: str = PASS,
) -> Callable[[Defined], Defined]:
    """Add a function to the table as the definition of operators of ATen. It takes their arguments."""

    def add(function: Defined) -> Defined:
        ROWS.append(OperatorRow(names, formula, order, bound, function, types, passed_on, integers))
        return function

    return add


def composite(
    *names: str,
    formula: str,
    order: str,
    bound: str,
    types: frozenset[torch.dtype] = SUMMED,
    integers: str = PASS,
) -> Callable[[Defined], Defined]:
    """Add a function to the table that computes operators by others, whose gradients autograd records.

    If the function has a parameter ``original``, it gets ATen's function.
    """

    def add(function: Defined) -> Defined:
        ROWS.append(OperatorRow(names, formula, order, bound, function, types, None, integers, records=True))
        return function

    return add


def positive_zeros(*names: str, formula: str) -> None:
    """Add operators whose results have the bits of ATen, but for the sign of a zero."""

    def correct(results: Tensor | tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
        for result in results if isinstance(results, tuple) else (results,):
            result.add_(0.0)  # -0 + 0 is 0
        return results

    ROWS.append(OperatorRow(names, formula, NO_SUM, "0", correct, ELEMENTWISE, None, corrects=True))


@cache
def overloads_of(name: str) -> dict[str, str]:
    """Return the overloads with the definition of ``name``, and how each stores: "new", "in place" or "out".

    >>> sorted(overloads_of("lerp.Scalar").items())
    [('lerp.Scalar', 'new'), ('lerp.Scalar_out', 'out'), ('lerp_.Scalar', 'in place')]
    """
    packet, wanted = name.partition(".")[0], _arguments(operator_of(name))
    named = {}
    for other in (packet, f"{packet}_"):
        operators = getattr(torch.ops.aten, other, None)
        for overload in operators.overloads() if operators is not None else ():
            operator = getattr(operators, overload)
            if _arguments(operator) == wanted:
                stores = "out" if _has_out(operator) else "in place" if other != packet else "new"
                named[other if overload == "default" else f"{other}.{overload}"] = stores
    return named


def operator_of(name: str) -> OpOverload:
    """Return an operator of ATen by its name, such as "lerp.Scalar"."""
    packet, _, overload = name.partition(".")
    operator: OpOverload = getattr(getattr(torch.ops.aten, packet), overload or "default")
    return operator


def _arguments(operator: OpOverload) -> list[tuple[str, str]]:
    """Return names and types of an operator's arguments, without those that only receive results."""
    return [(argument.name, str(argument.type)) for argument in operator._schema.arguments if not argument.is_out]


def _has_out(operator: OpOverload) -> bool:
    return any(argument.is_out for argument in operator._schema.arguments)


def result_type(*tensors: Tensor) -> torch.dtype:
    """Return the type of an elementwise result."""
    by_rank: list[Tensor] = []  # an empty tensor of each category: with axes, and without
    for shape in ((1,), ()):
        dtypes = [tensor.dtype for tensor in tensors if bool(tensor.dim()) == bool(shape)]
        if dtypes:
            by_rank.append(torch.empty(shape, dtype=reduce(torch.promote_types, dtypes), device="meta"))
    result: torch.dtype = torch.result_type(by_rank[0], by_rank[-1])
    return result


def common_type(*tensors: Tensor) -> tuple[torch.dtype, tuple[Tensor, ...]]:
    """Return the type of an elementwise result, and the tensors in the type of the arithmetic.

    bf16 and f16 are computed in f32.
    """
    result = result_type(*tensors)
    inner = torch.float32 if result in LOW else result
    return result, tuple([tensor.to(inner) for tensor in tensors])


def check_cast(dtype: torch.dtype, out: Tensor) -> None:
    """Raise if a result of a type cannot be written to a tensor."""
    if not torch.can_cast(dtype, out.dtype):
        raise RuntimeError(f"result type {dtype} can't be cast to the output type {out.dtype}")


_copy = in_default_environment(torch.Tensor.copy_)


def store(results: tuple[Tensor | None, ...], targets: list[Tensor], resize: bool) -> None:
    """Write results to the tensors that the caller passed; ``out`` tensors get the results' shapes."""
    for result, target in zip(results, targets, strict=True):
        if result is not None and result is not target:
            check_cast(result.dtype, target)
            if resize and target.shape != result.shape:
                target.resize_(result.shape)
            _copy(target, result)


def reason_of_types(tensors: list[Tensor], types: frozenset[torch.dtype], is_float: bool) -> str:
    """Return why a row does not serve tensors because of a type; an empty text if it serves them."""
    for tensor in tensors:
        unserved = tensor.dtype.is_floating_point and tensor.dtype not in types and (tensor.dim() or not is_float)
        if unserved or tensor.dtype.is_complex:
            return f"has no specified order for {tensor.dtype}"
    return ""
