"""Sixty mutants for ``gates.py``: planted defects, most of which ``verify`` names, and others without a name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from convgrad.formats import BF16, round_to
from tests.verify.planted import DEFECTS
from tests.verify.plants import Array, Plant

Computed = Callable[[Plant], tuple[Array, Plant] | Array | None]

NAMED = (
    "kernel flipped", "stride and dilation exchanged", "pads exchanged", "padding ignored", "one pad too many",
    "dilation ignored", "last row not read", "last image missing", "tail channels not written", "group 0 for all",
    "groups exchanged", "second group not computed", "result written channels last", "OIX read as IOX",
    "strided view read as contiguous", "accumulated into ones", "run twice into one buffer", "sign",
    "mean over the batch", "scaled by 1.5", "one tap missing", "shifted by one column", "edge values for padding",
    "= over images", "= over channels", "= over rows", "= over positions", "= over taps", "operands rounded to tf32",
    "operands rounded to bf16", "result rounded to bf16", "result rounded to f16", "bf16 partials, 2",
    "bf16 over rows", "bf16 over images", "f16 partials, 64", "additions truncated", "one element 0.17",
    "one element 0.001", "one channel 1e-4", "all 1e-5 too large", "bf16 accumulation", "one element 1e-05",
    "one channel 1e-5", "products truncated", "last rounding truncated",
)  # fmt: skip


def _rng(p: Plant) -> np.random.Generator:
    return np.random.default_rng(p.x.size)


def noise(share: float) -> Computed:
    """Return normal errors relative to each element."""
    return lambda p: p.sums() * (1 + share * _rng(p).standard_normal(p.sums().shape))


def lost_updates(p: Plant) -> Array:
    """One in 50 elements lacks the last image or channel, as after a race."""
    name = p.summed
    array = getattr(p, name).copy()
    array[-1 if p.role == "weights" else (slice(None), -1)] = 0
    some = _rng(p).random(p.sums().shape) < 0.02
    return np.where(some, replace(p, **{name: array}).sums(), p.sums())


def quantised(p: Plant) -> Array:
    """Operands in 8-bit integers with one scale each."""
    scaled = {n: np.rint(127 * getattr(p, n) / np.abs(getattr(p, n)).max()) for n in "xyw"}
    scales = {n: np.abs(getattr(p, n)).max() / 127.0 for n in "xyw"}
    factor = np.prod([scales[n] for n in {"weights": "xy", "dst": "xw", "src": "yw"}[p.role]])
    return replace(p, **scaled).sums() * factor


def one_operand(p: Plant) -> Array:
    """The operand that is not data, in bf16."""
    name = "y" if p.role == "weights" else "w"
    return replace(p, **{name: round_to(getattr(p, name), BF16)}).sums()


def clipped(p: Plant) -> Array:
    sums = p.sums()
    limit = 3 * sums.std()
    return np.clip(sums, -limit, limit)


def changed(change: Callable[[float], float]) -> Computed:
    """Return a result of which one element of median size is changed."""

    def compute(p: Plant) -> Array:
        sums = p.sums()
        at = np.argsort(np.abs(sums), axis=None)[sums.size // 2]
        sums.flat[at] = change(sums.flat[at])
        return sums

    return compute


def rounded_at_random(p: Plant) -> Array:
    """The last rounding goes up or down at random, with the exact sum as its mean."""
    sums = p.sums()
    place = np.ldexp(1.0, np.frexp(sums)[1] - 24)
    return np.floor(sums / place + _rng(p).random(sums.shape)) * place


def swapped(p: Plant) -> Array:
    """Two output channels are exchanged."""
    axis = 0 if p.role == "weights" else 1
    order = np.arange(p.sums().shape[axis])
    order[[1, 2]] = order[[2, 1]]
    return p.sums().take(order, axis)


def sparse(p: Plant) -> Array:
    """One in 200 values of the data is skipped."""
    name = "y" if p.role == "src" else "x"
    array = getattr(p, name)
    return replace(p, **{name: np.where(_rng(p).random(array.shape) < 0.005, 0, array)}).sums()


OTHERS: Mapping[str, Computed] = {
    "all zeros": lambda p: 0 * p.sums(),
    "the mean everywhere": lambda p: np.full_like(p.sums(), p.sums().mean()),
    "random numbers of the same size": lambda p: p.sums().std() * _rng(p).standard_normal(p.sums().shape),
    "noise 1e-2": noise(1e-2),
    "noise 1e-6": noise(1e-6),
    "lost updates": lost_updates,
    "operands in 8-bit integers": quantised,
    "one operand in bf16": one_operand,
    "clipped at 3 deviations": clipped,
    "one element NaN": changed(lambda value: np.nan),
    "one element 1e-6": changed(lambda value: value * (1 + 1e-6)),
    "last rounding at random": rounded_at_random,
    "two channels exchanged": swapped,
    "0.5 % of the data skipped": sparse,
}
MUTANTS: Mapping[str, tuple[Computed, Mapping[str, Any]]] = {
    **{name: (DEFECTS[name][1], {}) for name in NAMED},
    **{name: (compute, {}) for name, compute in OTHERS.items()},
}
