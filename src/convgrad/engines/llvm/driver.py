"""The compiled driver: claims tasks until none is left, and does each in the nest of its kernel's body."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from convgrad.engines.llvm import gemm_nest, stencil_nest
from convgrad.engines.llvm.arguments import TASK_BYTES, Named, arguments
from convgrad.engines.llvm.emit import Function, Module
from convgrad.engines.llvm.finish import finish
from convgrad.engines.llvm.forward import boxes, kn2row, spatial_stencil
from convgrad.engines.llvm.forward.arguments import TASK_BYTES as DATA_TASK_BYTES
from convgrad.engines.llvm.forward.arguments import arguments as data_arguments
from convgrad.engines.llvm.intrinsics import INTRINSICS
from convgrad.plan.forward.kn2row import PRODUCTS
from convgrad.plan.forward.recipe import POSITIONS
from convgrad.plan.forward.spatial_stencil import PLANES
from convgrad.plan.recipe import STRIP, TILE


@dataclass(frozen=True)
class Nest:
    """What is emitted for a body, ``task`` behind all that it calls, and how its arguments and tasks are read."""

    emitted: tuple[Callable[[Module, Any], None], ...]
    arguments: Callable[[Function, Any], Named]
    task_bytes: int
    begin: Callable[[Function, Any], None] = lambda f, spec: None  # before a thread's first task


NESTS = {
    TILE: Nest((gemm_nest.bodies, finish, gemm_nest.task), lambda f, spec: arguments(f), TASK_BYTES),
    STRIP: Nest((stencil_nest.bodies, finish, stencil_nest.task), lambda f, spec: arguments(f), TASK_BYTES),
    POSITIONS: Nest((boxes.bodies, boxes.task), data_arguments, DATA_TASK_BYTES, boxes.begin),
    PLANES: Nest((spatial_stencil.bodies, spatial_stencil.task), spatial_stencil.arguments, spatial_stencil.TASK_BYTES),
    PRODUCTS: Nest((kn2row.bodies, kn2row.task), kn2row.arguments, kn2row.TASK_BYTES, kn2row.begin),
}


def module_of(spec: Any) -> str:
    """Return the IR of ``driver(arguments, scratch)``, and of all it calls."""
    module, nest = Module(), NESTS[spec.body]
    for emit in nest.emitted:
        emit(module, spec)
    _driver(module, spec, nest)
    return str(module)


def _driver(module: Module, spec: Any, nest: Nest) -> None:
    """Claim tasks until none is left; ``active`` counts the threads that are at it."""
    f = module.function("driver", public=True, arguments="ptr", scratch="ptr")
    a, words = nest.arguments(f, spec), INTRINSICS[spec.isa.architecture]
    f.op("i64", f"atomicrmw add {a.active}, i64 1 seq_cst")
    saved = f.op("ptr", "alloca i64, align 8")
    words.enter(f, saved)
    nest.begin(f, spec)
    with f.loop(a.task_count):
        task = f.op("i64", f"atomicrmw add {a.counter}, i64 1 monotonic")
        with f.when(task < a.task_count):
            f.call("task", f.arguments, f.scratch, f.at(a.tasks, task * nest.task_bytes))
    words.leave(f, saved)
    f.op("i64", f"atomicrmw sub {a.active}, i64 1 seq_cst")
    f.done()
