"""A plan of a grouped stencil as tables and numbers: those of a GEMM of merged groups."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from convgrad.plan.forward_nest import ForwardNest
from convgrad.plan.gemm import schedule as gemm
from convgrad.plan.gemm.cuts import reached_bytes
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.records import Record
from convgrad.plan.stencils import constants
from convgrad.plan.stencils.grouped import GroupedStencilPlan
from convgrad.plan.tables import Schedule

SEGMENT = gemm.SEGMENT + Record("first")  # ``count`` is a number of taps in a row, and ``first`` the first tap


@cache
def arguments(axes: int) -> Record:
    """Return the arguments of the kernel for a number of axes: those of a GEMM, and whether outputs are prefetched."""
    return gemm.arguments(axes) + Record("prefetches_out")


def schedule(view: ForwardNest, plan: GroupedStencilPlan, accumulates: bool) -> Schedule:
    """Return the tables and numbers of a plan for the arrays of a nest, whose groups are merged."""
    tables = gemm.schedule(view, plan, accumulates, SEGMENT)
    data = reached_bytes(view, [axis.extent for axis in view.axes]) * view.groups
    moved = data + view.positions * view.groups * view.n * F32_BYTES
    far = int(moved > constants.GROUPED_NEAR_BYTES)
    return replace(tables, numbers={**tables.numbers, "prefetches_out": far})
