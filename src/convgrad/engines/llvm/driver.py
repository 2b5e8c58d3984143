"""Drivers in IR: functions in which threads claim tasks or samples from atomic counters until none is left.

The driver of a kernel calls the kernel's loop nest for each task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from convgrad.engines.llvm.arguments import Named, going
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.gemm import output_stationary, pack
from convgrad.engines.llvm.gemm.arguments import arguments as arguments_of_spec
from convgrad.engines.llvm.intrinsics import INTRINSICS
from convgrad.engines.llvm.kn2row import nest as kn2row
from convgrad.engines.llvm.split_k import gemm_nest, stencil_nest
from convgrad.engines.llvm.split_k import portions as split_k_portions
from convgrad.engines.llvm.split_k.nest import store_panel
from convgrad.engines.llvm.stencils import grouped, spatial
from convgrad.plan.constants import LOOKS
from convgrad.plan.gemm import schedule
from convgrad.plan.gemm.spec import POSITIONS_GEMM, TRANSPOSED
from convgrad.plan.kn2row import schedule as kn2row_schedule
from convgrad.plan.kn2row.spec import KN2ROW
from convgrad.plan.machine import Isa
from convgrad.plan.recipe import Spec
from convgrad.plan.records import COLUMN_BYTES, Record
from convgrad.plan.split_k import schedule as split_k_schedule
from convgrad.plan.split_k.recipe import DEPTHWISE, OUTER_PRODUCTS, PORTIONS
from convgrad.plan.stencils import spatial_schedule
from convgrad.plan.stencils.grouped import GROUPED_STENCIL
from convgrad.plan.stencils.spatial import SPATIAL_STENCIL


@dataclass(frozen=True)
class Emitter:
    """The code of a loop nest: ``emitted`` write its IR functions, the last of which is ``task``."""

    emitted: tuple[Callable[[Module, Any], None], ...]
    task: Record  # the columns of the table of tasks
    begin: Callable[[Function, Any], None] = lambda f, spec: None  # writes code that a thread runs before its tasks


_NEST = (output_stationary.bodies, output_stationary.task)
EMITTERS = {  # by the body of a specification
    OUTER_PRODUCTS: Emitter((gemm_nest.bodies, store_panel, gemm_nest.task), split_k_schedule.TASK),
    PORTIONS: Emitter((split_k_portions.bodies, store_panel, split_k_portions.task), split_k_schedule.TASK),
    DEPTHWISE: Emitter((stencil_nest.bodies, store_panel, stencil_nest.task), split_k_schedule.TASK),
    POSITIONS_GEMM: Emitter(_NEST, schedule.TASK, output_stationary.begin),
    TRANSPOSED: Emitter(_NEST, schedule.TASK, output_stationary.begin),
    GROUPED_STENCIL: Emitter((grouped.bodies, output_stationary.task), schedule.TASK, output_stationary.begin),
    SPATIAL_STENCIL: Emitter((spatial.bodies, spatial.task), spatial_schedule.TASK),
    KN2ROW: Emitter((kn2row.bodies, kn2row.task), kn2row_schedule.TASK, kn2row.begin),
}
_PACKING = Emitter((pack.pack_line, pack.pack_once), schedule.LINE)


def module_of(spec: Spec) -> str:
    """Return the IR of ``driver(arguments, scratch, thread)`` and of the functions that it calls."""
    return _module(spec, EMITTERS[spec.body])


def packing_of(spec: Spec) -> str:
    """Return the IR of a driver that packs all of A, for kernels that need it packed before their first task."""
    return _module(spec, _PACKING)


def _module(spec: Spec, emitter: Emitter) -> str:
    module = Module()
    for emit in emitter.emitted:
        emit(module, spec)
    _driver(module, spec, emitter)
    return str(module)


def _driver(module: Module, spec: Spec, emitter: Emitter) -> None:
    """Emit ``driver``, which calls ``task`` for each task that its thread claims."""
    f = module.function("driver", public=True, **DRIVER)
    a = arguments_of_spec(f, spec)
    with driver(f, spec.isa, a):
        emitter.begin(f, spec)
        with claims(f, a, lambda: a.claimed, lambda: a.task_count) as task:
            f.call("task", f.arguments, f.scratch, f.at(a.tasks, task * emitter.task.bytes))


# -- parts of all drivers --

DRIVER = {"arguments": "ptr", "scratch": "ptr", "thread": "i64"}  # the parameters of drivers


@contextmanager
def float_environment(f: Function, isa: Isa) -> Iterator[None]:
    """Emit a block that runs with rounding to nearest and with denormals; restore the caller's settings after it."""
    saved = f.op("ptr", "alloca i64, align 8")
    INTRINSICS[isa.architecture].enter(f, saved)
    yield
    INTRINSICS[isa.architecture].leave(f, saved)


@contextmanager
def driver(f: Function, isa: Isa, a: Named) -> Iterator[None]:
    """Emit the beginning and the end of a driver around a block. The flag ``active`` counts the threads inside."""
    f.op("i64", f"atomicrmw add {a.active}, i64 1 seq_cst")
    with float_environment(f, isa):
        yield
    f.op("i64", f"atomicrmw sub {a.active}, i64 1 seq_cst")
    f.done()


@contextmanager
def claims(f: Function, a: Named, counters: Callable[[], Value], count: Callable[[], Value]) -> Iterator[Value]:
    """Emit a block that runs for each number below ``count`` that this thread claims.

    The numbers are cut into shares, each with a counter. Thread ``f.thread`` begins with its own, also in the next
    call, so that it finds data in the caches of its core.
    """
    shares = f.load("i64", a.shares)
    with f.loop(shares) as turn:
        share = f.op("i64", f"urem {f.thread + turn.index}, {shares.name}")
        first, end = (f.op("i64", f"udiv {count() * at}, {shares.name}") for at in (share, share + 1))
        counter, name = f.at(counters(), share * COLUMN_BYTES), f.fresh("claim")
        f.say(f"br label %{name}")
        f.start(name)
        number = first + f.op("i64", f"atomicrmw add {counter}, i64 1 monotonic")
        f.say(f"br {number < end}, label %{name}.task, label %{name}.end")
        f.start(f"{name}.task")
        yield number
        f.say(f"br label %{name}")
        f.start(f"{name}.end")


@contextmanager
def claimed(f: Function, isa: Isa, a: Named, count: Value, begin: Callable[[], None] | None = None) -> Iterator[Value]:
    """Emit a driver that runs a block for each number below ``count`` that a thread claims, until the call is stopped.

    ``begin`` emits code that runs before the thread's first block. A thread that claims none may enter the driver after
    the end of the call, when it may read only the driver's arguments.
    """
    with driver(f, isa, a):
        has_begun = f.alloca("i64", 1)
        f.store(f.value(0), has_begun)
        with claims(f, a, lambda: a.claimed, lambda: count) as number, f.when(going(f, a)):
            if begin is not None:
                with f.when(f.compare("eq", f.load("i64", has_begun), 0)):
                    begin()
                    f.store(f.value(1), has_begun)
            yield number


def reached(f: Function, isa: Isa, counter: Value, count: Value) -> Value:
    """Wait until other threads have counted to ``count``, and return whether they have; give up after LOOKS looks."""
    intrinsics, name, before = INTRINSICS[isa.architecture], f.fresh("wait"), f.block
    f.module.declare(f"declare void {intrinsics.pause_declared}")
    f.say(f"br label %{name}")
    f.start(name)
    f.say(f"%{name}.looks = phi i64 [ 0, %{before} ], [ %{name}.next, %{name}.again ]")
    done = f.op("i64", f"load atomic i64, {counter} acquire, align 8") >= count
    over = f.op("i1", f"or {done}, {f.compare('sge', Value(f, 'i64', f'%{name}.looks'), LOOKS).name}")
    f.say(f"br {over}, label %{name}.end, label %{name}.again")
    f.start(f"{name}.again")
    f.say(f"call void {intrinsics.pause}")
    f.say(f"%{name}.next = add i64 %{name}.looks, 1")
    f.say(f"br label %{name}")
    f.start(f"{name}.end")
    return done
