"""The instruction TDPBF16PS of Intel AMX, called through LLVM, and a NumPy model of the sums that it computes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from convgrad.engines.addresses import address_of
from convgrad.engines.llvm import amx, jit
from convgrad.engines.llvm.emit import Module
from convgrad.plan.machine import ISAS
from convgrad.spec.chains import sum_to_odd

F32 = NDArray[np.float32]  # tiles C[tile][16][16]
U16 = NDArray[np.uint16]  # tiles A[tile][16][K] and B[tile][K][16], in bf16
AMX = ISAS["amx"]
SIDE = 16  # rows and columns of a tile of C, and the most pairs of K
DEFAULT_NAN, QUIET = np.uint32(0xFFC00000), np.uint32(0x400000)
# A sum is flushed if it is less than 2**-126 after rounding to 24 bits with an unlimited exponent.
BEFORE_ROUNDING, AFTER_ROUNDING, NEVER = 2.0**-126, 2.0**-126 - 2.0**-151, 0.0


@cache
def why_no_amx() -> str:
    """Return why this process cannot use AMX with bf16, or the empty string. It asks Linux for permission."""
    if jit.refusal():
        return jit.refusal()
    features = jit.llvm().get_host_cpu_features()
    missing = [name for name in AMX.features[-2:] if not features.get(name)]
    if missing:
        return f"this processor has no {' and no '.join(missing)}"
    return amx.why_not_permitted()


def configuration(pairs: int) -> NDArray[np.uint8]:
    """Return the tile configuration for products of ``pairs`` pairs: tiles 0 to 3 are C, 4 and 5 are A, 6 and 7 B."""
    made = np.zeros(64, np.uint8)
    made[0] = 1
    made[48:56], made[16:32:2] = [SIDE] * 6 + [pairs] * 2, [64] * 4 + [4 * pairs] * 2 + [64] * 2
    return made


def module_of(pairs: int) -> str:
    """Return the IR of ``tiles``, which adds the products of ``count`` tiles of A and B to tiles of C in memory."""
    module = Module()
    f = module.function("tiles", public=True, config="ptr", a="ptr", b="ptr", c="ptr", count="i64")
    f.intrinsic("void", "llvm.x86.ldtilecfg", f.config)
    with f.loop(f.count, a=f.a, b=f.b, c=f.c) as each:
        for tile, place, stride in (("i8 0", each.c, 64), ("i8 4", each.a, 4 * pairs), ("i8 6", each.b, 64)):
            f.intrinsic("void", "llvm.x86.tileloadd64", tile, place, f.value(stride))
        f.intrinsic("void", "llvm.x86.tdpbf16ps", "i8 0", "i8 4", "i8 6")
        f.intrinsic("void", "llvm.x86.tilestored64", "i8 0", each.c, f.value(64))
        each.next(a=f.at(each.a, 64 * pairs), b=f.at(each.b, 64 * pairs), c=f.at(each.c, 1024))
    f.intrinsic("void", "llvm.x86.tilerelease")
    f.done()
    return str(module)


def by_instruction(a: U16, b: U16, c: F32) -> F32:
    """Return C + A B, computed by TDPBF16PS."""
    tiles, pairs = len(a), a.shape[-1] // 2
    rows, out = np.ascontiguousarray(a), c.copy()
    columns = np.ascontiguousarray(b.reshape(tiles, pairs, 2, SIDE).swapaxes(2, 3))
    (function,) = jit.functions(AMX, module_of, pairs, tiles=(None, *(ctypes.c_void_p,) * 4, ctypes.c_int64))
    config = configuration(pairs)
    function(address_of(config), address_of(rows), address_of(columns), address_of(out), tiles)
    return out


def first_nan(result: F32, *operands: F32) -> F32:
    """Return ``result`` with the bits of its NaN: those of the first operand that is one, quiet, or the default."""
    bits = np.where(np.isnan(result), DEFAULT_NAN, result.view(np.uint32))
    for each in reversed(operands):
        bits = np.where(np.isnan(each), each.view(np.uint32) | QUIET, bits)
    return bits.view(np.float32)


def added(x: F32, y: F32, z: F32, tiny: float = AFTER_ROUNDING) -> F32:
    """Return x * y + z, rounded once; denormal operands and results smaller than ``tiny`` become zeros."""
    with np.errstate(all="ignore"):
        x, y, z = (
            np.where(np.abs(each) < (2.0**-126 if tiny else 0), each * np.float32(0), each) for each in (x, y, z)
        )
        total = sum_to_odd(x.astype(np.float64) * y, z.astype(np.float64))
        total = np.where(np.abs(total) < tiny, np.copysign(0, total), total)
        return first_nan(total.astype(np.float32), *np.broadcast_arrays(x, y, z))


Add = Callable[[F32, F32, F32], F32]
ONE = np.ones(1, np.float32)


def terms_of(a: U16, b: U16) -> list[tuple[F32, F32]]:
    """Return the factors of the terms of each output, one after another, in f32."""
    x, y = ((each.astype(np.uint32) << np.uint32(16)).view(np.float32) for each in (a, b))
    return [(x[:, :, k, None], y[:, k, None, :]) for k in range(x.shape[-1])]


def chain(terms: list[tuple[F32, F32]], start: F32, add: Add = added) -> F32:
    """Return the sum of terms, added one after another to ``start``."""
    for x, y in terms:
        start = add(x, y, start)
    return start


def by_halves(a: U16, b: U16, c: F32, add: Add = added) -> F32:
    """Return C + A B as TDPBF16PS does: C + (the chain of even K + the chain of odd K). Both chains begin at zero.

    The model is exact: a product of bf16 numbers has 16 bits, and its exponent is one of float64. ``sum_to_odd`` keeps
    on which side of each f32 number, each midpoint and the limit of flushing the exact sum is.
    """
    terms, zero = terms_of(a, b), np.zeros_like(c)
    even, odd = chain(terms[::2], zero, add), chain(terms[1::2], zero, add)
    return add(c, ONE, add(even, ONE, odd))
