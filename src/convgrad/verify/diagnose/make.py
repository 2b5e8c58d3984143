"""Variants of a problem that defects compute: other attributes, changed operands, or padding read as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from convgrad.array_types import Array, Selection
from convgrad.spec.geometry import Axis, Conv
from convgrad.verify.diagnose.sums import DefectSums, Instead, Picked, Scene

Change = Callable[[Array], Array]

LARGE = 2**24  # maximum number of elements of an operand that is copied, and of a padded copy


def spatial(axes: Sequence[int]) -> tuple[int, ...]:
    """Return the axis numbers of these spatial axes in a canonical tensor."""
    return tuple(axis + 2 for axis in axes)


def edited(scene: Scene, changes: Mapping[str, Change]) -> Instead:
    """Return the sums of the problem with changed operands; ``changes`` has a function per changed tensor."""

    def operands() -> tuple[Array, ...]:
        return tuple(changes[t](array) if t in changes else array for t, array in scene.tensors.items())

    return Instead(scene.problem, operands, scene.got.shape, _old(scene))


def with_axes(scene: Scene, conv: Conv, axes: tuple[Axis, ...]) -> DefectSums:
    """Return the sums of the problem with other strides, dilations or pads, and the same extents."""
    problem = replace(scene.problem, geometry=replace(conv, axes=axes))
    return Instead(problem, tuple(scene.operands), scene.got.shape, _old(scene))


def padded(scene: Scene, conv: Conv, mode: str) -> DefectSums | None:
    """Return the sums of the problem whose padding has the values of ``numpy.pad`` in this mode; None if too large."""
    lows = [axis.pad_begin for axis in conv.axes]
    highs = [max(0, axis.span - axis.pad_begin - axis.src) for axis in conv.axes]
    src = _padded(scene.tensors["src"], [*zip(lows, highs, strict=True)], mode)
    if src is None:
        return None
    axes = tuple(replace(a, src=a.src + b + e, pad_begin=0) for a, b, e in zip(conv.axes, lows, highs, strict=True))
    wide = replace(conv, axes=axes)
    tensors = {**scene.tensors, "src": src}
    return Instead(replace(scene.problem, geometry=wide), tuple(tensors.values()), scene.got.shape, _old(scene))


def padded_dst(scene: Scene, conv: Conv, widths: Sequence[tuple[int, int]], mode: str) -> DefectSums | None:
    """Return the sums of a problem whose dst is padded by ``numpy.pad``, at the same places; None if too large."""
    dst = _padded(scene.tensors["dst"], widths, mode)
    if dst is None:
        return None
    axes = tuple(
        replace(a, dst=a.dst + begin + end, pad_begin=a.pad_begin + begin * a.stride)
        for a, (begin, end) in zip(conv.axes, widths, strict=True)
    )
    tensors = {**scene.tensors, "dst": dst}
    return Instead(
        replace(scene.problem, geometry=replace(conv, axes=axes)), tuple(tensors.values()), scene.got.shape, _old(scene)
    )


def _old(scene: Scene) -> Array | None:
    return scene.old if scene.problem.accumulate else None


def _padded(array: Array, widths: Sequence[tuple[int, int]], mode: str) -> Array | None:
    """Return an array, padded by ``numpy.pad`` along its spatial axes; None if it is empty or the copy is too large."""
    if not array.size or _is_large(
        [*array.shape[:2], *(n + sum(width) for n, width in zip(array.shape[2:], widths, strict=True))]
    ):
        return None
    padded: Array = np.pad(array, [(0, 0), (0, 0), *widths], mode=mode)  # type: ignore[call-overload]
    return padded


def _is_large(shape: Sequence[int]) -> bool:
    return prod(shape) > LARGE


def between(scene: Scene) -> DefectSums | None:
    """Return a data gradient's sums as a forward pass over diff_dst with zeros between and around its values.

    Return None for other passes, if pads would move values of diff_dst outside of the padded array, or if this array
    would be too large.
    """
    conv = scene.conv
    if conv is None or scene.problem.solves_for != "src":
        return None
    dst, weights = scene.tensors["dst"], scene.tensors["weights"]
    axes, places = [], []
    extents = [axis.src + axis.effective_kernel - 1 for axis in conv.axes]
    if _is_large([conv.batch, conv.dst_channels, *extents]):
        return None
    for axis, extent in zip(conv.axes, extents, strict=True):
        before = axis.effective_kernel - 1 - axis.pad_begin
        places.append(before + axis.stride * np.arange(axis.dst))
        axes.append(Axis(extent, axis.src, axis.kernel, 1, axis.dilation))
    if any(p[0] < 0 or p[-1] >= a.src for p, a in zip(places, axes, strict=True)):
        return None
    spread = np.zeros((conv.batch, conv.dst_channels, *extents), dst.dtype)
    spread[np.ix_(np.arange(conv.batch), np.arange(conv.dst_channels), *places)] = dst
    swapped = _swapped(conv, weights)
    turned = np.flip(swapped, spatial(range(len(axes))))
    problem = replace(
        scene.problem,
        solves_for="dst",
        geometry=Conv(conv.batch, conv.groups, conv.dst_channels, conv.src_channels, tuple(axes)),
        operands=("src", "weights", *(t for t in scene.problem.operands if t == "bias")),
    )
    bias = (scene.tensors["bias"],) if "bias" in scene.tensors else ()
    return Instead(problem, (spread, turned, *bias), scene.got.shape, _old(scene))


def _swapped(conv: Conv, weights: Array) -> Array:
    """Return weights [O, C/g, K...] with input and output channels exchanged: [C, O/g, K...]."""
    g, o, c = conv.groups, conv.dst_channels // conv.groups, conv.src_channels // conv.groups
    grouped = weights.reshape(g, o, c, *conv.kernel)
    return np.moveaxis(grouped, 1, 2).reshape(g * c, o, *conv.kernel)


def flipped(scene: Scene, tensor: str, axes: tuple[int, ...]) -> DefectSums:
    """Return the sums with an operand or the result flipped along some axes."""
    if tensor == scene.problem.output:
        return picked(scene, lambda places: np.flip(places, axes))
    return edited(scene, {tensor: lambda array: np.flip(array, axes)})


def picked(scene: Scene, change: Callable[[NDArray[np.intp]], NDArray[np.intp]]) -> Picked:
    """Return the exact sums moved to other elements: ``change`` maps the array of flat indices; -1 means 0."""
    shape = scene.got.shape
    return Picked(scene.exact, lambda: change(np.arange(scene.got.size).reshape(shape)))


def zeroed(array: Array, index: Selection | int) -> Array:
    """Return a copy of an array with zeros at an index."""
    other = np.array(array)
    other[index] = 0
    return other


def along(axis: int, what: int | slice | NDArray[np.int64] | NDArray[np.bool_]) -> Selection:
    """Return an index that selects ``what`` along an axis and everything along the axes before it."""
    return (*(slice(None),) * axis, what)
