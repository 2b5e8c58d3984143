"""Planted defects of loops: = instead of +=, and sums that are rounded to bf16 between rows or images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tests.verify.plants import Array, Plant
from tests.verify.verdict_orders import nearest

LOOPS: dict[str, str] = {  # of mixed accumulation, and the words of the name's detail
    "rows": "a running sum over the rows of all images",
    "images": "a running sum over images",
    "rows, then images": "a running sum over the rows of each image, then over images",
}


def bits_kept(array: Array, bits: int, truncate: bool = False) -> Array:
    mantissa, exponent = np.frexp(array.astype(np.float64))
    scaled = np.ldexp(mantissa, bits)
    return np.ldexp(np.trunc(scaled) if truncate else np.rint(scaled), exponent - bits)


def overwritten(p: Plant, loops: str, skips_padding: bool = True) -> Array | None:
    """Loops with = instead of +=: the last iteration that adds to an element is the only one that counts."""
    name = p.summed if loops in ("images", "channels") else "y" if p.role == "weights" else "w"
    if (loops in ("images", "rows", "columns", "positions")) != (p.role == "weights"):
        return None
    array, groups = getattr(p, name), p.groups
    axes = {"images": [0], "channels": [1], "rows": [2], "columns": [3]}.get(loops, [2, 3])
    extents = [array.shape[axis] // (groups if loops == "channels" else 1) for axis in axes]
    result, left = np.zeros(1), np.ones(1, bool)
    for at in reversed(list(np.ndindex(*extents))):
        index: list[Any] = [slice(None)] * 4
        for axis, one in zip(axes, at, strict=True):
            index[axis] = slice(one, None, extents[0]) if loops == "channels" else one
        part, ones = np.zeros_like(array), np.zeros_like(array)
        part[tuple(index)], ones[tuple(index)] = array[tuple(index)], 1
        others = {other: np.ones_like(getattr(p, other)) for other in "xyw"}
        written = replace(p, **{**others, name: ones}).sums() != 0
        if not skips_padding:
            return replace(p, **{name: part}).sums()
        result = np.where(left & written, replace(p, **{name: part}).sums(), result)
        left = left & ~written
        if not left.any():
            break
    return result


def mixed(p: Plant, loops: str) -> Array | None:
    """f32 inside a row or an image, and a running sum in bf16 over rows, over images, or over both in turn."""
    if p.role != "weights":
        return None

    def running(sums: Iterator[Array]) -> Array:
        total = np.zeros(1)
        for one in sums:
            total = bits_kept(total + one, 8)
        return total

    def image(n: int) -> Plant:
        return replace(p, x=p.x[n : n + 1], y=p.y[n : n + 1])

    def rows(n: int) -> Iterator[Array]:
        one = image(n)
        for row in range(p.y.shape[2]):
            yield nearest(replace(one, y=np.where(np.arange(p.y.shape[2])[:, None] == row, one.y, 0)).sums())

    images = range(len(p.x))
    if loops == "rows":
        return running(row for n in images for row in rows(n))
    if loops == "images":
        return running(nearest(image(n).sums()) for n in images)
    return running(running(rows(n)) for n in images)


OVERWRITING: dict[str, Callable[[Plant], Array | None]] = {
    loops: partial(overwritten, loops=loops) for loops in ("images", "channels", "rows", "columns", "positions", "taps")
} | {
    f"{loops}, padding multiplied": partial(overwritten, loops=loops, skips_padding=False)
    for loops in ("rows", "positions", "taps")
}
