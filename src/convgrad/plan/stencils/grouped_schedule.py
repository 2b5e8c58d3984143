"""A plan of a grouped stencil as tables and numbers: those of a GEMM of merged groups."""

from __future__ import annotations

from convgrad.plan.forward_nest import ForwardNest
from convgrad.plan.gemm import schedule as gemm
from convgrad.plan.records import Record
from convgrad.plan.stencils.grouped import GroupedStencilPlan
from convgrad.plan.tables import Schedule

SEGMENT = gemm.SEGMENT + Record("first")  # ``count`` is a number of taps in a row, and ``first`` the first tap


def schedule(view: ForwardNest, plan: GroupedStencilPlan, accumulates: bool) -> Schedule:
    """Return the tables and numbers of a plan for the arrays of a nest, whose groups are merged."""
    return gemm.schedule(view, plan, accumulates, SEGMENT)
