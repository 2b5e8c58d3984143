"""Right results: sums of products in f32 in many orders, for every element of any problem; and defects of the order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.formats import F32, Format, round_to
from convgrad.spec.problem import Problem
from convgrad.verify.judge.sample import take

Array = NDArray[Any]
Rounding = Callable[[Array], Array]


def nearest(values: Array) -> Array:
    """Round float64 to f32, which stays float64."""
    return values.astype(np.float32).astype(np.float64)


def towards_zero(values: Array) -> Array:
    """Truncate float64 to f32."""
    rounded = values.astype(np.float32)
    back = np.where(np.abs(rounded.astype(np.float64)) > np.abs(values), np.nextafter(rounded, np.float32(0)), rounded)
    return back.astype(np.float64)


def to(fmt: Format) -> Rounding:
    """Return rounding to a format."""
    return partial(round_to, fmt=fmt)


@dataclass(frozen=True, eq=False)
class Columns:
    """All elements' terms: ``x`` and ``y`` are [term, element], in natural order; ``axes`` are what terms run over."""

    x: Array
    y: Array
    axes: tuple[int, ...]
    added: Array

    @property
    def terms(self) -> int:
        return len(self.x)


def columns_of(problem: Problem, operands: Sequence[Array], old: Array | None = None) -> Columns:
    """Return the terms of all elements of the canonical output."""
    shape = problem.output_shape
    canonical = tuple(shape[axis] for axis in problem.output_order)
    terms = take(problem, operands, list(np.ndindex(canonical)))
    added = np.zeros(canonical)
    if "bias" in problem.operands:
        bias = operands[problem.operands.index("bias")].astype(np.float64)
        added = added + bias.reshape(1, -1, *[1] * (added.ndim - 2))
    if old is not None:
        added = added + old.astype(np.float64)
    rows = [np.ascontiguousarray(a.reshape(len(a), -1).T) for a in (terms.x, terms.y)]
    return Columns(rows[0], rows[1], terms.x.shape[1:], added.ravel())


def chains(x: Array, y: Array, parts: int, adding: Rounding = nearest, multiplying: Rounding | None = None) -> Array:
    """Return the sums [part, element] of as many chains of neighbours; products are rounded where it says how.

    The elements' axes may be broadcast: x as [term, 1, channel] and y as [term, channel, 1] are a weight gradient's.
    """
    length = -(-len(x) // parts)
    padded = [np.concatenate([a, np.zeros((length * parts - len(a), *a.shape[1:]))]) for a in (x, y)]
    rows = [a.reshape(parts, length, *a.shape[1:]) for a in padded]
    total = np.zeros((parts, *np.broadcast_shapes(x.shape[1:], y.shape[1:])))
    for k in range(length):
        product = rows[0][:, k] * rows[1][:, k]
        total = adding(total + (product if multiplying is None else multiplying(product)))
    return total


def joined(sums: Array, fan_in: int, adding: Rounding = nearest) -> Array:
    """Return sums [part, element] joined by a tree of so many neighbours a node; all of them: one chain."""
    while len(sums) > 1:
        parents = []
        for first in range(0, len(sums), fan_in):
            total = sums[first]
            for child in sums[first + 1 : first + fan_in]:
                total = adding(total + child)
            parents.append(total)
        sums = np.array(parents)
    return sums[0]


def kahan(x: Array, y: Array) -> Array:
    """Return compensated sums."""
    total, lost = np.zeros((2, x.shape[1]))
    for a, b in zip(x, y, strict=True):
        term = nearest(nearest(a * b) - lost)
        new = nearest(total + term)
        lost = nearest(nearest(new - total) - term)
        total = new
    return total


def _lanes(x: Array, y: Array, lanes: int) -> Array:
    padded = [np.pad(a, ((0, -len(a) % lanes), (0, 0))) for a in (x, y)]
    order = np.arange(len(padded[0])).reshape(-1, lanes).T.ravel()
    return joined(chains(padded[0][order], padded[1][order], lanes, multiplying=nearest), 2)


def _blocks(x: Array, y: Array, size: int, fan_in: int) -> Array:
    return joined(chains(x, y, -(-len(x) // size)), fan_in)


def _split(x: Array, y: Array, parts: int) -> Array:
    return joined(chains(x, y, min(parts, len(x))), parts)


def orders(columns: Columns, rng: np.random.Generator) -> Mapping[str, Callable[[], Array]]:
    """Return right orders by name; each returns the sums of products, before what is added."""
    x, y, n = columns.x, columns.y, columns.terms
    shuffled = rng.permutation(n)
    table: dict[str, Callable[[], Array]] = {
        "chain": lambda: chains(x, y, 1)[0],
        "chain, products rounded": lambda: chains(x, y, 1, multiplying=nearest)[0],
        "chain reversed": lambda: chains(x[::-1], y[::-1], 1)[0],
        "chain shuffled": lambda: chains(x[shuffled], y[shuffled], 1)[0],
        **{f"{lanes} lanes": partial(_lanes, x, y, lanes) for lanes in (4, 8, 16, 32)},
        "blocks of 256, 16-ary": lambda: _blocks(x, y, 256, 16),
        "blocks of 192, chained": lambda: _blocks(x, y, 192, n),
        "blocks of 32, shuffled": lambda: _blocks(x[shuffled], y[shuffled], 32, 2),
        **{f"split in {parts}": partial(_split, x, y, parts) for parts in (2, 3, 8, 64)},
        "pairwise": lambda: joined(nearest(x * y), 2),
        "pairwise from 8": lambda: _blocks(x, y, 8, 2),
        "compensated": lambda: kahan(x, y),
        "f64": lambda: nearest((x * y).sum(0)),
    }
    numbers = np.arange(n).reshape(columns.axes)
    long = [axis for axis, extent in enumerate(columns.axes) if extent > 1]
    for number, order in enumerate(list(permutations(long))[1:6]):
        rest = tuple(axis for axis in range(len(columns.axes)) if axis not in long)
        taken = numbers.transpose(*order, *rest).ravel()
        table[f"chain, axes permuted {number}"] = lambda taken=taken: chains(x[taken], y[taken], 1)[0]
    return table


def finished(columns: Columns, sums: Array, fmt: Format) -> Array:
    """Return sums with what is added last, rounded to a result's format."""
    total = nearest(sums + columns.added) if columns.added.any() else sums
    return round_to(total + 0.0, fmt).astype((fmt or F32).dtype)
