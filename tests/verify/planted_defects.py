"""Defects to plant: how each computes what it gets wrong, and the name it is to be recognised by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tests.verify.plants import Array, Plant

# Each returns the wrong sums, and the problem asked for where that is another one; None where this one cannot have it.

Planted = tuple[Array, Plant] | Array | None


def with_bias(p: Plant) -> Plant:
    rng = np.random.default_rng(5)
    return replace(p, bias=rng.standard_normal(p.w.shape[0]).astype(p.x.dtype))


def cut(array: Array, index: Any) -> Array:
    other = array.copy()
    other[index] = 0
    return other


def rounded_operands(p: Plant, bits: int, truncate: bool = False) -> Array | None:
    if p.x.dtype != np.float32:
        return None
    return replace(p, **{n: bits_kept(getattr(p, n), bits, truncate) for n in "xyw"}).sums()


def bits_kept(array: Array, bits: int, truncate: bool = False) -> Array:
    mantissa, exponent = np.frexp(array.astype(np.float64))
    scaled = np.ldexp(mantissa, bits)
    return np.ldexp(np.trunc(scaled) if truncate else np.rint(scaled), exponent - bits)


def partials(p: Plant, parts: int, bits: int) -> Array | None:
    """Sums over parts of what is summed beside taps, each rounded, added in float64."""
    if p.x.dtype != np.float32:
        return None
    total = 0.0
    for part in range(parts):
        x, y = p.x, p.y
        if p.role == "weights":
            y = cut(y, (slice(None), slice(None), np.arange(y.shape[2]) % parts != part))
        elif p.role == "dst":
            x = cut(x, (slice(None), np.arange(x.shape[1]) % parts != part))
        else:
            y = cut(y, (slice(None), np.arange(y.shape[1]) % parts != part))
        total = total + bits_kept(replace(p, x=x, y=y).sums(), bits)
    return total


def no_old(p: Plant) -> tuple[Array, Plant]:
    exact = p.sums()
    old = np.random.default_rng(6).standard_normal(exact.shape).astype(p.x.dtype)
    return exact, replace(p, extra={"old": old})


def twice_old(p: Plant) -> tuple[Array, Plant]:
    exact, asked = no_old(p)
    return exact + 2.0 * asked.extra["old"].astype(np.float64), asked


def poisoned(p: Plant) -> Plant:
    """Infinity in one operand at a place that meets padding."""
    name = "y" if p.role == "weights" else "w"
    other = getattr(p, name).copy()
    other[0, 0, 0, 0] = np.inf
    return replace(p, **{name: other})


def multiplied_padding(p: Plant) -> Planted:
    if p.role == "src":
        return None
    asked = poisoned(p)
    with np.errstate(all="ignore"):
        return asked.sums(), asked


def swallowed(p: Plant) -> Planted:
    asked = poisoned(p)
    return replace(
        asked, **{n: np.where(np.isfinite(getattr(asked, n)), getattr(asked, n), 0) for n in "xyw"}
    ).sums(), asked


def remainder(p: Plant) -> Planted:
    """Rows of src that a stride of 4 leaves out are written."""
    if p.role != "src":
        return None
    asked = replace(p, stride=(4, 1), y=p.y[:, :, :3])
    sums = asked.sums()
    sums[:, :, 2::4] += 0.25
    return sums, asked


def one_tap_on_padding(p: Plant) -> Planted:
    """One column, of which two of three taps see padding only: they hold what was there."""
    if p.role != "weights":
        return None
    asked = replace(p, begin=(1, 2), end=(0, 2), x=p.x[..., :1], y=p.y[..., :1])
    sums = asked.sums()
    sums[..., 0] = 1e30
    return sums, asked


def subnormal(p: Plant) -> Planted:
    if p.x.dtype != np.float32 or p.role == "weights":
        return None
    data = "x" if p.role == "dst" else "y"
    array = getattr(p, data).astype(np.float64)
    small = np.where(np.arange(array.shape[-1]) % 2, array * 2.0**-130, array * 2.0**-100).astype(np.float32)
    large = (p.w.astype(np.float64) * 2.0**40).astype(np.float32)
    asked = replace(p, **{data: small, "w": large})
    return replace(asked, **{data: np.where(np.abs(small) < 2.0**-126, 0, small)}).sums(), asked


def saturated(p: Plant) -> Planted:
    asked = replace(p, **{n: (getattr(p, n).astype(np.float32) * 64).astype(np.float16) for n in "xyw"})
    return np.clip(asked.sums(), -65504, 65504), asked


def strided(p: Plant) -> Planted:
    """A channel slice of a wider tensor read as though it were contiguous."""
    name = {"weights": "x", "dst": "x", "src": "y"}[p.role]
    array = getattr(p, name)
    wide = (
        np.random.default_rng(7)
        .standard_normal((array.shape[0], 2 * array.shape[1], *array.shape[2:]))
        .astype(array.dtype)
    )
    view = wide[:, : array.shape[1]]
    read = wide.reshape(-1)[: view.size].reshape(view.shape)
    return replace(p, **{name: read}).sums(), replace(p, **{name: view})


def rolled_groups(p: Plant) -> Array:
    name = "y" if p.role == "src" else "x"
    return replace(p, **{name: np.roll(getattr(p, name), getattr(p, name).shape[1] // 2, 1)}).sums()


def first_group(p: Plant) -> Array:
    name = "y" if p.role == "src" else "x"
    array = getattr(p, name)
    half = array[:, : array.shape[1] // 2]
    return replace(p, **{name: np.concatenate([half, half], 1)}).sums()


def truncated(p: Plant) -> Array:
    return bits_kept(p.sums(), 24 if p.x.dtype == np.float32 else 8, truncate=True)


def wrong_side(p: Plant) -> Array:
    return replace(p, begin=p.end).sums()


def weights_square(p: Plant) -> Planted:
    """OIX read as IOX, with as many channels on either side."""
    if p.role == "weights":
        return None
    o = p.w.shape[0] // 2
    size = min(o, p.w.shape[1])
    asked = replace(p, groups=1, x=p.x[:, :size], y=p.y[:, :size], w=p.w[:size, :size])
    return replace(asked, w=asked.w.swapaxes(0, 1)).sums(), asked


def result_transposed(p: Plant) -> Array:
    """Written channels last, read channels first."""
    sums = p.sums()
    return np.moveaxis(sums, 1, -1).reshape(sums.shape)


def exchanged(p: Plant) -> Planted:
    if p.role != "weights":
        return None
    c = min(p.x.shape[1], p.y.shape[1])
    side = 7
    x, y = p.x[:, :c, :side, :side], p.y[:, :c, :side, :side]
    side = min(x.shape[2], x.shape[3], y.shape[2], y.shape[3])
    x, y = x[..., :side, :side], y[..., :side, :side]
    asked = replace(
        p,
        groups=1,
        x=x,
        y=y,
        w=np.zeros((c, c, 3, 3), x.dtype),
        stride=(1, 1),
        dilation=(1, 1),
        begin=(1, 1),
        end=(1, 1),
    )
    return replace(asked, x=y, y=x).sums(), asked


def forward_instead(p: Plant) -> Planted:
    if p.role != "src":
        return None
    c = 12
    x, y = p.x[:, :c, :5, :5], p.y[:, :c, :5, :5]
    asked = replace(
        p, groups=1, x=x, y=y, w=np.resize(p.w, (c, c, 3, 3)), stride=(1, 1), dilation=(1, 1), begin=(1, 1), end=(1, 1)
    )
    return replace(asked, role="dst", x=y).sums(), asked


def summed(p: Plant) -> str:
    return "y" if p.role in ("weights", "src") else "x"


def tail_terms(p: Plant) -> Planted:
    """What is summed beyond a multiple of four: channels of a group, images of a weight gradient."""
    name = summed(p)
    array = getattr(p, name)
    if p.role == "weights":
        return replace(p, y=cut(array, slice(array.shape[0] // 4 * 4, None))).sums() if array.shape[0] > 4 else None
    each = array.shape[1] // 2
    beyond = np.tile(np.arange(each) >= each - each % 4, 2)
    return unread(p, (slice(None), beyond)) if each % 4 else None


def on_kernel(p: Plant, change: Callable[[Array], Array]) -> Array:
    """The kernel changed: the one read, or the one written."""
    return change(p.sums()) if p.role == "weights" else replace(p, w=change(p.w)).sums()


def unread(p: Plant, index: Any) -> Array:
    """An operand read as 0 at an index."""
    return replace(p, **{summed(p): cut(getattr(p, summed(p)), index)}).sums()


def channels_left(p: Plant, part: slice) -> Array:
    """A result's channels left 0."""
    return cut(p.sums(), part if p.role == "weights" else (slice(None), part))


def second_group(p: Plant) -> Array:
    channels = p.w.shape[0] if p.role == "weights" else p.sums().shape[1]
    return channels_left(p, slice(channels // 2, None))


def last_image(p: Plant) -> Array:
    return unread(p, -1) if p.role == "weights" else cut(p.sums(), -1)


def no_bias(p: Plant) -> Planted:
    return (p.sums(), with_bias(p)) if p.role == "dst" else None


def twice_bias(p: Plant) -> Planted:
    return (2 * with_bias(p).sums() - p.sums(), with_bias(p)) if p.role == "dst" else None


def of_f32(p: Plant, sums: Callable[[Array], Array]) -> Planted:
    return sums(p.sums()) if p.x.dtype == np.float32 else None


def edges(p: Plant) -> Planted:
    if p.role == "src":
        return None
    (bh, bw), (eh, ew) = p.begin, p.end
    wide = np.pad(p.x, ((0, 0), (0, 0), (bh, eh), (bw, ew)), mode="edge")
    return replace(p, x=wide, begin=(0, 0), end=(0, 0)).sums()


ROW, COLUMN = (..., -1, slice(None)), (..., -1)

# The name expected, or two of which either will do, and how the result is computed.
DEFECTS: dict[str, tuple[str, Callable[[Plant], Planted]]] = {
    "kernel flipped": ("kernel flipped", lambda p: on_kernel(p, lambda w: np.flip(w, (2, 3)))),
    "kernel flipped on one axis": ("kernel flipped", lambda p: on_kernel(p, lambda w: np.flip(w, 3))),
    "stride and dilation exchanged": (
        "stride and dilation exchanged",
        lambda p: replace(p, stride=p.dilation, dilation=p.stride).sums(),
    ),
    "pads exchanged": ("odd pad on the wrong side", wrong_side),
    "padding ignored": ("padding ignored", lambda p: replace(p, begin=(0, 0)).sums()),
    "one pad too many": ("pad too large by one", lambda p: replace(p, begin=(2, 3)).sums()),
    "dilation ignored": ("dilation ignored", lambda p: replace(p, dilation=(1, 1)).sums()),
    "stride ignored": ("stride ignored", lambda p: replace(p, stride=(1, 1)).sums()),
    "last row not written": ("last row missing", lambda p: None if p.role == "weights" else cut(p.sums(), ROW)),
    "last row not read": ("last row missing", lambda p: unread(p, ROW)),
    "last column not read": ("last column missing", lambda p: unread(p, COLUMN)),
    "last image missing": ("last image missing", last_image),
    "tail channels not written": ("tail channels missing", lambda p: channels_left(p, slice(-3, None))),
    "tail terms not summed": ("tail channels missing|tail images missing", tail_terms),
    "remainder rows written": ("remainder rows written", remainder),
    "group 0 for all": ("group offset wrong", first_group),
    "groups exchanged": ("groups exchanged", rolled_groups),
    "second group not computed": ("only the first group computed", second_group),
    "result written channels last": ("wrong layout", result_transposed),
    "OIX read as IOX": ("wrong layout", weights_square),
    "strided view read as contiguous": ("strided view read as contiguous", strided),
    "accumulated into ones": ("offset added", lambda p: p.sums() + 1.0),
    "run twice into one buffer": ("accumulated twice", lambda p: 2 * p.sums()),
    "not accumulated": ("old contents not added", no_old),
    "old contents twice": ("old contents added twice", twice_old),
    "bias missing": ("bias missing", no_bias),
    "bias twice": ("bias added twice", twice_bias),
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
    "one tap missing": ("one tap missing", lambda p: on_kernel(p, lambda w: cut(w, (..., 1, 2)))),
    "shifted by one column": ("result shifted", lambda p: np.roll(p.sums(), 1, 3)),
    "edge values for padding": ("padding not 0", edges),
    "output truncated": ("output truncated", truncated),
    "operands rounded to tf32": ("operands rounded to tf32", lambda p: rounded_operands(p, 11)),
    "operands truncated to tf32": ("operands truncated to tf32", lambda p: rounded_operands(p, 11, True)),
    "operands rounded to bf16": ("operands rounded to bf16", lambda p: rounded_operands(p, 8)),
    "operands truncated to bf16": ("operands truncated to bf16", lambda p: rounded_operands(p, 8, True)),
    "result rounded to bf16": ("result rounded to bf16", lambda p: of_f32(p, lambda s: bits_kept(s, 8))),
    "result rounded to f16": ("result rounded to f16", lambda p: of_f32(p, lambda s: s.astype(np.float16))),
    "bf16 partials, 2": ("partial sums rounded to bf16", lambda p: partials(p, 2, 8)),
    "bf16 partials, 8": ("partial sums rounded to bf16", lambda p: partials(p, 8, 8)),
    "f16 partials, 8": ("partial sums rounded to f16", lambda p: partials(p, 8, 11)),
}
