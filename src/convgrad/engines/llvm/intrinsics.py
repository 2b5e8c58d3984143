"""What an architecture has words of its own for: a pause, the floating-point control register, pairs of bf16 terms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from convgrad.engines.llvm.emit import Function, Value

DEFAULT_MXCSR = 0x1F80  # round to nearest, subnormals kept, nothing traps


@dataclass(frozen=True)
class Intrinsics:
    """One architecture's: wheels built with fast-math set flush-to-zero, so kernels ``enter`` with the default set."""

    pause: str  # called as this, declared as that
    pause_declared: str
    enter: Callable[[Function, Value], None]  # keep the control register in memory, and set the default
    leave: Callable[[Function, Value], None]  # put back what is there


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

# A multiply-add of two terms, by its name in a row of instruction sets: sums + high * high + low * low, each product
# added by a fused multiply-add, the high half of a word of two bf16 first. It is told the sums, and vectors of words.
MultiplyAdd = Callable[[Function, Value, Value, Value], Value]
HIGH_HALF = 0xFFFF0000


def high(f: Function, words: Value) -> Value:
    """Return the high halves of words of two bf16, in f32."""
    return _f32(f, f.op(words.type, f"and {words}, {f.everywhere(words.type, HIGH_HALF).name}"))


def low(f: Function, words: Value) -> Value:
    """Return the low halves of words of two bf16, in f32."""
    return _f32(f, f.op(words.type, f"shl {words}, {f.everywhere(words.type, 16).name}"))


def _f32(f: Function, bits: Value) -> Value:
    kind = bits.type.replace("i32", "float")
    return f.op(kind, f"bitcast {bits} to {kind}")


def high_sum(f: Function, sums: Value, a: Value, b: Value) -> Value:
    """Add the product of the high halves."""
    return f.fma(high(f, a), high(f, b), sums)


def low_sum(f: Function, sums: Value, a: Value, b: Value) -> Value:
    """Add the product of the low halves."""
    return f.fma(low(f, a), low(f, b), sums)


def fused(f: Function, sums: Value, a: Value, b: Value) -> Value:
    """Two fused multiply-adds: what the instruction is where nothing is denormal."""
    return low_sum(f, high_sum(f, sums, a, b), a, b)


def _flushed(f: Function, sums: Value, a: Value, b: Value) -> Value:
    """Two of them as the instruction has them: denormals are zeros, taken and made."""
    for half in (high, low):
        sums = f.fma(normal(f, half(f, a)), normal(f, half(f, b)), normal(f, sums))
    return normal(f, sums)


def normal(f: Function, values: Value) -> Value:
    """Return zeros of their sign for what is denormal."""
    words = values.type.replace("float", "i32")
    bits = f.op(words, f"bitcast {values} to {words}")
    small = f.compare("eq", f.op(words, f"and {bits}, {f.everywhere(words, 0x7F800000).name}"), f.everywhere(words, 0))
    return _f32(f, f.select(small, f.op(words, f"and {bits}, {f.everywhere(words, 0x80000000).name}"), bits))


def _dpbf16ps(f: Function, sums: Value, a: Value, b: Value) -> Value:
    """The instruction of AVX512_BF16."""
    kind = "<32 x bfloat>"
    x, y = (f.op(kind, f"bitcast {each} to {kind}") for each in (a, b))
    return f.intrinsic(sums.type, "llvm.x86.avx512bf16.dpbf16ps.512", sums, x, y)


PAIR_SUMS: dict[str, MultiplyAdd] = {"dpbf16ps": _dpbf16ps, "fused": fused, "flushed": _flushed}
