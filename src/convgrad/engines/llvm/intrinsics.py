"""Intrinsics of processors: a pause, the floating-point control register, and multiply-adds of bf16 pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from convgrad.engines.llvm.emit import Function, Value

DEFAULT_MXCSR = 0x1F80  # round to nearest, without flushing denormals to zero and without traps


@dataclass(frozen=True)
class Intrinsics:
    """The intrinsics of an architecture. ``enter`` turns off flush-to-zero, which fast-math libraries may have set."""

    pause: str  # the text of the call of the pause instruction
    pause_declared: str  # the text of the declaration of the pause instruction
    enter: Callable[[Function, Value], None]  # save the control register to memory, and set the default
    leave: Callable[[Function, Value], None]  # restore the control register from memory


def _enter_x86(f: Function, saved: Value) -> None:
    f.intrinsic("void", "llvm.x86.sse.stmxcsr", saved)
    ours = f.op("ptr", "alloca i32, align 4")
    f.say(f"store i32 {DEFAULT_MXCSR}, {ours}")
    f.intrinsic("void", "llvm.x86.sse.ldmxcsr", ours)


def _leave_x86(f: Function, saved: Value) -> None:
    f.intrinsic("void", "llvm.x86.sse.ldmxcsr", saved)


def _enter_aarch64(f: Function, saved: Value) -> None:
    f.store(f.intrinsic("i64", "llvm.aarch64.get.fpcr"), saved)
    f.intrinsic("void", "llvm.aarch64.set.fpcr", f.value(0))


def _leave_aarch64(f: Function, saved: Value) -> None:
    f.intrinsic("void", "llvm.aarch64.set.fpcr", f.load("i64", saved))


INTRINSICS = {
    "x86_64": Intrinsics("@llvm.x86.sse2.pause()", "@llvm.x86.sse2.pause()", _enter_x86, _leave_x86),
    "aarch64": Intrinsics("@llvm.aarch64.hint(i32 1)", "@llvm.aarch64.hint(i32)", _enter_aarch64, _leave_aarch64),
}

# (f, sums, a, b): return sums + high * high + low * low, where ``a`` and ``b`` are vectors of bf16 pairs.
# The product of the high halves is added first, and each addition of a product is rounded once.
MultiplyAdd = Callable[[Function, Value, Value, Value], Value]
HIGH_HALF = 0xFFFF0000
_NAN_OR_DENORMAL = 0xA1  # the classes of VFPCLASSPS: quiet and signalling NaN, and denormal numbers


def high(f: Function, pairs: Value) -> Value:
    """Return the high halves of bf16 pairs, in f32."""
    return _f32(f, f.op(pairs.type, f"and {pairs}, {f.everywhere(pairs.type, HIGH_HALF).name}"))


def low(f: Function, pairs: Value) -> Value:
    """Return the low halves of bf16 pairs, in f32."""
    return _f32(f, f.op(pairs.type, f"shl {pairs}, {f.everywhere(pairs.type, 16).name}"))


def _f32(f: Function, bits: Value) -> Value:
    kind = bits.type.replace("i32", "float")
    return f.op(kind, f"bitcast {bits} to {kind}")


def high_sum(f: Function, sums: Value, a: Value, b: Value) -> Value:
    """Return ``sums`` plus the product of the high halves of ``a`` and ``b``, rounded once."""
    return f.fma(high(f, a), high(f, b), sums)


def low_sum(f: Function, sums: Value, a: Value, b: Value) -> Value:
    """Return ``sums`` plus the product of the low halves of ``a`` and ``b``, rounded once."""
    return f.fma(low(f, a), low(f, b), sums)


def fused(f: Function, sums: Value, a: Value, b: Value) -> Value:
    """Return ``sums`` + high * high + low * low by two fused multiply-adds.

    The instruction returns the same bits if no value is denormal.
    """
    return low_sum(f, high_sum(f, sums, a, b), a, b)


def _flushed(f: Function, sums: Value, a: Value, b: Value) -> Value:
    """Return ``sums`` + high * high + low * low, flushing denormals to zero as the instruction does."""
    for half in (high, low):
        sums = f.fma(normal(f, half(f, a)), normal(f, half(f, b)), normal(f, sums))
    return normal(f, sums)


def normal(f: Function, values: Value) -> Value:
    """Return values in which each denormal is replaced by the zero of its sign."""
    pairs = values.type.replace("float", "i32")
    bits = f.op(pairs, f"bitcast {values} to {pairs}")
    small = f.compare("eq", f.op(pairs, f"and {bits}, {f.everywhere(pairs, 0x7F800000).name}"), f.everywhere(pairs, 0))
    return _f32(f, f.select(small, f.op(pairs, f"and {bits}, {f.everywhere(pairs, 0x80000000).name}"), bits))


def nan_or_denormal(f: Function, values: Value) -> Value:
    """Return the lanes of a vector of AVX-512 that are NaN or denormal."""
    return f.intrinsic("<16 x i1>", "llvm.x86.avx512.fpclass.ps.512", values, f"i32 {_NAN_OR_DENORMAL}")


def _dpbf16ps(f: Function, sums: Value, a: Value, b: Value) -> Value:
    """Return ``sums`` + high * high + low * low by the instruction VDPBF16PS of AVX512_BF16."""
    kind = "<32 x bfloat>"
    x, y = (f.op(kind, f"bitcast {vector} to {kind}") for vector in (a, b))
    return f.intrinsic(sums.type, "llvm.x86.avx512bf16.dpbf16ps.512", sums, x, y)


PAIR_SUMS: dict[str, MultiplyAdd] = {"dpbf16ps": _dpbf16ps, "fused": fused, "flushed": _flushed}
