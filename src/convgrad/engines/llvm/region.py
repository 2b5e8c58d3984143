"""The function that each thread of an OpenMP region runs: a driver, if the thread is wanted, in scratch of its own."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from convgrad.engines.llvm import isas, jit
from convgrad.engines.llvm.arguments import loaded_where_used
from convgrad.engines.llvm.emit import Module
from convgrad.plan.records import Record, addresses

REGION = (
    addresses("kernel", "arguments", "scratch") + Record("scratch_step", "wanted")
    + addresses("number", "system_call") + Record("gettid")
    + Record("member")  # is written: the system's number of a thread that is not the caller
)  # fmt: skip


def module() -> str:
    """Return the IR of ``each``, a function of the address of a row of REGION."""
    module = Module()
    f = module.function("each", public=True, region="ptr")
    r = loaded_where_used(f, f.region, REGION)
    number = f.op("i64", f"zext {f.op('i32', f'call i32 {r.number.name}()')} to i64")
    with f.when(f.compare("eq", number, 1)):
        f.store(f.op("i64", f"call i64 (i64, ...) {r.system_call.name}({r.gettid})"), f.region, REGION.at("member"))
    with f.when(f.compare("ult", number, r.wanted)):
        f.say(f"call void {r.kernel.name}({r.arguments}, {f.at(r.scratch, number * r.scratch_step)})")
    f.done()
    return str(module)


@cache
def compiled() -> Any:
    """Return the function, compiled for this machine; its ``address`` is where it begins."""
    (each,) = jit.functions(isas.host_isas()[0], module, each=(None, ctypes.c_void_p))
    return each
