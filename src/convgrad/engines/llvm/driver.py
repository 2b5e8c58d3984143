"""The compiled driver: claims tasks until none is left, and does each in the nest of its kernel's body."""

from __future__ import annotations

from convgrad.engines.llvm import panels, stream
from convgrad.engines.llvm.arguments import TASK_BYTES, arguments
from convgrad.engines.llvm.emit import Module
from convgrad.engines.llvm.finish import finish
from convgrad.engines.llvm.join import carry, gather
from convgrad.engines.llvm.words import WORDS
from convgrad.plan.recipe import STRIP, TILE, KernelSpec

NESTS = {TILE: panels, STRIP: stream}


def module_of(spec: KernelSpec) -> str:
    """Return the IR of ``driver(arguments, scratch)``, and of all it calls."""
    module = Module()
    NESTS[spec.body].bodies(module, spec)
    carry(module, spec)
    gather(module, spec)
    finish(module, spec)
    NESTS[spec.body].task(module, spec)
    _driver(module, spec)
    return str(module)


def _driver(module: Module, spec: KernelSpec) -> None:
    """Claim tasks until none is left; ``active`` counts the threads that are at it."""
    f = module.function("driver", public=True, arguments="ptr", scratch="ptr")
    a, words = arguments(f), WORDS[spec.isa.architecture]
    f.op("i64", f"atomicrmw add {a.active}, i64 1 seq_cst")
    saved = f.op("ptr", "alloca i64, align 8")
    words.enter(f, saved)
    with f.loop(a.task_count):
        task = f.op("i64", f"atomicrmw add {a.counter}, i64 1 monotonic")
        with f.when(task < a.task_count):
            f.call("task", f.arguments, f.scratch, f.at(a.tasks, task * TASK_BYTES))
    words.leave(f, saved)
    f.op("i64", f"atomicrmw sub {a.active}, i64 1 seq_cst")
    f.done()
