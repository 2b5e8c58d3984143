"""Which tables and numbers the kernels of each body of a forward or a data gradient are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from convgrad.plan.forward import kn2row_schedule, spatial_stencil_schedule
from convgrad.plan.forward import schedule as positions
from convgrad.plan.forward.fields import positions_fields
from convgrad.plan.forward.kn2row import PRODUCTS
from convgrad.plan.forward.recipe import POSITIONS
from convgrad.plan.forward.spatial_stencil import PLANES
from convgrad.plan.forward.view import ForwardNest
from convgrad.plan.tables import Schedule

_SCHEDULES: Mapping[str, Callable[[ForwardNest, Any, bool], Schedule]] = {
    POSITIONS: positions.schedule,
    PLANES: spatial_stencil_schedule.schedule,
    PRODUCTS: kn2row_schedule.schedule,
}
_FIELDS: Mapping[str, Callable[[int], tuple[str, ...]]] = {
    POSITIONS: positions_fields,
    PLANES: spatial_stencil_schedule.planes_fields,
    PRODUCTS: kn2row_schedule.products_fields,
}


def schedule(view: ForwardNest, plan: Any, accumulates: bool) -> Schedule:
    """Return the tables and numbers of a plan for arrays of these strides."""
    return _SCHEDULES[plan.spec.body](view, plan, accumulates)


def fields(spec: Any) -> tuple[str, ...]:
    """Return the names of the arguments of a kernel, in order."""
    return _FIELDS[spec.body](spec.axes)
