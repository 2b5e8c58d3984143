"""Arrays added element by element, from the first to the last, as a parent of the tree of sums adds its children."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

from numpy.typing import NDArray

from convgrad.engines.addresses import address_of, words
from convgrad.engines.llvm import jit
from convgrad.engines.llvm.convert import BYTES, read, write
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.intrinsics import INTRINSICS
from convgrad.plan.machine import Isa
from convgrad.plan.recipe import F32_BYTES

Array = NDArray[Any]

VECTORS = 4  # that are added at a time
PROTOTYPE = (None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
MOST = 1 << 20  # elements a call: it cannot be interrupted


def add_up(isa: Isa, terms: Sequence[Array], out: Array, fmt: str, accumulate: bool) -> None:
    """Write the sum of one or more dense f32 arrays into a dense ``out``: +0, the old value, one rounding."""
    add = _compiled(isa, fmt, accumulate)
    for begin in range(0, out.size, MOST):
        at = words(len(terms))
        at[:] = [address_of(term) + begin * F32_BYTES for term in terms]
        there = address_of(out) + begin * BYTES[fmt]
        add(there, ctypes.addressof(at), len(terms), min(out.size - begin, MOST))


@cache
def _compiled(isa: Isa, fmt: str, accumulate: bool) -> Any:
    return jit.functions(isa, module_of, isa, fmt, accumulate, add=PROTOTYPE)[0]


def module_of(isa: Isa, fmt: str, accumulate: bool) -> str:
    """Return the IR of ``add``."""
    module = Module()
    f = module.function("add", public=True, out="ptr", terms="ptr", number="i64", size="i64")
    saved = f.op("ptr", "alloca i64, align 8")
    INTRINSICS[isa.architecture].enter(f, saved)
    lanes, kind = isa.lanes, f"<{isa.lanes} x float>"
    step = lanes * VECTORS
    full = f.size >> step.bit_length() - 1
    with f.loop(full) as many:
        at = many.index * step
        sums = _summed(f, at, [f"v{n}" for n in range(VECTORS)], lambda p, n: f.load(kind, p, n * lanes * F32_BYTES))
        for n, total in enumerate(sums):
            there = f.at(f.out, (at + n * lanes) * BYTES[fmt])
            old = read(f, fmt, there, lanes) if accumulate else None
            write(f, fmt, _finished(f, total, old), there)
    rest = f.size - full * step
    with f.loop(rest + (lanes - 1) >> lanes.bit_length() - 1) as one:
        behind = one.index * lanes
        at, mask = full * step + behind, f.mask(rest - behind, lanes)
        (total,) = _summed(f, at, ["v"], lambda p, n: f.masked_load(kind, p, mask))
        there = f.at(f.out, at * BYTES[fmt])
        old = read(f, fmt, there, lanes, mask) if accumulate else None
        write(f, fmt, _finished(f, total, old), there, mask)
    INTRINSICS[isa.architecture].leave(f, saved)
    f.done()
    return str(module)


def _summed(f: Function, at: Value, names: Sequence[str], load: Any) -> list[Value]:
    """Return the sums of some vectors that begin with an element."""
    first = f.at(f.load("ptr", f.terms), at * F32_BYTES)
    with f.loop(f.number - 1, **{name: load(first, n) for n, name in enumerate(names)}) as term:
        here = f.at(f.load("ptr", f.terms, (term.index + 1) * 8), at * F32_BYTES)
        term.next(**{name: f.add(term.carried[name], load(here, n)) for n, name in enumerate(names)})
    return [term.carried[name] for name in names]


def _finished(f: Function, total: Value, old: Value | None) -> Value:
    total = f.add(total, f.zeros(total.type))
    return total if old is None else f.add(total, old)
