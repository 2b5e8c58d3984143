"""Defects of attributes: misread strides, dilations or pads, or a flipped kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from convgrad.spec.geometry import Axis
from convgrad.spec.operators import find
from convgrad.verify.diagnose.fit import DefectEffect
from convgrad.verify.diagnose.make import between, flipped, padded, padded_dst, spatial, with_axes
from convgrad.verify.diagnose.sums import Scene

Misread = Callable[[Axis], Axis]


def _moved(by: int) -> Misread:
    return lambda axis: replace(axis, pad_begin=axis.pad_begin + by)


# For each defect, the function that returns an axis with misread attributes.
# Extents do not change; positions that no tap reaches have no terms.
MISREAD: Mapping[str, Misread] = {
    "stride ignored": lambda axis: replace(axis, stride=1),
    "dilation ignored": lambda axis: replace(axis, dilation=1),
    "stride and dilation exchanged": lambda axis: replace(axis, stride=axis.dilation, dilation=axis.stride),
    "padding ignored": lambda axis: replace(axis, pad_begin=0),
    "pads exchanged": lambda axis: replace(axis, pad_begin=axis.pad_end, pad_end=axis.pad_begin),
    "pad too large by one": _moved(1),
    "pad too small by one": _moved(-1),
    "pad counted twice": lambda axis: replace(axis, pad_begin=2 * axis.pad_begin),
    "pad times dilation": lambda axis: replace(axis, pad_begin=axis.pad_begin * axis.dilation),
    "pad times stride": lambda axis: replace(axis, pad_begin=axis.pad_begin * axis.stride),
    "kernel aligned at its other end": lambda axis: replace(axis, pad_begin=axis.effective_kernel - 1 - axis.pad_begin),
}
ODD = "odd pad on the wrong side"


def misread(scene: Scene) -> Iterator[DefectEffect]:
    """Yield explanations in which attributes are misread as in ``MISREAD``, on all axes, then on each axis alone."""
    if scene.conv is None:
        return
    axes = scene.conv.axes
    tried = {axes}
    for name, change in MISREAD.items():
        every = tuple(change(axis) for axis in axes)
        changes = [("", every)]
        changes += [(f"on axis {at}", (*axes[:at], every[at], *axes[at + 1 :])) for at in range(len(axes))]
        for where, other in changes:
            if other in tried or any(axis.stride < 1 or axis.dilation < 1 for axis in other):
                continue
            tried.add(other)
            odd = name == "pads exchanged" and all(abs(a.pad_begin - a.pad_end) <= 1 for a in axes)
            yield DefectEffect(ODD if odd else name, where, with_axes(scene, scene.conv, other))


def axes_swapped(scene: Scene) -> Iterator[DefectEffect]:
    """Yield explanations in which strides, dilations or pads apply to the axes in reverse order."""
    if scene.conv is None:
        return
    axes = scene.conv.axes
    for field in ("stride", "dilation", "pad_begin"):
        values = [getattr(axis, field) for axis in axes]
        if len(set(values)) > 1:
            other = tuple(replace(a, **{field: v}) for a, v in zip(axes, reversed(values), strict=True))
            what = {"stride": "strides", "dilation": "dilations", "pad_begin": "pads"}[field]
            yield DefectEffect("axes exchanged", f"{what} in reverse order", with_axes(scene, scene.conv, other))


def kernel_flipped(scene: Scene) -> Iterator[DefectEffect]:
    """Yield explanations with the taps in reverse order, on all axes, then on each axis alone."""
    if scene.conv is None:
        return
    at = [axis for axis, extent in enumerate(scene.conv.kernel) if extent > 1]
    choices = [tuple(at), *((axis,) for axis in at if len(at) > 1)]
    for axes in filter(None, choices):
        where = "" if len(axes) == len(at) else f"on axis {axes[0]}"
        yield DefectEffect("kernel flipped", where, flipped(scene, "weights", spatial(axes)))


def pads_filled(scene: Scene) -> Iterator[DefectEffect]:
    """Yield explanations in which padding is not 0, but edge values, mirrored values or values from the other end."""
    conv = scene.conv
    if conv is None or scene.problem.solves_for == "src" or not any(a.pad_begin or a.pad_end for a in conv.axes):
        return
    for mode, words in (("edge", "edge values"), ("reflect", "mirrored"), ("wrap", "from the other end")):
        if mode == "reflect" and any(a.src == 1 for a in conv.axes):
            continue
        sums = padded(scene, conv, mode)
        if sums is not None:
            yield DefectEffect("padding not 0", f"reads {words}", sums)


def input_padded(scene: Scene) -> Iterator[DefectEffect]:
    """Yield explanations of a transposed layer in which its input is padded, by its pads or as far as taps reach.

    The padding of a transposed layer crops its output. A padding of the input by zeros shifts the output, and one by
    other values adds terms near the border.
    """
    conv = scene.conv
    if conv is None or not find(scene.problem.operator).transposed:
        return
    for words, cropped in (("and the output is cropped too", True), ("instead of cropping the output", False)):
        axes = tuple(replace(a, pad_begin=(a.pad_begin if cropped else 0) - a.pad_begin * a.stride) for a in conv.axes)
        if axes != conv.axes:
            yield DefectEffect("input padded", f"with zeros, {words}", with_axes(scene, conv, axes))
    if "dst" not in scene.tensors:
        return
    own = [(a.pad_begin, a.pad_end) for a in conv.axes]
    reach = [((a.effective_kernel - 1) // a.stride, (a.effective_kernel - 1) // a.stride) for a in conv.axes]
    for mode, words in (("edge", "edge values"), ("reflect", "mirrored values"), ("wrap", "values of the other end")):
        for widths in (own, reach) if own != reach else (own,):
            fits = all(max(width) < a.dst for width, a in zip(widths, conv.axes, strict=True))
            is_tried = any(map(any, widths)) and (mode == "edge" or fits)
            sums = padded_dst(scene, conv, widths, mode) if is_tried else None
            if sums is not None:
                yield DefectEffect("input padded", f"with {words}", sums)


def padding_multiplied(scene: Scene) -> Iterator[DefectEffect]:
    """Yield the explanation that zeros of the padding are multiplied: 0 times NaN or infinity is NaN."""
    if scene.conv is None or all(np.isfinite(a.astype(np.float32)).all() for a in scene.operands):
        return
    sums = between(scene) if scene.problem.solves_for == "src" else padded(scene, scene.conv, "constant")
    if sums is not None:
        yield DefectEffect("padding multiplied", "zeros times NaN or infinity", sums)
