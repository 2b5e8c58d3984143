"""What an architecture has words of its own for: a pause between two looks, the floating-point control register."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from convgrad.engines.llvm.emit import Function, Value

DEFAULT_MXCSR = 0x1F80  # round to nearest, subnormals kept, nothing traps


@dataclass(frozen=True)
class Words:
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


WORDS = {
    "x86_64": Words("@llvm.x86.sse2.pause()", "@llvm.x86.sse2.pause()", _enter_x86, _leave_x86),
    "aarch64": Words("@llvm.aarch64.hint(i32 1)", "@llvm.aarch64.hint(i32)", _enter_aarch64, _leave_aarch64),
}
