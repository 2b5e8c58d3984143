"""Pieces of an output, and the factors of each piece's terms as matrices, whose matrix products are the sums.

| pass     | a piece                  | group    | rows            | terms                       | columns         |
|----------|--------------------------|----------|-----------------|-----------------------------|-----------------|
| dst      | positions of some images | group    | channels of dst | channels of src, tap by tap | positions       |
| src      | positions of some images | group    | channels of src | channels of dst, tap by tap | positions       |
| weights  | a tap                    | group    | channels of dst | blocks of positions         | channels of src |
| bias     | all                      | one      | channels        | blocks of positions         | one             |
| bias_add | positions of some images | channels | one             | one                         | positions       |

For each tap, only the positions that exist are gathered, because padding has no terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from math import prod
from types import EllipsisType
from typing import Any

import numpy as np

from convgrad.array_types import Array, F64Array, Selection
from convgrad.spec.geometry import Axis, Channels, Conv
from convgrad.spec.operators import Tensor
from convgrad.spec.problem import Problem

Operands = Mapping[Tensor, Array]
# Factors x [group, row, term] and y [group, term, column], and the index of their sums.
Factors = tuple[F64Array, F64Array, Selection | EllipsisType]
Slices = tuple[slice, ...]
Tap = tuple[tuple[int, ...], Slices, Slices]  # a tap's index, and the positions of two tensors that it connects

NUMBERS = 1 << 18  # approximate number of elements of a matrix, so that several matrices fit in a cache
TERMS = 64  # taps with fewer terms are gathered into one matrix


@dataclass(frozen=True)
class OutputElements:
    """The elements of the canonical output at ``index``, whose sums have the axes [group, row, column...].

    The columns of a ``batched`` piece are images and positions. ``factors`` yields the factors of the terms.
    """

    index: Selection
    shape: tuple[int, ...]
    batched: bool
    factors: Iterator[Factors]

    def canonical(self, sums: Array) -> Array:
        """Return the sums of the piece with the axes of the canonical output."""
        flat = sums.reshape(self.shape[0] * self.shape[1], *self.shape[2:])
        return flat.swapaxes(0, 1) if self.batched else flat


def pieces(problem: Problem, operands: Sequence[Array]) -> Iterator[OutputElements]:
    """Yield the pieces of a problem's output; their terms do not include bias. Operands are canonical and finite."""
    yield from _PIECES[problem.solves_for](problem.geometry, dict(zip(problem.operands, operands, strict=True)))


def _dst(conv: Conv, operands: Operands) -> Iterator[OutputElements]:
    weights = _by_tap(conv, operands["weights"])
    for images, rows in _blocks(conv, [a.dst for a in conv.axes]):
        src, dst = _ranges(conv, "src"), [rows, *_ranges(conv, "dst")[1:]]
        shape = (*weights.shape[-3:-1], images.stop - images.start, *map(len, dst))
        factors = _under_taps(weights, operands["src"][images], _taps(conv, src, dst), shape[2:])
        yield OutputElements((images, slice(None), _slice(rows)), shape, True, factors)


def _src(conv: Conv, operands: Operands) -> Iterator[OutputElements]:
    weights = _by_tap(conv, operands["weights"]).swapaxes(-1, -2)
    for images, rows in _blocks(conv, [a.src for a in conv.axes]):
        src, dst = [rows, *_ranges(conv, "src")[1:]], _ranges(conv, "dst")
        shape = (*weights.shape[-3:-1], images.stop - images.start, *map(len, src))
        taps = ((k, p, i) for k, i, p in _taps(conv, src, dst))
        factors = _under_taps(weights, operands["dst"][images], taps, shape[2:])
        yield OutputElements((images, slice(None), _slice(rows)), shape, True, factors)


def _weights(conv: Conv, operands: Operands) -> Iterator[OutputElements]:
    shape = (conv.groups, conv.dst_channels // conv.groups, conv.src_channels // conv.groups)
    for tap in product(*(range(k) for k in conv.kernel)):
        yield OutputElements((..., *tap), shape, False, _over_positions(conv, operands, tap))


def _over_positions(conv: Conv, operands: Operands, tap: tuple[int, ...]) -> Iterator[Factors]:
    src = _ranges(conv, "src")
    for images, rows in _blocks(conv, [a.dst for a in conv.axes]):
        for _, i, p in _taps(conv, src, [rows, *_ranges(conv, "dst")[1:]], tap):
            met_dst = _at(operands["dst"][images, :, _slice(rows)], p)
            met_src = _at(operands["src"][images], i)
            yield _matrix(met_dst, conv.groups), _matrix(met_src, conv.groups).swapaxes(1, 2), ...


def _bias(channels: Channels, operands: Operands) -> Iterator[OutputElements]:
    def factors() -> Iterator[Factors]:
        for n in range(channels.batch):
            values = _matrix(operands["dst"][n : n + 1], 1)
            yield values, np.ones((1, values.shape[2], 1)), ...

    yield OutputElements((...,), (1, channels.channels), False, factors())


def _bias_add(channels: Channels, operands: Operands) -> Iterator[OutputElements]:
    for n in range(channels.batch):
        values = operands["src"][n : n + 1]
        y = _matrix(values, channels.channels)
        shape = (channels.channels, 1, 1, *channels.extents)
        yield OutputElements((slice(n, n + 1),), shape, True, iter([(np.ones((channels.channels, 1, 1)), y, ...)]))


_PIECES: Mapping[str, Callable[[Any, Operands], Iterator[OutputElements]]] = {
    "dst": _dst,
    "src": _src,
    "weights": _weights,
    "bias": _bias,
    "bias_add": _bias_add,
}


def _under_taps(weights: Array, data: Array, taps: Iterator[Tap], columns: tuple[int, ...]) -> Iterator[Factors]:
    """Yield the weights of taps, the data that these multiply, and the index of the columns that sum the products.

    A tap of few channels has few terms, so several taps are gathered into one matrix, with zeros for padding.
    """
    groups, rows, channels = weights.shape[-3:]
    if channels >= TERMS:
        for tap, positions, at in taps:
            yield weights[tap].astype(np.float64), _matrix(_at(data, positions), groups), (..., *at)
    while some := list(islice(taps, max(1, TERMS // channels))):
        x = np.empty((groups, rows, len(some), channels))
        y = np.zeros((groups, len(some), channels, *columns))
        for number, (tap, positions, at) in enumerate(some):
            x[:, :, number] = weights[tap]
            index: Selection = (slice(None), number, ..., *at)
            y[index] = _grouped(_at(data, positions), groups)
        terms = len(some) * channels
        yield x.reshape(groups, rows, terms), y.reshape(groups, terms, prod(columns)), ...


def _by_tap(conv: Conv, weights: Array) -> Array:
    """Return the weights as [tap..., group, dst channel, src channel], so that a tap's weights are contiguous."""
    grouped = weights.reshape(conv.groups, conv.dst_channels // conv.groups, *weights.shape[1:])
    return np.ascontiguousarray(np.moveaxis(grouped, (0, 1, 2), (-3, -2, -1)))


def _matrix(values: Array, groups: int) -> F64Array:
    """Return an array [image, channel, position...] as float64 [group, channel, image and position]."""
    together = _grouped(values, groups).astype(np.float64, order="C")
    return together.reshape(*together.shape[:2], prod(together.shape[2:]))


def _grouped(values: Array, groups: int) -> Array:
    """Return an array [image, channel, position...] as [group, channel, image, position...]."""
    batch, channels, *extents = values.shape
    return np.moveaxis(values.reshape(batch, groups, channels // groups, *extents), 0, 2)


def _blocks(conv: Conv, extents: Sequence[int]) -> Iterator[tuple[slice, range]]:
    """Yield blocks as a range of images and a range of positions on the first axis.

    A block has at most ``NUMBERS`` elements of a tensor, but at least one position of one image.
    """
    row = max(conv.src_channels, conv.dst_channels) * max(1, prod(extents[1:]))
    rows = max(1, min(extents[0], NUMBERS // row))
    images = max(1, NUMBERS // (row * max(1, extents[0])))
    for n in range(0, conv.batch, images):
        for begin in range(0, extents[0], rows):
            yield slice(n, min(n + images, conv.batch)), range(begin, min(begin + rows, extents[0]))


def _at(array: Array, positions: Slices) -> Array:
    index: Selection = (..., *positions)
    some: Array = array[index]
    return some


def _ranges(conv: Conv, tensor: Tensor) -> list[range]:
    return [range(a.src if tensor == "src" else a.dst) for a in conv.axes]


def _slice(positions: range) -> slice:
    return slice(positions.start, positions.stop)


def _taps(conv: Conv, src: Sequence[range], dst: Sequence[range], only: tuple[int, ...] | None = None) -> Iterator[Tap]:
    """Yield the taps that connect positions of these ranges, or only the tap ``only``, each with its positions.

    Positions are relative to the beginning of the ranges.
    """
    taps = [range(a.kernel) for a in conv.axes] if only is None else [range(k, k + 1) for k in only]
    for meetings in product(*map(_meetings, conv.axes, taps, src, dst)):
        yield tuple(k for k, _, _ in meetings), tuple(i for _, i, _ in meetings), tuple(p for _, _, p in meetings)


def _meetings(axis: Axis, taps: range, src: range, dst: range) -> list[tuple[int, slice, slice]]:
    meetings = []
    for k in taps:
        positions = axis.existing(k, src, dst)
        if positions:
            i = axis.source(k, positions)
            meetings.append((k, slice(i.start - src.start, i.stop - src.start, i.step), _shifted(positions, dst.start)))
    return meetings


def _shifted(positions: range, origin: int) -> slice:
    return slice(positions.start - origin, positions.stop - origin)
