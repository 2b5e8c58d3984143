"""Which tables and numbers the kernels of each body of a forward or a data gradient are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from convgrad.plan.forward import planes_schedule, products_schedule
from convgrad.plan.forward import schedule as positions
from convgrad.plan.forward.fields import positions_fields
from convgrad.plan.forward.planes import PLANES
from convgrad.plan.forward.products import PRODUCTS
from convgrad.plan.forward.recipe import POSITIONS
from convgrad.plan.forward.view import Gather
from convgrad.plan.tables import Schedule

_SCHEDULES: Mapping[str, Callable[[Gather, Any, bool], Schedule]] = {
    POSITIONS: positions.schedule,
    PLANES: planes_schedule.schedule,
    PRODUCTS: products_schedule.schedule,
}
_FIELDS: Mapping[str, Callable[[int], tuple[str, ...]]] = {
    POSITIONS: positions_fields,
    PLANES: planes_schedule.planes_fields,
    PRODUCTS: products_schedule.products_fields,
}


def schedule(view: Gather, plan: Any, accumulates: bool) -> Schedule:
    """Return the tables and numbers of a plan for arrays of these strides."""
    return _SCHEDULES[plan.spec.body](view, plan, accumulates)


def fields(spec: Any) -> tuple[str, ...]:
    """Return the names of the arguments of a kernel, in order."""
    return _FIELDS[spec.body](spec.axes)
