"""Defects of ranges of a loop: terms are summed twice, as by a last tile that overlaps the one before, or not at all.

The range is found from a few wrong elements: their errors are the sums of the terms that are counted twice or left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from convgrad.array_types import Array, F64Array
from convgrad.spec.exact_result import Answer
from convgrad.spec.geometry import Channels
from convgrad.verify.diagnose.fit import DefectEffect
from convgrad.verify.diagnose.place import axis_words, spatial_words
from convgrad.verify.diagnose.sums import Changed, Instead, Scene, Where, spread
from convgrad.verify.terms import MEETINGS, terms_of

USED = 16  # wrong elements from which a range is found
ALL = -1
LONGEST = 1024  # loops that are longer are not searched
LARGE = 2**22  # maximum number of terms of these elements
TILES = (2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True, eq=False)
class Plus:
    """The exact sums, and ``times`` the sums ``of`` some of their terms."""

    exact: Answer
    of: Instead
    times: int

    @property
    def work(self) -> int:
        """The number of multiply-adds of the sums of some terms."""
        return self.of.work

    def at(self, where: Where) -> Answer:
        """Return flat sums of the elements at these flat indices."""
        return self._with(self.of.at(where), where)

    def whole(self) -> Answer:
        """Return the sums of all elements."""
        return self._with(self.of.whole(), np.arange(self.exact.value.size))

    def _with(self, more: Answer, where: Where) -> Answer:
        value, magnitude, terms = (getattr(self.exact, name).ravel()[where] for name in ("value", "magnitude", "terms"))
        added = self.times * more.value.ravel()
        size = magnitude + self.times * more.magnitude.ravel()
        return Answer(value + added, np.maximum(size, 0), terms + self.times * more.terms.ravel(), self.exact.integral)


@dataclass(frozen=True)
class SumLoop:
    """A loop of a sum: over images or channels (axis 0), or over positions or taps of a spatial axis.

    The axis ALL has all positions of an image, in row-major order.
    """

    axis: int
    extent: int
    word: str
    after: str = ""  # text after an index


def loops(scene: Scene) -> list[SumLoop]:
    """Return the loops of a scene's sums that have more than one iteration."""
    geometry, output = scene.problem.geometry, scene.problem.solves_for
    if output == "bias_add":
        return []
    if isinstance(geometry, Channels):
        extents: tuple[int, ...] = (geometry.batch, *geometry.extents)
    elif output == "weights":
        extents = (geometry.batch, *(axis.dst for axis in geometry.axes))
    else:
        channels = geometry.src_channels if output == "dst" else geometry.dst_channels
        extents = (channels // geometry.groups, *geometry.kernel)
    if 0 in extents:  # sums have no terms
        return []
    gradient = output in ("weights", "bias")
    rank = len(extents) - 1
    spatial = spatial_words(rank) if gradient else ("tap",) * rank
    names = ("image" if gradient else "channel", *spatial)
    after = ("", *(f" on axis {at}" if rank > 1 and not gradient else "" for at in range(rank)))
    sum_loops = [SumLoop(at, n, names[at], after[at]) for at, n in enumerate(extents) if n > 1]
    positions = prod(extents[1:])
    if gradient and max(extents[1:], default=1) < positions:
        sum_loops.append(SumLoop(ALL, positions, "position", " of each image"))
    return sum_loops


def ranges(scene: Scene) -> Iterator[DefectEffect]:
    """Yield explanations in which a range of a loop is summed twice or not at all, and one of overlapping tiles."""
    sum_loops = loops(scene)
    parts = _parts(scene, sum_loops)
    if parts is None:
        return
    errors = (scene.actual - scene.exact.value.ravel())[_used(scene)]
    for loop in sum_loops:
        if loop.extent > LONGEST:
            continue
        own = parts.sum(1).reshape(len(parts), -1)
        if loop.axis != ALL:
            own = parts.sum(tuple(a for a in range(1, parts.ndim) if a != loop.axis + 1))
        for sign in (1, -1):
            first, last = _best(own, sign * errors)
            if last - first == loop.extent:
                continue
            name, detail = _words(loop, first, last, sign)
            sums = Plus(scene.exact, _of_range(scene, loop, slice(first, last)), sign)
            yield DefectEffect(name, detail, sums, chosen=2 * np.log2(loop.extent))
        for tile in TILES:
            if tile < loop.extent and loop.axis != ALL:
                detail = f"the first {loop.word} of each tile of {tile}{loop.after}, except of the first tile"
                sums = Plus(scene.exact, _of_range(scene, loop, slice(tile, None, tile)), 1)
                yield DefectEffect(f"{_plural(loop)} counted twice", detail, sums)


def _used(scene: Scene) -> Where:
    where = scene.wrong[np.isfinite(scene.actual[scene.wrong]) & np.isfinite(scene.exact.value.ravel()[scene.wrong])]
    return spread(where, USED)


def _parts(scene: Scene, sum_loops: list[SumLoop]) -> F64Array | None:
    """Return the products of a few wrong elements: an axis of elements, then an axis per loop of the operator."""
    problem, where = scene.problem, _used(scene)
    extents = {loop.axis: loop.extent for loop in sum_loops if loop.axis != ALL}
    rank = scene.got.ndim - 2 if problem.solves_for != "bias" else scene.tensors["dst"].ndim - 2
    shape = tuple(extents.get(axis, 1) for axis in range(rank + 1))
    if not sum_loops or not where.size or prod(shape) * where.size > LARGE:
        return None
    parts = np.zeros((where.size, *shape))
    for row, index in enumerate(zip(*np.unravel_index(where, scene.got.shape), strict=True)):
        products = terms_of(problem, scene.operands, tuple(int(i) for i in index), None).products
        if scene.conv is None:
            parts[row] = products.reshape(shape)
            continue
        indices = [MEETINGS[problem.solves_for](a, int(i))[1] for a, i in zip(scene.conv.axes, index[2:], strict=True)]
        parts[row][np.ix_(np.arange(shape[0]), *indices)] = products
    return parts


def _best(parts: F64Array, errors: F64Array) -> tuple[int, int]:
    """Return the range of a loop whose sums are nearest to the errors: its first index, and the one after its last."""
    size = np.abs(parts).sum(1) + np.finfo(np.float64).tiny
    before = np.pad(np.cumsum(parts, 1), ((0, 0), (1, 0)))
    count = before.shape[1]
    off = np.zeros((count, count))
    for row in range(len(parts)):
        off += np.square((before[row][None] - before[row][:, None] - errors[row]) / size[row])
    off[np.tril_indices(count)] = np.inf
    first, last = np.unravel_index(int(np.argmin(np.nan_to_num(off, nan=np.inf))), off.shape)
    return int(first), int(last)


def _plural(loop: SumLoop) -> str:
    return f"{loop.word if loop.word in ('image', 'channel', 'tap') else 'position'}s"


def _words(loop: SumLoop, first: int, last: int, sign: int) -> tuple[str, str]:
    """Return the name and the detail of a range that is counted twice (sign 1) or not at all (sign -1)."""
    is_single = last - first == 1
    place = f"{loop.word} {first}" if is_single else f"{loop.word}s {first}..{last - 1}"
    of = f"{place} of {loop.extent}{loop.after}"
    if sign < 0:
        return f"{loop.word}{'s' * (not is_single)} missing", f"{of} not summed"
    tile = loop.extent - first
    clamped = 1 < tile < loop.extent and last % tile == 0 and loop.extent - last < tile
    return f"{_plural(loop)} counted twice", f"{of}{f': the last tile of {tile} begins at {first}' if clamped else ''}"


def _of_range(scene: Scene, loop: SumLoop, some: slice) -> Instead:
    """Return the sums of the terms in a range of a loop, as a smaller problem; bias and old contents are left out."""
    problem, tensors = scene.problem, {t: array for t, array in scene.tensors.items() if t != "bias"}
    geometry: Any = problem.geometry
    count, step, first = len(range(loop.extent)[some]), some.step or 1, some.start
    axis, output = loop.axis, problem.solves_for
    if axis == ALL:
        kept = np.zeros(loop.extent, np.bool_)
        kept[some] = True
        tensors = {
            **tensors,
            "dst": np.where(kept.reshape(tensors["dst"].shape[2:]), tensors["dst"], tensors["dst"].dtype.type(0)),
        }
    elif axis == 0 and output in ("weights", "bias"):
        tensors, geometry = {t: array[some] for t, array in tensors.items()}, replace(geometry, batch=count)
    elif isinstance(geometry, Channels):
        extents = tuple(count if at == axis - 1 else n for at, n in enumerate(geometry.extents))
        tensors, geometry = {"dst": tensors["dst"][_along(axis + 1, some)]}, replace(geometry, extents=extents)
    elif axis == 0:
        channels = np.arange(loop.extent)[some]
        groups = geometry.groups
        all_groups = (np.arange(groups)[:, None] * loop.extent + channels).ravel()
        if output == "dst":
            tensors = {"src": tensors["src"][:, all_groups], "weights": tensors["weights"][:, channels]}
            geometry = replace(geometry, src_channels=groups * count)
        else:
            tensors = {"dst": tensors["dst"][:, all_groups], "weights": tensors["weights"][all_groups]}
            geometry = replace(geometry, dst_channels=groups * count)
    else:
        axis_geometry = geometry.axes[axis - 1]
        if output == "weights":
            other = replace(
                axis_geometry,
                dst=count,
                stride=axis_geometry.stride * step,
                pad_begin=axis_geometry.pad_begin - first * axis_geometry.stride,
            )
            tensor = "dst"
        else:
            other = replace(
                axis_geometry,
                kernel=count,
                dilation=axis_geometry.dilation * step,
                pad_begin=axis_geometry.pad_begin - first * axis_geometry.dilation,
            )
            tensor = "weights"
        axes = tuple(other if at == axis - 1 else a for at, a in enumerate(geometry.axes))
        tensors, geometry = {**tensors, tensor: tensors[tensor][_along(axis + 1, some)]}, replace(geometry, axes=axes)
    names = tuple(t for t in problem.operands if t != "bias")
    smaller = replace(problem, geometry=geometry, operands=names, accumulate=False)
    return Instead(smaller, tuple(tensors[t] for t in names), scene.got.shape)


def _along(axis: int, some: slice) -> tuple[slice, ...]:
    return (*(slice(None),) * axis, some)


def written_twice(scene: Scene) -> Iterator[DefectEffect]:
    """Yield explanations in which results in a range along an axis are added twice."""
    old = 0.0 if scene.old is None or not scene.problem.accumulate else scene.old.astype(np.float64)
    before = np.broadcast_to(old, scene.got.shape)
    for axis, words in enumerate(axis_words(scene.problem)):
        indices = np.flatnonzero(scene.beyond.any(tuple(a for a in range(scene.got.ndim) if a != axis)))
        first, last, extent = int(indices[0]), int(indices[-1]) + 1, scene.got.shape[axis]
        if last - first == extent:
            continue
        mask = np.zeros(extent, np.bool_)
        mask[first:last] = True
        shape = [-1 if a == axis else 1 for a in range(scene.got.ndim)]
        twice = np.broadcast_to(mask.reshape(shape), scene.got.shape)
        loop = SumLoop(axis, extent, "channel" if "channel" in words.singular else words.singular, words.after)
        name, detail = _words(loop, first, last, 1)
        sums = _doubled(scene, twice, before)
        yield DefectEffect(name, f"in the result, {detail}", sums, chosen=2 * np.log2(extent))


def _doubled(scene: Scene, twice: Array, before: Array) -> Changed:
    twice, before = twice.ravel(), before.ravel()

    def change(value: F64Array, magnitude: F64Array, where: Where) -> tuple[F64Array, F64Array]:
        return value + twice[where] * (value - before[where]), magnitude * (1 + twice[where])

    return Changed(scene.exact, change, integral=True)
