"""Defects of loop bounds: rows, images, channels, taps or groups that were not read, not summed or not written."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np
from numpy.typing import NDArray

from convgrad.array_types import Selection
from convgrad.spec.operators import find
from convgrad.verify.diagnose.fit import DefectEffect
from convgrad.verify.diagnose.make import along, edited, picked, zeroed
from convgrad.verify.diagnose.overwritten import OVERWRITTEN
from convgrad.verify.diagnose.place import axis_words
from convgrad.verify.diagnose.sums import Scene

VECTORS = (2, 4, 8, 16, 32, 64, 128)
TAPS = 128  # kernels with more taps are not searched for a missing one


def unread(scene: Scene) -> Iterator[DefectEffect]:
    """Yield explanations in which an operand's first, last or remainder positions along an axis are not read.

    Remainder positions are those after whole vectors.
    """
    if scene.conv is None:
        return
    for tensor in ("src", "dst"):
        if tensor not in scene.tensors:
            continue
        for axis, extent in enumerate(scene.tensors[tensor].shape[2:], 2):
            name = f"{_spatial(axis - 2, len(scene.conv.axes))} missing"
            of = f"of axis {axis - 2} of {scene.said(tensor)} not read"
            if extent > 1:
                yield _without(scene, f"last {name}", f"the last {of}", tensor, along(axis, -1))
                yield _without(scene, f"first {name}", f"the first {of}", tensor, along(axis, 0))
            for first, words in _tails(extent):
                index = along(axis, slice(first, None))
                yield _without(scene, f"last {name}", f"positions from {first} {of}: {words}", tensor, index)


def _without(scene: Scene, name: str, detail: str, tensor: str, index: Selection) -> DefectEffect:
    return DefectEffect(name, detail, edited(scene, {tensor: lambda array: zeroed(array, index)}))


def _tails(extent: int) -> Iterator[tuple[int, str]]:
    """Yield the first index after whole vectors, and the reason in words, for each length of vectors.

    Remainders that are empty, only the last index, or the whole axis are skipped.
    """
    skipped = {extent, extent - 1, 0}
    for vector in VECTORS:
        first = extent // vector * vector
        if first not in skipped:
            skipped.add(first)
            yield first, f"{extent} is no multiple of {vector}"


def _spatial(axis: int, rank: int) -> str:
    return {0: "position", 1: "column", 2: "row", 3: "plane"}[min(rank - 1 - axis + (rank > 1), 3)]


def unsummed(scene: Scene) -> Iterator[DefectEffect]:
    """Yield explanations in which sums leave out images, or channels of each group.

    Sums leave out the last, the first, all after whole vectors, all but one, or half of the images or channels.
    """
    conv = scene.conv
    if scene.problem.solves_for in ("weights", "bias"):
        tensor, extent, name, of = "dst", scene.tensors["dst"].shape[0], "image", 1
    elif conv is not None and scene.problem.solves_for == "dst":
        tensor, extent, name, of = "src", conv.src_channels // conv.groups, "channel", conv.groups
    elif conv is not None:
        tensor, extent, name, of = "dst", conv.dst_channels // conv.groups, "channel", conv.groups
    else:
        return
    within = np.tile(np.arange(extent), of)
    axis = 0 if name == "image" else 1
    if extent > 1:
        last = "last image missing" if name == "image" else "tail channels missing"
        yield _without(scene, last, f"the last {name} not summed", tensor, along(axis, within == extent - 1))
        yield _without(scene, f"first {name} missing", "not summed", tensor, along(axis, within == 0))
    for first, words in _tails(extent):
        detail = f"{name}s from {first} not summed: {words}"
        yield _without(scene, f"tail {name}s missing", detail, tensor, along(axis, within >= first))
    if extent > 2:
        yield _without(scene, OVERWRITTEN, f"only the first {name} counts", tensor, along(axis, within != 0))
        half = extent // 2
        for index, words in ((within >= half, "first"), (within < half, "second")):
            yield _without(scene, OVERWRITTEN, f"only the {words} half counts", tensor, along(axis, index))


def unsummed_positions(scene: Scene) -> Iterator[DefectEffect]:
    """Yield explanations in which a weight or bias gradient leaves out positions of each image.

    Sums leave out the last position, or those after whole vectors.
    """
    if scene.problem.solves_for not in ("weights", "bias"):
        return
    extents = scene.tensors["dst"].shape[2:]
    if len(extents) < 2:
        return
    count = prod(extents)
    tails = [(count - 1, "the last one")] if count > 1 else []
    for first, words in [*tails, *_tails(count)]:
        index = (..., (np.arange(count) >= first).reshape(extents))
        detail = f"positions of an image from number {first} not summed: {words}"
        yield _without(scene, "tail positions missing", detail, "dst", index)


def tap_missing(scene: Scene) -> Iterator[DefectEffect]:
    """Yield explanations without one tap or one row of taps: not summed, or left 0 in a weight gradient."""
    if scene.conv is None or scene.conv.taps > TAPS or scene.conv.taps == 1:
        return
    for tap in np.ndindex(scene.conv.kernel):
        words = f"tap {tap[0] if len(tap) == 1 else tap}"
        if scene.problem.solves_for == "weights":
            yield _zero(scene, "one tap missing", f"{words} left 0", (..., *tap))
        else:
            yield _without(scene, "one tap missing", f"{words} not summed", "weights", (..., *tap))
    for axis, extent in enumerate(scene.conv.kernel):
        for at in {0, extent - 1} if extent > 1 and len(scene.conv.axes) > 1 else ():
            words = f"taps {at} of axis {axis} of {extent}"
            if scene.problem.solves_for == "weights":
                yield _zero(scene, "row of taps missing", f"{words} left 0", along(axis + 2, at))
            else:
                yield _without(scene, "row of taps missing", f"{words} not summed", "weights", along(axis + 2, at))


def unwritten(scene: Scene) -> Iterator[DefectEffect]:
    """Yield explanations with results left 0: all, or those from the first to the last wrong index along an axis."""
    yield DefectEffect("result all 0", "", picked(scene, lambda places: np.full_like(places, -1)))
    axes = range(scene.got.ndim)
    for axis, words in enumerate(axis_words(scene.problem)):
        extent = scene.got.shape[axis]
        indices = np.flatnonzero(scene.beyond.any(tuple(a for a in axes if a != axis)))
        first, last = int(indices[0]), int(indices[-1])
        if last - first + 1 < extent:
            kind = "channel" if "channel" in words.singular else words.singular
            name = _unwritten(first, last, extent, extent // words.groups, kind)
            run = f"{words.singular} {first}" if first == last else f"{words.plural} {first}..{last}"
            yield _zero(scene, name, f"{run}{words.after} of {extent} left 0", along(axis, slice(first, last + 1)))


def _unwritten(first: int, last: int, extent: int, group: int, kind: str) -> str:
    if group < extent and first % group == 0 and last == extent - 1:
        return "only the first group computed" if first == group else "last groups missing"
    if last == extent - 1:
        return f"last {kind} missing" if first == last and kind != "channel" else f"tail {kind}s missing"
    return f"first {kind}{'s' * (last > 0)} missing" if first == 0 else f"{kind}s missing"


def _zero(scene: Scene, name: str, detail: str, index: Selection) -> DefectEffect:
    def change(places: NDArray[np.intp]) -> NDArray[np.intp]:
        places[index] = -1
        return places

    return DefectEffect(name, detail, picked(scene, change))


def output_padding_dropped(scene: Scene) -> Iterator[DefectEffect]:
    """Yield explanations in which positions added by output_padding are left 0 or not read, on all axes or on one.

    These positions begin at s (O - 1) + E - P, for stride s, O positions of dst, effective kernel E and pads P in all.
    """
    if scene.conv is None or not find(scene.problem.operator).transposed:
        return
    firsts = {at: axis.span - axis.pad_begin - axis.pad_end for at, axis in enumerate(scene.conv.axes)}
    added = {at: first for at, first in firsts.items() if 0 < first < scene.conv.axes[at].src}
    choices = [tuple(added), *((at,) for at in added if len(added) > 1)]
    for axes in filter(None, choices):
        extents = [a.src for a in scene.conv.axes]
        grids = np.ix_(*(np.arange(extent) for extent in extents))
        beyond = np.zeros(extents, np.bool_)
        for at in axes:
            beyond |= grids[at] >= added[at]
        words = " and ".join(f"axis {at} from {added[at]}" for at in axes)
        if scene.problem.solves_for == "src":
            yield _zero(scene, "output_padding dropped", f"on {words} left 0", (..., beyond))
        else:
            yield _without(scene, "output_padding dropped", f"on {words} not read", "src", (..., beyond))
