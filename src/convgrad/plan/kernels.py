"""The table of kernels for sums in the direct order: their support checks, specifications, costs, plans and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from convgrad.plan.cost import Costs, Timed
from convgrad.plan.forward_nest import ForwardNest, transposed
from convgrad.plan.gemm import candidates as gemm
from convgrad.plan.gemm import cost as gemm_cost
from convgrad.plan.gemm import schedule as gemm_schedule
from convgrad.plan.gemm.spec import POSITIONS_GEMM, TRANSPOSED, GemmPlan, TransposedGemmPlan
from convgrad.plan.kn2row import cost as kn2row_cost
from convgrad.plan.kn2row import schedule as kn2row_schedule
from convgrad.plan.kn2row import spec as kn2row
from convgrad.plan.machine import Isa, Machine
from convgrad.plan.recipe import Chosen, Operands
from convgrad.plan.records import Record
from convgrad.plan.split_k import cost as split_k_cost
from convgrad.plan.split_k import kernels as split_k
from convgrad.plan.split_k import portions as split_k_portions
from convgrad.plan.split_k import schedule as split_k_schedule
from convgrad.plan.split_k.nest import WeightsNest
from convgrad.plan.split_k.recipe import DEPTHWISE, OUTER_PRODUCTS, PORTIONS, SplitKPlan
from convgrad.plan.stencils import grouped, grouped_cost, grouped_schedule, spatial, spatial_cost, spatial_schedule
from convgrad.plan.tables import Schedule
from convgrad.spec.problem import Problem

Nest = ForwardNest | WeightsNest  # the loop nest of a problem
T = TypeVar("T")
Specs = Callable[[Problem, Any, Isa], Iterator[tuple[Any, Operands]]]


@dataclass(frozen=True, eq=False)  # compared by identity, as rows of a table
class Family:
    """Kernels with the same costs, plans and tables."""

    bodies: tuple[str, ...]  # the values of ``body`` of the specifications
    nest: Callable[[Any], Nest]  # from the loop nest of a problem to the one that the other functions take
    alone: Callable[[Problem, Any, Machine, Any, Operands], Costs]  # predicted times on one thread
    timed: Callable[[Costs, Problem, Any, Machine, int], Timed]  # predicted times of the divisions of the work
    plan: Callable[..., Chosen]  # the class of the plans
    schedule: Callable[[Any, Any, bool], Schedule]  # the tables and numbers of a plan
    arguments: Callable[[Any], Record]  # the arguments of the driver, for a specification


@dataclass(frozen=True)
class Kernel:
    """A way to compute problems: a support check, which returns a reason or "", and the specifications to compare.

    ``small`` yields the specifications for small problems.
    """

    name: str
    family: Family
    unsupported: Callable[[Problem, Any, Isa], str]
    specs: Specs
    small: Specs | None = None


def _by_axes(arguments: Callable[[int], Record]) -> Callable[[Any], Record]:
    return lambda spec: arguments(spec.axes)


def _same(nest: T) -> T:
    return nest


_SPLIT_K = Family(
    (OUTER_PRODUCTS, DEPTHWISE),
    _same,
    split_k_cost.costs,
    split_k_cost.timed,
    SplitKPlan,
    split_k_schedule.schedule,
    lambda spec: split_k_schedule.ARGUMENTS,
)
_PORTIONS = Family(
    (PORTIONS,),
    _same,
    split_k_portions.costs,
    split_k_portions.timed,
    SplitKPlan,
    split_k_portions.schedule,
    lambda spec: split_k_schedule.ARGUMENTS,
)
_GEMM = Family(
    (POSITIONS_GEMM,),
    _same,
    gemm_cost.GEMM.alone,
    gemm_cost.GEMM.timed,
    GemmPlan,
    gemm_schedule.schedule,
    _by_axes(gemm_schedule.arguments),
)
_TRANSPOSED_GEMM = Family(
    (TRANSPOSED,),
    transposed,
    gemm_cost.TRANSPOSED.alone,
    gemm_cost.TRANSPOSED.timed,
    TransposedGemmPlan,
    gemm_schedule.schedule,
    _by_axes(gemm_schedule.arguments),
)
_GROUPED_STENCIL = Family(
    (grouped.GROUPED_STENCIL,),
    grouped.nest_of,
    grouped_cost.MODEL.alone,
    grouped_cost.MODEL.timed,
    grouped.GroupedStencilPlan,
    grouped_schedule.schedule,
    _by_axes(grouped_schedule.arguments),
)
_KN2ROW = Family(
    (kn2row.KN2ROW,),
    _same,
    kn2row_cost.alone,
    kn2row_cost.timed,
    kn2row.Kn2rowPlan,
    kn2row_schedule.schedule,
    _by_axes(kn2row_schedule.arguments),
)
_SPATIAL_STENCIL = Family(
    (spatial.SPATIAL_STENCIL,),
    spatial.nest_of,
    spatial_cost.alone,
    spatial_cost.timed,
    spatial.SpatialStencilPlan,
    spatial_schedule.schedule,
    _by_axes(spatial_schedule.arguments),
)

_GRADIENTS = (
    Kernel("dense", _SPLIT_K, split_k_portions.not_dense, split_k.dense, small=split_k.dense),
    Kernel("thin", _SPLIT_K, split_k.not_thin, split_k.thin),
    Kernel("grouped", _SPLIT_K, split_k.not_grouped, split_k.grouped),
    Kernel("portions", _PORTIONS, split_k_portions.unsupported, split_k_portions.kernels, split_k_portions.kernels),
    Kernel("depthwise", _SPLIT_K, split_k.not_depthwise, split_k.depthwise),
)
_OUTPUTS = (
    Kernel("dense", _GEMM, gemm.unsupported, gemm.kernels, small=gemm.any_layout),
    Kernel("transposed GEMM", _TRANSPOSED_GEMM, gemm.transposed_unsupported, gemm.transposed_kernels),
    Kernel("grouped stencil", _GROUPED_STENCIL, grouped.unsupported, grouped.kernels),
    Kernel("kn2row", _KN2ROW, kn2row.unsupported, kn2row.kernels),
    Kernel("spatial stencil", _SPATIAL_STENCIL, spatial.unsupported, spatial.kernels),
)
KERNELS: Mapping[str, tuple[Kernel, ...]] = {  # by the tensor that the problem solves for
    "weights": _GRADIENTS,
    "bias": _GRADIENTS,
    "dst": _OUTPUTS,
    "src": _OUTPUTS,
}
FAMILIES = {
    body: kernel.family for kernel in (*_GRADIENTS, *_OUTPUTS) for body in kernel.family.bodies
}  # by the body of a specification
