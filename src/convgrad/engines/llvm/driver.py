"""The compiled driver: claims tasks until none is left, and does each in the nest of its kernel's body."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from convgrad.engines.llvm.backward_weights import gemm_nest, stencil_nest
from convgrad.engines.llvm.backward_weights.nest import store_panel
from convgrad.engines.llvm.claims import claims, driver
from convgrad.engines.llvm.emit import Function, Module
from convgrad.engines.llvm.forward import boxes, kn2row, spatial_stencil
from convgrad.engines.llvm.forward.arguments import arguments
from convgrad.plan.backward_weights import schedule as tasks
from convgrad.plan.backward_weights.recipe import STRIP, TILE
from convgrad.plan.forward import kn2row_schedule, schedule, spatial_stencil_schedule
from convgrad.plan.forward.kn2row import PRODUCTS
from convgrad.plan.forward.recipe import POSITIONS
from convgrad.plan.forward.spatial_stencil import PLANES
from convgrad.plan.records import Record


@dataclass(frozen=True)
class Nest:
    """The functions that emit a body, ``task`` after all that it calls, and the record of its tasks."""

    emitted: tuple[Callable[[Module, Any], None], ...]
    task: Record
    begin: Callable[[Function, Any], None] = lambda f, spec: None  # before a thread's first task


NESTS = {
    TILE: Nest((gemm_nest.bodies, store_panel, gemm_nest.task), tasks.TASK),
    STRIP: Nest((stencil_nest.bodies, store_panel, stencil_nest.task), tasks.TASK),
    POSITIONS: Nest((boxes.bodies, boxes.task), schedule.TASK, boxes.begin),
    PLANES: Nest((spatial_stencil.bodies, spatial_stencil.task), spatial_stencil_schedule.TASK),
    PRODUCTS: Nest((kn2row.bodies, kn2row.task), kn2row_schedule.TASK, kn2row.begin),
}


def module_of(spec: Any) -> str:
    """Return the IR of ``driver(arguments, scratch)``, and of all it calls."""
    module, nest = Module(), NESTS[spec.body]
    for emit in nest.emitted:
        emit(module, spec)
    _driver(module, spec, nest)
    return str(module)


def _driver(module: Module, spec: Any, nest: Nest) -> None:
    """Emit ``driver``: do each task that is claimed."""
    f = module.function("driver", public=True, arguments="ptr", scratch="ptr")
    a = arguments(f, spec)
    with driver(f, spec.isa, a):
        nest.begin(f, spec)
        with claims(f, a, lambda: a.task_count) as task:
            f.call("task", f.arguments, f.scratch, f.at(a.tasks, task * nest.task.bytes))
