"""A test of the bf16 instructions: pairs must have the bits of fused multiply-adds, and rounding must be to nearest."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

from convgrad.engines.addresses import address_of
from convgrad.engines.llvm import amx, jit
from convgrad.engines.llvm.convert import can_round, rounded
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.intrinsics import PAIR_SUMS, MultiplyAdd, fused
from convgrad.plan.machine import Isa
from convgrad.plan.pairs import MIN_EXPONENT_SUM

Pairs = NDArray[np.uint32]
STEPS = 8  # bf16 pairs per chain
CHAINS = 512  # test chains of each kind
# Ranges of biased exponents: the smallest products without denormals, wide ranges, narrow ranges, and overflow.
EXPONENTS = (
    (MIN_EXPONENT_SUM // 2, MIN_EXPONENT_SUM // 2 + 1),
    (MIN_EXPONENT_SUM // 2, 90),
    (100, 150),
    (126, 128),
    (185, 195),
    (190, 254),
)
SPECIAL = (0, 0x8000, 0x7F80, 0xFF80, 0x7FC0)  # zeros, infinities, NaN


@cache
def why_not(isa: Isa) -> str:
    """Return why the bf16 pairs of an instruction set cannot be used, or the empty string.

    The sums of test chains by bf16 pairs must have the bits of sums by fused multiply-adds; any NaN equals any NaN. So
    must the sums of tiles. Then the instructions that round one or two vectors of sums to bf16 must agree with rounding
    in integer arithmetic.
    """
    sums, wanted = _sums(isa, PAIR_SUMS[isa.pairs]), _sums(isa, fused)
    same = (sums.view(np.uint32) == wanted.view(np.uint32)) | (np.isnan(sums) & np.isnan(wanted))
    if not same.all():
        return f"{int((~same).sum())} of {same.size} sums by {isa.pairs} differ from those by fused multiply-adds"
    refused = amx.why_not_permitted() if isa.tiles == "amx" else ""
    if isa.tiles and (reason := refused or amx.other_sums(isa, *_operands())):
        return reason
    if can_round(isa):
        finite = np.where(np.isnan(wanted), np.float32(0), wanted)
        right = _rounded(isa, finite, rounded) == _nearest(finite)
        if not right.all():
            return f"{int((~right).sum())} of {right.size} sums are not rounded to the nearest bf16 by {isa}"
    return ""


def _sums(isa: Isa, add: MultiplyAdd) -> NDArray[np.float32]:
    """Return the sum after each step of each test chain, computed with the multiply-add ``add``."""
    operands = _operands()
    out = np.empty((len(operands[0]), STEPS), np.float32)
    a, b = (np.ascontiguousarray(operand.reshape(-1, isa.lanes, STEPS).transpose(0, 2, 1)) for operand in operands)
    pointers = (ctypes.c_void_p,) * 3
    (chains,) = jit.functions(isa, _module, isa, add, chains=(None, *pointers, ctypes.c_int64))
    chains(address_of(a), address_of(b), address_of(out), len(a))
    return out


def _rounded(isa: Isa, sums: NDArray[np.float32], way: Callable[..., Value]) -> NDArray[np.uint16]:
    """Return sums in bf16 twice: rounded by ``way`` one vector at a time, and two at a time."""
    out, signature = np.empty((2, *sums.shape), np.uint16), (None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    for at, rounds in enumerate(jit.functions(isa, _rounding, isa, way, single=signature, double=signature)):
        rounds(address_of(sums), address_of(out[at]), sums.size // ((at + 1) * isa.lanes))
    return out


def _rounding(isa: Isa, way: Callable[..., Value]) -> str:
    """Return the IR of ``single`` and ``double``, which round one or two vectors of f32 sums ``count`` times."""
    module, kind, size = Module(), f"<{isa.lanes} x float>", 4 * isa.lanes
    for together, name in enumerate(("single", "double"), 1):
        f: Function = module.function(name, public=True, sums="ptr", out="ptr", count="i64")
        with f.loop(f.count, sums=f.sums, out=f.out) as iteration:
            f.store(way(f, *[f.load(kind, iteration.sums, v * size) for v in range(together)]), iteration.out)
            iteration.next(sums=f.at(iteration.sums, together * size), out=f.at(iteration.out, together * size // 2))
        f.done()
    return str(module)


def _nearest(sums: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Return f32 sums rounded to the nearest bf16, ties to even, by integer arithmetic."""
    bits = sums.view(np.uint32)
    odd = bits >> np.uint32(16) & np.uint32(1)
    nearest: NDArray[np.uint16] = (bits + (odd + np.uint32(0x7FFF)) >> np.uint32(16)).astype(np.uint16)
    return nearest


def _module(isa: Isa, add: MultiplyAdd) -> str:
    """Return the IR of ``chains``: out[chain][step][lane] is the sum of the products a * b of a chain up to a step."""
    module, kind, size = Module(), f"<{isa.lanes} x i32>", 4 * isa.lanes
    f: Function = module.function("chains", public=True, a="ptr", b="ptr", out="ptr", count="i64")
    with f.loop(f.count, a=f.a, b=f.b, out=f.out) as chain:
        begin = {"a": chain.a, "b": chain.b, "out": chain.out, "sums": f.zeros(f"<{isa.lanes} x float>")}
        with f.loop(STEPS, **begin) as step:
            sums = add(f, step.sums, f.load(kind, step.a), f.load(kind, step.b))
            f.store(sums, step.out)
            step.next(sums=sums, **{name: f.at(step.carried[name], size) for name in ("a", "b", "out")})
        chain.next(a=step.a, b=step.b, out=step.out)
    f.done()
    return str(module)


def _operands() -> list[Pairs]:
    """Return the test chains of all kinds, of both operands."""
    return [np.concatenate(chains) for chains in zip(*_chains(), strict=True)]


def _chains() -> Iterator[tuple[Pairs, Pairs]]:
    """Yield the test chains of each kind: arrays [chain][step] of bf16 pairs for both operands."""
    for kind, (low, high) in enumerate(EXPONENTS):
        x, y = (_pairs(2 * kind + side, low, high) for side in range(2))
        yield x, y
        yield x, y ^ np.uint32(0x8000)  # the low half has the opposite sign
        upper = np.uint32(0xFFFF0000)
        yield x & upper | x >> np.uint32(16), y & upper | (y >> np.uint32(16)) ^ np.uint32(0x8000)  # products cancel
    x, y = (_pairs(100 + side, 120, 134) for side in range(2))
    for operand, seed in ((x, 200), (y, 201)):
        halves, noise = operand.view(np.uint16), _noise(2 * operand.size, seed).reshape(CHAINS, -1)
        chosen = noise % 16 == 0
        halves[chosen] = np.array(SPECIAL, np.uint16)[(noise[chosen] >> np.uint64(8)) % np.uint64(len(SPECIAL))]
    yield x, y


def _pairs(seed: int, low: int, high: int) -> Pairs:
    """Return bf16 pairs with biased exponents from ``low`` to ``high``, random signs and random significands."""
    noise = _noise(2 * CHAINS * STEPS, seed)
    exponents = low + (noise >> np.uint64(20)) % np.uint64(high - low + 1)
    halves = (noise & np.uint64(0x807F) | exponents << np.uint64(7)).astype(np.uint16)
    return halves.view(np.uint32).reshape(CHAINS, STEPS)


def _noise(count: int, seed: int) -> NDArray[np.uint64]:
    """Return pseudo-random integers without NumPy's generators, which are slow to load."""
    numbers = (np.arange(count, dtype=np.uint64) + np.uint64(seed << 32)) * np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ numbers >> np.uint64(29)) * np.uint64(0xBF58476D1CE4E5B9)
    return numbers ^ numbers >> np.uint64(32)
