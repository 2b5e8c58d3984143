"""Defects of `=` instead of `+=`: only the last image, channel, position or tap of a sum counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from convgrad.array_types import Array
from convgrad.spec.geometry import Axis
from convgrad.verify.diagnose.fit import DefectEffect
from convgrad.verify.diagnose.make import edited
from convgrad.verify.diagnose.sums import LastTerms, Scene

OVERWRITTEN = "overwritten instead of summed"
LOOPS = 4  # sums over more loops are not searched
_POSITIONS = {1: ("position",), 2: ("row", "column"), 3: ("plane", "row", "column")}
_TAPS = {1: ("tap",), 2: ("row of taps", "column of taps"), 3: ("plane of taps", "row of taps", "column of taps")}


def overwritten(scene: Scene) -> Iterator[DefectEffect]:
    """Yield explanations in which only the last term along some axes of a sum counts.

    The axes are those of the loops over images and positions, or over channels and taps. Loops may skip padding, or
    multiply it. If padding is multiplied, the last term of some elements is 0.
    """
    conv, output = scene.conv, scene.problem.solves_for
    if output in ("weights", "bias"):
        tensor, first = "dst", scene.tensors["dst"].shape[0]
    elif conv is not None and output in ("dst", "src"):
        tensor = "weights"
        first = (conv.src_channels if output == "dst" else conv.dst_channels) // conv.groups
    else:
        return
    extents = (first, *scene.tensors[tensor].shape[2:])
    if not 2 <= len(extents) <= LOOPS:
        return
    long = [axis for axis, extent in enumerate(extents) if extent > 1]
    for axes in (chosen for count in range(1, len(long) + 1) for chosen in combinations(long, count)):
        words = f"only the last {_last(axes, long, len(extents) - 1, tensor)} counts"
        yield DefectEffect(OVERWRITTEN, words, LastTerms(edited(scene, {}), axes))
        places = [axis - 1 for axis in axes if axis > 0]
        if conv is not None and any(_meets_padding(conv.axes[at], output) for at in places):
            kept = edited(scene, {tensor: lambda array, places=places: _kept(array, places)})  # type: ignore[misc]
            sums = LastTerms(kept, (0,)) if axes[0] == 0 else kept
            yield DefectEffect(OVERWRITTEN, f"{words}, padding included", sums)


def _meets_padding(axis: Axis, output: str) -> bool:
    return output == "src" or axis.pad_begin > 0 or axis.pad_end > 0


def _kept(array: Array, places: Sequence[int]) -> Array:
    """Return a copy of an array with zeros, except at the last index along these spatial axes."""
    index = (..., *(slice(-1 if at in places else None, None) for at in range(array.ndim - 2)))
    kept = np.zeros_like(array)
    kept[index] = array[index]
    return kept


def _last(axes: Sequence[int], long: Sequence[int], rank: int, tensor: str) -> str:
    """Return the last term in words: a row of each image, a tap of the last channel."""
    outer, whole, spatial = ("image", "position", _POSITIONS) if tensor == "dst" else ("channel", "tap", _TAPS)
    if list(axes) == [0]:
        return outer
    at = [axis for axis in axes if axis > 0]
    every = len(at) == sum(axis > 0 for axis in long)
    name = whole if every else " and ".join(spatial[rank][axis - 1] for axis in at)
    if 0 not in long:
        return name
    return f"{name} of the last {outer}" if 0 in axes else f"{name} of each {outer}"
