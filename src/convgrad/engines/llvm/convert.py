"""Conversions between number formats in IR: widening to f32, which is exact, and narrowing from f32 by one rounding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from convgrad.engines.llvm.emit import Function, Value
from convgrad.formats import FORMATS, Format, store
from convgrad.plan.machine import Isa

BYTES = {fmt.name: fmt.itemsize for fmt in FORMATS.values()}
STORED = {name: f"i{8 * size}" for name, size in BYTES.items()} | {"f32": "float", "f16": "half"}
_NAN = {"float": "0x7FF8000000000000", "half": "0xH7E00", "i32": "2143289344"}


def stored(fmt: str, lanes: int = 0) -> str:
    """Return the IR type of a value in memory, or of a vector if ``lanes`` is not 0."""
    return f"<{lanes} x {STORED[fmt]}>" if lanes else STORED[fmt]


def load_masked(f: Function, fmt: str, lanes: int, pointer: Value, mask: Value) -> Value:
    """Load a vector in its stored format. Lanes outside ``mask`` become zero, and their memory is not accessed."""
    raw = f.masked_load(f"<{lanes} x {'float' if fmt == 'f32' else f'i{8 * BYTES[fmt]}'}>", pointer, mask)
    kind = stored(fmt, lanes)
    return raw if raw.type == kind else f.op(kind, f"bitcast {raw} to {kind}")


def read(f: Function, fmt: str, pointer: Value, lanes: int = 0, mask: Value | None = None) -> Value:
    """Load a value, or a vector if ``lanes`` is not 0, and widen it to f32.

    Lanes outside ``mask`` become zero, and their memory is not accessed.
    """
    raw = f.load(stored(fmt, lanes), pointer) if mask is None else load_masked(f, fmt, lanes, pointer, mask)
    return widen(f, fmt, raw)


def read_interleaved(
    f: Function, fmt: str, pointer: Value, lanes: int, step: int, mask: Value | None = None
) -> list[Value]:
    """Load ``step`` interleaved vectors and widen them to f32. The mask has one lane per loaded value."""
    if step == 1:
        return [read(f, fmt, pointer, lanes, mask)]
    count = lanes * step
    raw = f.load(stored(fmt, count), pointer) if mask is None else load_masked(f, fmt, count, pointer, mask)
    if (fmt, step) == ("bf16", 2):
        pairs = f.op(f"<{lanes} x i32>", f"bitcast {raw} to <{lanes} x i32>")
        return [_cast(f, "bitcast", _by(f, what, pairs, by), "float") for what, by in (("shl", 16), ("and", -1 << 16))]
    wide = widen(f, fmt, raw)
    return [f.shuffle(wide, wide, list(range(first, count, step))) for first in range(step)]


def read_pairs(f: Function, pointers: Sequence[Value], lanes: int, step: int, mask: Value | None = None) -> list[Value]:
    """Load bf16 pairs whose low halves are at the first of one or two pointers, and their high halves at the second.

    Without a second pointer, the high halves are zeros. Every ``step``-th pair is in the same vector, as for
    ``read_interleaved``; ``step`` is 1 or 2.
    """
    count, words = lanes * step, f"<{lanes} x i32>"
    kind = stored("bf16", count)
    raw = [f.load(kind, at) if mask is None else load_masked(f, "bf16", count, at, mask) for at in pointers]
    wide = [f.op(words, f"{'zext' if step == 1 else 'bitcast'} {vector} to {words}") for vector in raw]
    low = [wide[0]] if step == 1 else [_by(f, "and", wide[0], 0xFFFF), _by(f, "lshr", wide[0], 16)]
    if len(wide) == 1:
        return low
    high = [_by(f, "shl", wide[1], 16), _by(f, "and", wide[1], -1 << 16)]
    return [f.op(words, f"or {half}, {other.name}") for half, other in zip(low, high[:step], strict=True)]


def write(f: Function, fmt: str, values: Sequence[Value], pointer: Value, mask: Value | None = None) -> None:
    """Round an f32 value, a vector, or two vectors to a format and store them; two are interleaved."""
    store_masked(f, narrow(f, fmt, *values), pointer, mask)


def load_vector(f: Function, kind: str, pointer: Value, mask: Value | None) -> Value:
    """Load a vector, or the lanes of a mask. Other lanes become zero, and their memory is not accessed."""
    return f.load(kind, pointer) if mask is None else f.masked_load(kind, pointer, mask)


def store_masked(f: Function, value: Value, pointer: Value, mask: Value | None) -> None:
    """Store a value, or the lanes of a vector that are in a mask."""
    if mask is None:
        f.store(value, pointer)
    else:
        f.masked_store(value, pointer, mask)


def widen(f: Function, fmt: str, raw: Value) -> Value:
    """Return the f32 values of ``raw``, a value or vector in its stored format; the conversion is exact."""
    if fmt == "f32":
        return raw
    if fmt == "bf16":
        return _cast(f, "bitcast", _by(f, "shl", _cast(f, "zext", raw, "i32"), 16), "float")
    if fmt == "f16":
        return _cast(f, "fpext", raw, "float")
    return _WIDEN_F8[fmt](f, _cast(f, "zext", raw, "i16"))


def _widen_e5m2(f: Function, bits: Value) -> Value:
    """Widen f8_e5m2, whose bits are the upper half of those of f16."""
    return _cast(f, "fpext", _cast(f, "bitcast", _by(f, "shl", bits, 8), "half"), "float")


def _widen_e4m3(f: Function, bits: Value) -> Value:
    """Widen f8_e4m3 through f16, which has one more exponent bit.

    With the same exponent and significand, the f16 is 2^8 times smaller. NaN would become 480, so it is replaced.
    """
    size, sign = _by(f, "and", bits, 0x7F), _by(f, "shl", _by(f, "and", bits, 0x80), 8)
    half = f.op(sign.type, f"or {sign}, {_by(f, 'shl', size, 7).name}")
    wide = _cast(f, "fpext", _cast(f, "bitcast", half, "half"), "float")
    scaled = f.op(wide.type, f"fmul {wide}, {_constant(f, wide.type, '256.0').name}")
    odd = f.compare("eq", size, _constant(f, size.type, 0x7F))
    return f.select(odd, _constant(f, wide.type, _NAN["float"]), scaled)


_WIDEN_F8 = {"f8_e5m2": _widen_e5m2, "f8_e4m3": _widen_e4m3}


def narrow(f: Function, fmt: str, value: Value, second: Value | None = None) -> Value:
    """Return f32 values rounded to a format, ties to even. Every NaN becomes the canonical quiet NaN.

    bf16 is rounded by integer arithmetic. LLVM's conversion calls an external function on older processors and flushes
    denormals to zero on newer ones. With a second vector, both are interleaved.
    """
    if fmt == "bf16":
        low = _by(f, "lshr", _bf16_above(f, value), 16)
        if second is None:
            return _cast(f, "trunc", low, "i16")
        both = f.op(low.type, f"or {low}, {_by(f, 'and', _bf16_above(f, second), -1 << 16).name}")
        kind = f"<{2 * int(both.type[1:].split(' x ')[0])} x i16>"
        return f.op(kind, f"bitcast {both} to {kind}")
    assert second is None, "only bf16 is faster to round and store with two vectors at once"
    wide, odd = value.type, f.op(_like(value, "i1"), f"fcmp uno {value}, {value.name}")
    if fmt in _WIDEN_F8:
        return _narrow_f8(f, FORMATS[fmt], value, odd)
    clean = f.select(odd, _constant(f, wide, _NAN["float"]), value)
    if fmt == "f32":
        return clean
    assert fmt == "f16", "a new format needs a conversion here, or more bytes are stored than it has"
    half = _cast(f, "fptrunc", clean, "half")
    return half if f.keeps_nan else f.select(odd, _constant(f, half.type, _NAN["half"]), half)


def _bf16_above(f: Function, value: Value) -> Value:
    """Return f32 values rounded to bf16, in the upper halves of 32 bits. The lower halves are arbitrary."""
    bits, odd = _cast(f, "bitcast", value, "i32"), f.op(_like(value, "i1"), f"fcmp uno {value}, {value.name}")
    return f.select(odd, _constant(f, bits.type, _NAN["i32"]), _rounded(f, bits, 16))


def _rounded(f: Function, bits: Value, dropped: int) -> Value:
    """Return ``bits`` plus a number that makes dropping the last ``dropped`` bits round to nearest, ties to even."""
    last = _by(f, "and", _by(f, "lshr", bits, dropped), 1)
    half = _by(f, "add", last, (1 << dropped - 1) - 1)
    return f.op(bits.type, f"add {bits}, {half.name}")


def _narrow_f8(f: Function, fmt: Format, value: Value, odd: Value) -> Value:
    """Return f32 values rounded to an 8-bit format; ``odd`` is whether a value is NaN.

    Normal results are rounded by integer arithmetic. Denormal results are rounded by an f32 addition of a number whose
    last place is that of the result.
    """
    p, low = fmt.significand_bits, fmt.min_exponent
    bits = _cast(f, "bitcast", value, "i32")
    size, sign = _by(f, "and", bits, 0x7FFFFFFF), _by(f, "and", _by(f, "lshr", bits, 24), 0x80)
    normal = _by(f, "sub", _by(f, "lshr", _rounded(f, size, 24 - p), 24 - p), low + 126 << p - 1)
    aligned = 2.0 ** (low - p + 24)
    moved = f.op(
        value.type, f"fadd {_cast(f, 'bitcast', size, 'float')}, {_constant(f, value.type, f'{aligned:e}').name}"
    )
    subnormal = _by(f, "sub", _cast(f, "bitcast", moved, "i32"), int(np.float32(aligned).view(np.int32)))
    code = f.select(f.compare("slt", size, _constant(f, size.type, low + 127 << 23)), subnormal, normal)
    largest, infinite, nan = map(int, store(np.array([fmt.largest, np.inf, np.nan]), fmt).view(np.uint8))
    beyond = f.compare("sgt", code, _constant(f, code.type, largest))
    if infinite == nan:
        odd = f.op(odd.type, f"or {odd}, {beyond.name}")
    else:
        code = f.select(beyond, _constant(f, code.type, infinite), code)
    signed = f.op(code.type, f"or {code}, {sign.name}")
    return _cast(f, "trunc", f.select(odd, _constant(f, code.type, nan), signed), "i8")


def can_round(isa: Isa) -> bool:
    """Return whether an instruction set has instructions that round f32 vectors to bf16."""
    return isa.pairs == "dpbf16ps"


def rounded(f: Function, first: Value, second: Value | None = None) -> Value:
    """Return one or two f32 vectors rounded to one bf16 vector by an instruction of AVX512_BF16.

    The instruction flushes denormals to zero and keeps the bits of NaN, so no value may be either.
    """
    if second is None:
        half = f.intrinsic("<16 x bfloat>", "llvm.x86.avx512bf16.cvtneps2bf16.512", first)
        return f.op("<16 x i16>", f"bitcast {half} to <16 x i16>")
    both = f.intrinsic("<32 x bfloat>", "llvm.x86.avx512bf16.cvtne2ps2bf16.512", second, first)
    return f.op("<32 x i16>", f"bitcast {both} to <32 x i16>")


def rounded_pair(f: Function, first: Value, second: Value) -> Value:
    """Return two f32 vectors rounded to bf16 and interleaved. No value may be NaN or denormal."""
    both = rounded(f, first, second)
    return f.shuffle(both, both, [lane // 2 + lane % 2 * 16 for lane in range(32)])


def _cast(f: Function, how: str, value: Value, element: str) -> Value:
    kind = _like(value, element)
    return f.op(kind, f"{how} {value} to {kind}")


def _by(f: Function, what: str, value: Value, number: int) -> Value:
    """Return the result of the integer instruction ``what`` with a value and a constant."""
    return f.op(value.type, f"{what} {value}, {_constant(f, value.type, number).name}")


def _like(value: Value, element: str) -> str:
    """Return the type of ``value`` with its element type replaced by ``element``."""
    return f"{value.type.split(' x ')[0]} x {element}>" if value.type[0] == "<" else element


def _constant(f: Function, kind: str, number: int | str) -> Value:
    if kind[0] != "<":
        return Value(f, kind, str(number))
    lanes, element = kind[1:-1].split(" x ")
    return Value(f, kind, "<" + ", ".join([f"{element} {number}"] * int(lanes)) + ">")
