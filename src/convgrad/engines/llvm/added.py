"""The sum of arrays, added element by element from the first to the last, as a node of the reduction tree does."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from convgrad.array_types import Array
from convgrad.engines.addresses import address_of, words
from convgrad.engines.llvm import jit
from convgrad.engines.llvm.convert import BYTES, read, write
from convgrad.engines.llvm.driver import float_environment
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.plan.machine import Isa
from convgrad.plan.recipe import F32_BYTES

VECTORS = 4  # vectors per iteration
PROTOTYPE = (None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
MAX_ELEMENTS = 1 << 20  # elements per call of the compiled function, which Ctrl-C cannot interrupt


def add_up(isa: Isa, arrays: Sequence[Array], out: Array, fmt: str, accumulate: bool) -> None:
    """Write the sum of one or more dense f32 arrays into a dense ``out``.

    The epilogue adds +0, and the old value if ``accumulate``, and then rounds once to the format ``fmt``.
    """
    add = _compiled(isa, fmt, accumulate)
    for begin in range(0, out.size, MAX_ELEMENTS):
        at = words(len(arrays))
        at[:] = [address_of(array) + begin * F32_BYTES for array in arrays]
        there = address_of(out) + begin * BYTES[fmt]
        add(there, ctypes.addressof(at), len(arrays), min(out.size - begin, MAX_ELEMENTS))


@cache
def _compiled(isa: Isa, fmt: str, accumulate: bool) -> Any:
    return jit.functions(isa, module_of, isa, fmt, accumulate, add=PROTOTYPE)[0]


def module_of(isa: Isa, fmt: str, accumulate: bool) -> str:
    """Return the IR of ``add``, which adds ``size`` elements of ``number`` arrays into ``out``."""
    module = Module()
    f = module.function("add", public=True, out="ptr", arrays="ptr", number="i64", size="i64")

    def add(first: Value, vectors: int, mask: Value | None) -> None:
        for n, total in enumerate(_summed(f, isa.lanes, first, vectors, mask)):
            there = f.at(f.out, (first + n * isa.lanes) * BYTES[fmt])
            result = f.add(total, f.zeros(total.type))
            if accumulate:
                result = f.add(result, read(f, fmt, there, isa.lanes, mask))
            write(f, fmt, [result], there, mask)

    with float_environment(f, isa):
        in_vectors(f, f.size, isa.lanes, add)
    f.done()
    return str(module)


def in_vectors(f: Function, size: Value, lanes: int, emit: Callable[[Value, int, Value | None], None]) -> None:
    """Emit a loop over ``size`` elements, VECTORS vectors at a time, then a loop over the remainder by masked vectors.

    ``emit(first, vectors, mask)`` emits the code for ``vectors`` vectors from the element ``first``.
    """
    step = lanes * VECTORS
    full = size >> step.bit_length() - 1
    with f.loop(full) as many:
        emit(many.index * step, VECTORS, None)
    left = size - full * step
    with f.loop(left + (lanes - 1) >> lanes.bit_length() - 1) as vector:
        first = vector.index * lanes
        emit(full * step + first, 1, f.mask(left - first, lanes))


def _summed(f: Function, lanes: int, at: Value, vectors: int, mask: Value | None) -> list[Value]:
    """Return the sums over all arrays, for ``vectors`` vectors that begin at the element ``at``."""

    def vector(array: Value, number: int) -> Value:
        return read(f, "f32", f.at(array, number * lanes * F32_BYTES), lanes, mask)

    first = f.at(f.load("ptr", f.arrays), at * F32_BYTES)
    with f.loop(f.number - 1, **{f"v{n}": vector(first, n) for n in range(vectors)}) as other:
        here = f.at(f.load("ptr", f.arrays, (other.index + 1) * 8), at * F32_BYTES)
        other.next(**{name: f.add(total, vector(here, n)) for n, (name, total) in enumerate(other.carried.items())})
    return list(other.carried.values())
