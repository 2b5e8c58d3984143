"""The table of candidates for each pass: a support check that returns a reason, the kernels, and their loop nest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from convgrad.plan.backward_weights import cost
from convgrad.plan.backward_weights.kernels import (
    dense,
    depthwise,
    grouped,
    not_dense,
    not_depthwise,
    not_grouped,
    not_thin,
    thin,
)
from convgrad.plan.backward_weights.recipe import Plan
from convgrad.plan.cost import Costs, Cut
from convgrad.plan.forward import cost as forward_cost
from convgrad.plan.forward import dense as dense_gemm
from convgrad.plan.forward import grouped_stencil, kn2row, spatial_stencil
from convgrad.plan.forward.recipe import ForwardPlan
from convgrad.plan.machine import Isa, Machine
from convgrad.plan.recipe import Chosen, Operands
from convgrad.spec.problem import Problem

Kernels = Callable[[Problem, Any, Isa], Iterator[tuple[Any, Operands]]]


@dataclass(frozen=True, eq=False)  # compared by identity, as rows of a table
class Nest:
    """Functions of a loop nest: a kernel's cost on one thread, the times of its cuts, and the class of its plan."""

    alone: Callable[[Problem, Any, Machine, Any, Operands], Costs]
    timed: Callable[[Costs, Problem, Any, Machine, int], Iterator[tuple[float, Cut]]]
    plan: Callable[..., Chosen]


@dataclass(frozen=True)
class Candidate:
    """A way to compute problems: a support check, which returns a reason or "", and the kernels to compare.

    ``small`` yields the kernels for small problems. The name of plans is ``strategy`` if given, or else ``name``.
    """

    name: str
    unsupported: Callable[[Problem, Any, Isa], str]
    kernels: Kernels
    nest: Nest
    small: Kernels | None = None
    strategy: str = ""


_SUMS = Nest(cost.costs, cost.timed, Plan)
_DENSE = Nest(forward_cost.alone, forward_cost.timed, ForwardPlan)
_KN2ROW = Nest(forward_cost.kn2row_alone, forward_cost.kn2row_timed, kn2row.Kn2rowPlan)
_STENCIL = Nest(forward_cost.stencil_costs, forward_cost.stencil_timed, spatial_stencil.SpatialStencilPlan)

_OF_SUMS = (
    Candidate("dense", not_dense, dense, _SUMS, dense),
    Candidate("thin", not_thin, thin, _SUMS),
    Candidate("grouped", not_grouped, grouped, _SUMS),
    Candidate("depthwise", not_depthwise, depthwise, _SUMS),
)
_FORWARD = (
    Candidate("dense", dense_gemm.unsupported, dense_gemm.kernels, _DENSE, dense_gemm.any_layout),
    Candidate(
        "transposed GEMM", dense_gemm.transposed_unsupported, dense_gemm.transposed_kernels, _DENSE,
        strategy="dense",
    ),
    Candidate("grouped stencil", grouped_stencil.unsupported, grouped_stencil.kernels, _DENSE),
    Candidate("kn2row", kn2row.unsupported, kn2row.kernels, _KN2ROW),
    Candidate("spatial stencil", spatial_stencil.unsupported, spatial_stencil.kernels, _STENCIL),
)  # fmt: skip
CANDIDATES: Mapping[str, tuple[Candidate, ...]] = {  # candidates by the tensor that the problem solves for
    "weights": _OF_SUMS, "bias": _OF_SUMS, "dst": _FORWARD, "src": _FORWARD,
}  # fmt: skip
