"""How tiles read a term of their rows: as packed, in f32, or where it lies, by its format and what lies beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from convgrad.engines.llvm.arguments import Named
from convgrad.engines.llvm.convert import read
from convgrad.engines.llvm.emit import Function, Value
from convgrad.formats import F32
from convgrad.plan.forward.recipe import ForwardSpec
from convgrad.plan.recipe import CHANNELS, F32_BYTES

HIGH_HALF = -65536  # 0xffff0000
Read = Callable[[Function, Value, int], Value]  # of what lies at a place, in all lanes


@dataclass(frozen=True)
class Terms:
    """``together`` are taken at a time, each so many bytes behind the first; ``alone`` is what they leave over."""

    together: tuple[tuple[Value | int, Read], ...]
    alone: Read
    step: Value | int  # bytes from a term to the next


def terms_of(spec: ForwardSpec, a: Named) -> Terms:
    """Return how a kernel reads the terms of its rows, in the order in which chains take them."""
    if not spec.in_place:
        return Terms(((0, _one(F32.name)),), _one(F32.name), F32_BYTES)
    one = _one(spec.operand)
    step = spec.item_bytes if spec.data == CHANNELS else a.term_step
    if not spec.pairs:
        return Terms(((0, one),), one, step)
    if spec.data == CHANNELS:
        return Terms(((0, _high), (0, _low)), one, step)
    return Terms(((step, one), (0, one)), one, step)


def _one(fmt: str) -> Read:
    """A term of a format."""

    return lambda f, place, lanes: f.splat(read(f, fmt, place), lanes)


def _high(f: Function, place: Value, lanes: int) -> Value:
    """The second term of a word of two bf16."""
    return _half(f, "and", HIGH_HALF, f.splat(f.load("i32", place), lanes), lanes)


def _low(f: Function, place: Value, lanes: int) -> Value:
    """The first term of a word of two bf16."""
    return _half(f, "shl", 16, f.splat(f.load("i32", place), lanes), lanes)


def _half(f: Function, what: str, number: int, words: Value, lanes: int) -> Value:
    many = ", ".join([f"i32 {number}"] * lanes)
    return f.op(f"<{lanes} x float>", f"bitcast {f.op(words.type, f'{what} {words}, <{many}>')} to <{lanes} x float>")
