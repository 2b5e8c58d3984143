"""Number formats in IR: f32 from bf16 and f16, and back with one rounding, by integers and hardware instructions."""

from __future__ import annotations

from collections.abc import Callable

from convgrad.engines.llvm.emit import Function, Value
from convgrad.engines.llvm.intrinsics import normal

STORED = {"f32": "float", "bf16": "i16", "f16": "half"}
BYTES = {"f32": 4, "bf16": 2, "f16": 2}
_NAN = {"float": "0x7FF8000000000000", "i32": "2143289344"}


def stored(fmt: str, lanes: int = 0) -> str:
    """Return the IR type that holds a format in memory."""
    return f"<{lanes} x {STORED[fmt]}>" if lanes else STORED[fmt]


def load_masked(f: Function, fmt: str, lanes: int, pointer: Value, mask: Value) -> Value:
    """Load stored values under a mask; the others are zero and never touched."""
    raw = f.masked_load(f"<{lanes} x {'float' if fmt == 'f32' else 'i16'}>", pointer, mask)
    kind = stored(fmt, lanes)
    return raw if raw.type == kind else f.op(kind, f"bitcast {raw} to {kind}")


def widen(f: Function, fmt: str, raw: Value) -> Value:
    """Return f32 values of stored ones, exactly."""
    if fmt == "f32":
        return raw
    if fmt == "f16":
        return f.op(_like(raw, "float"), f"fpext {raw} to {_like(raw, 'float')}")
    whole = f.op(_like(raw, "i32"), f"zext {raw} to {_like(raw, 'i32')}")
    shifted = f.op(whole.type, f"shl {whole}, {_constant(f, whole.type, 16).name}")
    return f.op(_like(raw, "float"), f"bitcast {shifted} to {_like(raw, 'float')}")


def narrow(f: Function, fmt: str, value: Value) -> Value:
    """Return stored values of f32 ones, rounded to nearest even; every NaN becomes the canonical quiet one.

    bf16 by integers: LLVM's own truncation calls a symbol on older CPUs and flushes subnormals on newer ones.
    """
    wide, odd = value.type, f.op(_like(value, "i1"), f"fcmp uno {value}, {value.name}")
    if fmt != "bf16":
        quiet = _constant(f, wide, _NAN["float"])
        clean = f.op(wide, f"select {odd}, {quiet}, {value}")
        return clean if fmt == "f32" else f.op(_like(value, "half"), f"fptrunc {clean} to {_like(value, 'half')}")
    kind = _like(value, "i32")
    bits = f.op(kind, f"bitcast {value} to {kind}")
    last = f.op(kind, f"and {f.op(kind, f'lshr {bits}, {_constant(f, kind, 16).name}')}, {_constant(f, kind, 1).name}")
    half = f.op(kind, f"add {last}, {_constant(f, kind, 0x7FFF).name}")
    rounded = f.op(kind, f"add {bits}, {half.name}")
    clean = f.op(kind, f"select {odd}, {_constant(f, kind, _NAN['i32'])}, {rounded}")
    top = f.op(kind, f"lshr {clean}, {_constant(f, kind, 16).name}")
    return f.op(_like(value, "i16"), f"trunc {top} to {_like(value, 'i16')}")


def _narrowed(f: Function, first: Value, second: Value) -> Value:
    """By integers."""
    two = [narrow(f, "bf16", each) for each in (first, second)]
    lanes = int(two[0].type[1:].split(" x ")[0])
    return f.shuffle(two[0], two[1], list(range(2 * lanes)))


def _narrowed_normal(f: Function, first: Value, second: Value) -> Value:
    """As the instruction has it: denormals are zeros."""
    return _narrowed(f, normal(f, first), normal(f, second))


def _cvtne2ps2bf16(f: Function, first: Value, second: Value) -> Value:
    """The instruction of AVX512_BF16."""
    both = f.intrinsic("<32 x bfloat>", "llvm.x86.avx512bf16.cvtne2ps2bf16.512", second, first)
    return f.op("<32 x i16>", f"bitcast {both} to <32 x i16>")


# Two vectors of sums rounded to bf16, the second behind the first, by the name of an instruction set's word for pairs:
# of sums that hold no NaN and nothing denormal.
PairNarrow = Callable[[Function, Value, Value], Value]
PAIR_NARROWS: dict[str, PairNarrow] = {
    "dpbf16ps": _cvtne2ps2bf16, "fused": _narrowed, "flushed": _narrowed_normal,
}  # fmt: skip


def _like(value: Value, element: str) -> str:
    """Return the type with as many lanes as a value and another element."""
    return f"{value.type.split(' x ')[0]} x {element}>" if value.type[0] == "<" else element


def _constant(f: Function, kind: str, number: int | str) -> Value:
    if kind[0] != "<":
        return Value(f, kind, str(number))
    lanes, element = kind[1:-1].split(" x ")
    return Value(f, kind, "<" + ", ".join([f"{element} {number}"] * int(lanes)) + ">")
