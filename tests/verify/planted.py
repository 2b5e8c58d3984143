"""Planted defects: results computed wrong on purpose, and the name by which the verdict is to know each.

``python -m tests.verify.planted`` prints what the verdict says, defect by size and type; ``--terms 200 --types f32`` a
part of it. The defects share nothing with what recognises them. The exit code is 1 where one beyond the bound has no
name. ``verdict_power.py`` says how small the defects of the arithmetic may be.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from convgrad.verify import Verdict
from tests.verify.planted_loops import LOOPS, OVERWRITING, bits_kept, mixed
from tests.verify.plants import ROLES, SIZES, TYPES, Array, Plant, cut, plant
from tests.verify.verdict_orders import Rounding, chains, joined, nearest, towards_zero

# Wrong sums, with the problem asked for where that is another one; None where the problem cannot have the defect.
Planted = tuple[Array, Plant] | Array | None
BITS = {"float32": 24, "bfloat16": 8}
ROW, COLUMN = (..., -1, slice(None)), (..., -1)


# -- operands and attributes read wrongly, results written wrongly -----------------------------------------------------


def second_group(p: Plant) -> Array:
    channels = p.w.shape[0] if p.role == "weights" else p.sums().shape[1]
    return p.channels_left(slice(channels // 2, None))


def last_image(p: Plant) -> Array:
    return p.unread(-1) if p.role == "weights" else cut(p.sums(), -1)


def tail_terms(p: Plant) -> Planted:
    """What is summed beyond a multiple of four: channels of a group, images of a weight gradient."""
    array = getattr(p, p.summed)
    if p.role == "weights":
        return p.unread(slice(array.shape[0] // 4 * 4, None)) if array.shape[0] > 4 else None
    each = array.shape[1] // 2
    beyond = np.tile(np.arange(each) >= each - each % 4, 2)
    return p.unread((slice(None), beyond)) if each % 4 else None


def remainder(p: Plant) -> Planted:
    """Rows of src that a stride of 4 leaves out are written."""
    if p.role != "src":
        return None
    asked = replace(p, stride=(4, 1), y=p.y[:, :, :3])
    sums = asked.sums()
    sums[:, :, 2::4] += 0.25
    return sums, asked


def stride_and_dilation(p: Plant) -> Array:
    return replace(p, stride=p.dilation, dilation=p.stride).sums()


def of_channels(p: Plant, change: Callable[[Array], Array]) -> Array:
    """The channels of the operand whose groups are read, changed."""
    name = "y" if p.role == "src" else "x"
    return replace(p, **{name: change(getattr(p, name))}).sums()


def first_half(array: Array) -> Array:
    half = array[:, : array.shape[1] // 2]
    return np.concatenate([half, half], 1)


def weights_square(p: Plant) -> Planted:
    """OIX read as IOX, with as many channels on either side."""
    if p.role == "weights":
        return None
    size = min(p.w.shape[0] // 2, p.w.shape[1])
    asked = replace(p, groups=1, x=p.x[:, :size], y=p.y[:, :size], w=p.w[:size, :size])
    return replace(asked, w=asked.w.swapaxes(0, 1)).sums(), asked


def result_transposed(p: Plant) -> Array:
    """Written channels last, read channels first."""
    sums = p.sums()
    return np.moveaxis(sums, 1, -1).reshape(sums.shape)


def strided(p: Plant) -> Planted:
    """A channel slice of a wider tensor read as though it were contiguous."""
    name = "y" if p.role == "src" else "x"
    n, channels, *extents = getattr(p, name).shape
    wide = np.random.default_rng(7).standard_normal((n, 2 * channels, *extents)).astype(p.x.dtype)
    view = wide[:, :channels]
    read = wide.reshape(-1)[: view.size].reshape(view.shape)
    return replace(p, **{name: read}).sums(), replace(p, **{name: view})


def no_old(p: Plant) -> tuple[Array, Plant]:
    exact = p.sums()
    old = np.random.default_rng(6).standard_normal(exact.shape).astype(p.x.dtype)
    return exact, replace(p, extra={"old": old})


def twice_old(p: Plant) -> Planted:
    exact, asked = no_old(p)
    return exact + 2.0 * asked.extra["old"].astype(np.float64), asked


def bias_times(p: Plant, times: int) -> Planted:
    if p.role != "dst":
        return None
    asked = replace(p, bias=np.random.default_rng(5).standard_normal(p.w.shape[0]).astype(p.x.dtype))
    return p.sums() + times * (asked.sums() - p.sums()), asked


def poisoned(p: Plant) -> Plant:
    """Infinity in one operand at a place that meets padding."""
    name = "y" if p.role == "weights" else "w"
    other = getattr(p, name).copy()
    other[0, 0, 0, 0] = np.inf
    return replace(p, **{name: other})


def multiplied_padding(p: Plant) -> Planted:
    if p.role == "src":
        return None
    with np.errstate(all="ignore"):
        return poisoned(p).sums(), poisoned(p)


def swallowed(p: Plant) -> Planted:
    asked = poisoned(p)
    finite = {n: np.where(np.isfinite(getattr(asked, n)), getattr(asked, n), 0) for n in "xyw"}
    return replace(asked, **finite).sums(), asked


def one_tap_on_padding(p: Plant) -> Planted:
    """One column, of which two of three taps see padding only: they hold what was there."""
    if p.role != "weights":
        return None
    asked = replace(p, begin=(1, 2), end=(0, 2), x=p.x[..., :1], y=p.y[..., :1])
    sums = asked.sums()
    sums[..., 0] = 1e30
    return sums, asked


def exchanged(p: Plant) -> Planted:
    if p.role != "weights":
        return None
    asked = p.square(min(p.x.shape[1], p.y.shape[1]), min(7, *p.x.shape[2:], *p.y.shape[2:]))
    return replace(asked, x=asked.y, y=asked.x).sums(), asked


def forward_instead(p: Plant) -> Planted:
    if p.role != "src":
        return None
    asked = p.square(12, 5)
    return replace(asked, role="dst", x=asked.y).sums(), asked


def edges(p: Plant) -> Planted:
    if p.role == "src":
        return None
    (bh, bw), (eh, ew) = p.begin, p.end
    wide = np.pad(p.x, ((0, 0), (0, 0), (bh, eh), (bw, ew)), mode="edge")
    return replace(p, x=wide, begin=(0, 0), end=(0, 0)).sums()


# -- arithmetic --------------------------------------------------------------------------------------------------------


def of_f32(p: Plant, sums: Callable[[Plant], Array | None]) -> Planted:
    return sums(p) if p.x.dtype == np.float32 else None


def operands(p: Plant, rounded: Callable[[Array], Array]) -> Planted:
    return of_f32(p, lambda p: replace(p, **{n: rounded(getattr(p, n)) for n in "xyw"}).sums())


def operands_kept(p: Plant, bits: int, truncate: bool) -> Planted:
    return operands(p, lambda array: bits_kept(array, bits, truncate))


def to_f16(array: Array) -> Array:
    return array.astype(np.float16).astype(np.float64)


def partials(p: Plant, parts: int, bits: int, running: bool = False) -> Planted:
    """Sums over parts of the positions or channels, each rounded, added in f32 or in a running sum of as few bits."""
    if p.x.dtype != np.float32:
        return None
    total = np.zeros(1)
    n, _, *extents = p.y.shape
    positions = (np.arange(n * int(np.prod(extents))) * parts // (n * int(np.prod(extents)))).reshape(n, 1, *extents)
    for part in range(parts):
        channels = (slice(None), np.arange(getattr(p, p.summed).shape[1]) % parts != part)
        sums = replace(p, y=np.where(positions == part, p.y, 0)).sums() if p.role == "weights" else p.unread(channels)
        total = nearest(total + bits_kept(sums, bits))
        total = bits_kept(total, bits) if running else total
    return total


def chain(p: Plant, adding: Rounding, multiplying: Rounding | None = None, block: int = 0) -> Planted:
    """One chain per block of so many terms, and one over the blocks, with this arithmetic, of a weight gradient."""
    if p.role != "weights" or p.x.dtype != np.float32 or p.kernel != (1, 1) or p.x.shape[2:] != p.y.shape[2:]:
        return None
    rows = [np.moveaxis(a, 1, -1).reshape(-1, a.shape[1]).astype(np.float64) for a in (p.x, p.y)]
    size = block or len(rows[0])
    x, y = (np.pad(a, ((0, -len(a) % size), (0, 0))) for a in rows)
    sums = chains(y[:, :, None], x[:, None], len(x) // size, adding, multiplying)
    return joined(sums, len(x), adding).reshape(p.w.shape)


def to_bits(bits: int) -> Rounding:
    """Return rounding of float64 to so many bits, as a difference of two sums: quick, where nothing overflows."""
    factor = 2.0 ** (53 - bits) + 1
    return lambda values: values * factor - (values * factor - values)


def to_f32_truncated(values: Array) -> Array:
    """Return float64 truncated to the 24 bits of f32, by its pattern."""
    return (values.view(np.int64) & ~np.int64(2**29 - 1)).view(np.float64)


def subnormal(p: Plant) -> Planted:
    if p.x.dtype != np.float32 or p.role == "weights":
        return None
    array = getattr(p, p.summed).astype(np.float64)
    small = np.where(np.arange(array.shape[-1]) % 2, array * 2.0**-130, array * 2.0**-100).astype(np.float32)
    asked = replace(p, **{p.summed: small, "w": (p.w.astype(np.float64) * 2.0**40).astype(np.float32)})
    return replace(asked, **{p.summed: np.where(np.abs(small) < 2.0**-126, 0, small)}).sums(), asked


def saturated(p: Plant) -> Planted:
    asked = replace(p, **{n: (getattr(p, n).astype(np.float32) * 64).astype(np.float16) for n in "xyw"})
    return np.clip(asked.sums(), -65504, 65504), asked


def of_one(p: Plant, index: Any, change: Callable[[Array], Array]) -> Array:
    got = p.sums()
    got[index] = change(got[index])
    return got


def one_element(p: Plant, share: float) -> Planted:
    """One element of median size is scaled."""
    sums = p.sums()
    at = np.unravel_index(np.argsort(np.abs(sums), axis=None)[sums.size // 2], sums.shape)
    return of_one(p, at, lambda value: value * (1 + share))


def last_truncated(p: Plant) -> Array:
    return towards_zero(replace(p, by_engine=False).sums())


# -- the table ---------------------------------------------------------------------------------------------------------

# The name expected, or several of which any will do, and how the result is computed.
Row = tuple[str, Callable[[Plant], Planted]]
READ: dict[str, Row] = {
    "kernel flipped": ("kernel flipped", lambda p: p.on_kernel(lambda w: np.flip(w, (2, 3)))),
    "kernel flipped on one axis": ("kernel flipped", lambda p: p.on_kernel(lambda w: np.flip(w, 3))),
    "stride and dilation exchanged": ("stride and dilation exchanged", stride_and_dilation),
    "pads exchanged": ("odd pad on the wrong side", lambda p: replace(p, begin=p.end).sums()),
    "padding ignored": ("padding ignored", lambda p: replace(p, begin=(0, 0)).sums()),
    "one pad too many": ("pad too large by one", lambda p: replace(p, begin=(2, 3)).sums()),
    "dilation ignored": ("dilation ignored", lambda p: replace(p, dilation=(1, 1)).sums()),
    "stride ignored": ("stride ignored", lambda p: replace(p, stride=(1, 1)).sums()),
    "last row not written": ("last row missing", lambda p: None if p.role == "weights" else cut(p.sums(), ROW)),
    "last row not read": ("last row missing", lambda p: p.unread(ROW)),
    "last column not read": ("last column missing", lambda p: p.unread(COLUMN)),
    "last image missing": ("last image missing", last_image),
    "tail channels not written": ("tail channels missing", lambda p: p.channels_left(slice(-3, None))),
    "tail terms not summed": ("tail channels missing|tail images missing", tail_terms),
    "remainder rows written": ("remainder rows written", remainder),
    "group 0 for all": ("group offset wrong", lambda p: of_channels(p, first_half)),
    "groups exchanged": ("groups exchanged", lambda p: of_channels(p, lambda a: np.roll(a, a.shape[1] // 2, 1))),
    "second group not computed": ("only the first group computed", second_group),
    "result written channels last": ("wrong layout", result_transposed),
    "OIX read as IOX": ("wrong layout", weights_square),
    "strided view read as contiguous": ("strided view read as contiguous", strided),
    "accumulated into ones": ("offset added", lambda p: p.sums() + 1.0),
    "run twice into one buffer": ("accumulated twice", lambda p: 2 * p.sums()),
    "not accumulated": ("old contents not added", no_old),
    "old contents twice": ("old contents added twice", twice_old),
    "bias missing": ("bias missing", lambda p: bias_times(p, 0)),
    "bias twice": ("bias added twice", lambda p: bias_times(p, 2)),
    "sign": ("sign", lambda p: -p.sums()),
    "mean over the batch": ("mean instead of sum", lambda p: p.sums() / p.x.shape[0]),
    "scaled by 1.5": ("scaled by a constant", lambda p: 1.5 * p.sums()),
    "padding multiplied": ("padding multiplied", multiplied_padding),
    "NaN swallowed": ("NaN swallowed", swallowed),
    "denormal operands flushed": ("denormals flushed", subnormal),
    "a tap on padding alone not written": ("uninitialised output", one_tap_on_padding),
    "saturated": ("saturated instead of infinite", saturated),
    "src and diff_dst exchanged": ("operands exchanged", exchanged),
    "forward instead": ("forward instead of the gradient", forward_instead),
    "one tap missing": ("one tap missing", lambda p: p.on_kernel(lambda w: cut(w, (..., 1, 2)))),
    "shifted by one column": ("result shifted", lambda p: np.roll(p.sums(), 1, 3)),
    **{f"= over {loops}": ("overwritten instead of summed", planted) for loops, planted in OVERWRITING.items()},
    "edge values for padding": ("padding not 0", edges),
    "output truncated": ("output truncated", lambda p: bits_kept(p.sums(), BITS[p.x.dtype.name], truncate=True)),
}
ROUNDED: dict[str, Row] = {
    **{
        f"operands {how} to {fmt}": (f"operands {how} to {fmt}", partial(operands_kept, bits=bits, truncate=cuts))
        for how, cuts in (("rounded", False), ("truncated", True))
        for fmt, bits in (("tf32", 11), ("bf16", 8))
    },
    "result rounded to bf16": ("result rounded to bf16", lambda p: of_f32(p, lambda p: bits_kept(p.sums(), 8))),
    "result rounded to f16": ("result rounded to f16", lambda p: of_f32(p, lambda p: to_f16(p.sums()))),
    "bf16 partials, 2": ("partial sums rounded to bf16", lambda p: partials(p, 2, 8)),
    "bf16 partials, 8": ("partial sums rounded to bf16", lambda p: partials(p, 8, 8)),
    "f16 partials, 8": ("partial sums rounded to f16", lambda p: partials(p, 8, 11)),
}
RUNNING = "partial sums rounded to bf16|sums accumulated in bf16"
MIXED: dict[str, Row] = {f"bf16 over {loops}": (RUNNING, partial(mixed, loops=loops)) for loops in LOOPS}
SMALL: dict[str, Row] = {  # may be inside the bound
    "bf16 partials, 64": ("partial sums rounded to bf16", lambda p: partials(p, 64, 8)),
    "bf16 running sum of 8": (RUNNING, lambda p: partials(p, 8, 8, running=True)),
    "f16 partials, 2": ("partial sums rounded to f16", lambda p: partials(p, 2, 11)),
    "f16 partials, 64": ("partial sums rounded to f16", lambda p: partials(p, 64, 11)),
    "operands rounded to f16": ("operands rounded to tf32", lambda p: operands(p, to_f16)),  # the same but for range
    "additions truncated": ("additions truncated", lambda p: chain(p, to_f32_truncated)),
    "products truncated": ("products truncated", lambda p: chain(p, nearest, to_f32_truncated)),
    "last rounding truncated": ("last rounding truncated", last_truncated),
    **{
        f"one element {share:g}": ("single elements off", partial(one_element, share=share))
        for share in (0.17, 1e-3, 1e-4, 1e-5)
    },
    "one channel 1e-4": ("one destination channel off", lambda p: of_one(p, 3, lambda a: a * (1 + 1e-4))),
    "one channel 1e-5": ("one destination channel off", lambda p: of_one(p, 3, lambda a: a * (1 + 1e-5))),
    "one channel to bf16": ("one destination channel off", lambda p: of_one(p, 3, lambda a: bits_kept(a, 8))),
    "all 1e-5 too large": ("scaled by a constant", lambda p: p.sums() * (1 + 1e-5)),
    "bf16 accumulation": ("sums accumulated in bf16", lambda p: chain(p, to_bits(8))),
    "f16 accumulation": ("sums accumulated in f16", lambda p: chain(p, to_bits(11))),
    "tf32 accumulation of blocks": ("sums accumulated in f16", lambda p: chain(p, to_bits(11), block=256)),
    "none: convgrad": ("", lambda p: p.sums()),
}
WRONG, ARITHMETIC = READ | ROUNDED | MIXED, ROUNDED | SMALL
DEFECTS = READ | ROUNDED | MIXED | SMALL


def verdict_of(defect: str, p: Plant) -> Verdict | None:
    """Return the verdict on a planted defect; None where a problem cannot have it."""
    planted = DEFECTS[defect][1](p)
    if planted is None:
        return None
    sums, asked = planted if isinstance(planted, tuple) else (planted, p)
    with np.errstate(all="ignore"):
        return asked.call(sums)


def is_named(defect: str, verdict: Verdict) -> bool:
    """Whether the name planted is the one found, or said to fit too."""
    said = [f"{one.name} {one.detail.partition('also fits: ')[2]}" for one in verdict.found]
    return any(name in one for name in DEFECTS[defect][0].split("|") for one in said)


def became(defect: str, verdict: Verdict) -> str:
    named = is_named(defect, verdict)
    if verdict.outcome == "wrong":
        return "named" if named else "no name"
    return f"{verdict.outcome} and named" if named else verdict.outcome


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Judge planted defects.")
    parser.add_argument("--terms", type=int, nargs="*", default=SIZES)
    parser.add_argument("--types", nargs="*", default=TYPES)
    parser.add_argument("--roles", nargs="*", default=ROLES)
    options = parser.parse_args(arguments)
    columns, started = list(product(options.terms, options.types)), time.perf_counter()
    print(f"| defect | {' | '.join(f'{size} {dtype}' for size, dtype in columns)} |")
    print(f"|{'---|' * (1 + len(columns))}")
    table = {}
    for defect in WRONG:
        found = [[verdict_of(defect, plant(role, *column)) for role in options.roles] for column in columns]
        counted = [Counter(became(defect, one) for one in some if one is not None) for some in found]
        table[defect] = [", ".join(f"{count} {word}" for word, count in one.items()) or "-" for one in counted]
        print(f"| {defect} | {' | '.join(table[defect])} |", flush=True)
    named = sum("named" in str(cells) for cells in table.values())
    print(f"{len(WRONG)} defects, {named} named; {time.perf_counter() - started:.0f} s")
    return 1 if "no name" in str(table) else 0


if __name__ == "__main__":
    sys.exit(main())
