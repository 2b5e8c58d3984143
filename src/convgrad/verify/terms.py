"""The terms of one output element: the values of the operands that are multiplied, and their indices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.array_types import Array, F64Array, Selection
from convgrad.spec.exact_result import counted_from_0
from convgrad.spec.geometry import Axis, Channels, Conv
from convgrad.spec.problem import Problem

Index = tuple[int, ...]
Indices = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Terms:
    """The terms of one output element: the products ``x * y`` in float64, which are exact for all types but f64.

    The first axis of ``x`` and ``y`` has the images of a weight or bias gradient, otherwise the channels of a group.
    One axis per spatial axis follows, with positions or taps in order, without padding. ``added`` has the values that
    are added without a product: bias, then the old value.
    """

    x: F64Array
    y: F64Array
    added: tuple[float, ...] = ()

    @property
    def products(self) -> F64Array:
        """The products x * y, with the axes of x and y."""
        return self.x * self.y


def terms_of(problem: Problem, operands: Sequence[Array], index: Index, old: Array | None = None) -> Terms:
    """Return the terms of the canonical output element at ``index``; operands are canonical.

    >>> from convgrad.notation import problem
    >>> small = problem("BWD_W f32 NXC mb1ic1iw3oc1ow3kw3pw1")
    >>> terms_of(small, [np.arange(1.0, 4.0).reshape(1, 1, 3)] * 2, (0, 0, 0)).products.tolist()
    [[2.0, 6.0]]
    """
    tensors = dict(zip(problem.operands, operands, strict=True))
    added = (float(tensors["bias"][index[1]]),) if "bias" in tensors else ()
    if old is not None:
        added = (*added, float(old[index]))
    x, y = _PICK[problem.solves_for](problem.geometry, tensors, index)
    return Terms(_wide(x), _wide(y), added)


def _wide(values: Array) -> F64Array:
    return np.ascontiguousarray(values, np.float64)


def _dst(conv: Conv, tensors: dict[str, Array], index: Index) -> tuple[Array, Array]:
    n, o, *positions = index
    first, channels = _group(o, conv.dst_channels, conv.src_channels, conv.groups)
    meetings = [_taps_of_dst(axis, p) for axis, p in zip(conv.axes, positions, strict=True)]
    src = tensors["src"][n, first : first + channels]
    return _at(src, [i for i, _ in meetings]), _at(tensors["weights"][o], [k for _, k in meetings])


def _src(conv: Conv, tensors: dict[str, Array], index: Index) -> tuple[Array, Array]:
    n, c, *positions = index
    per_group = conv.src_channels // conv.groups
    first, channels = _group(c, conv.src_channels, conv.dst_channels, conv.groups)
    meetings = [_taps_of_src(axis, i) for axis, i in zip(conv.axes, positions, strict=True)]
    weights = tensors["weights"][first : first + channels, c % per_group]
    return _at(tensors["dst"][n, first : first + channels], [p for p, _ in meetings]), _at(
        weights, [k for _, k in meetings]
    )


def _weights(conv: Conv, tensors: dict[str, Array], index: Index) -> tuple[Array, Array]:
    o, c, *tap = index
    first, _ = _group(o, conv.dst_channels, conv.src_channels, conv.groups)
    meetings = [_positions_of(axis, k) for axis, k in zip(conv.axes, tap, strict=True)]
    return _at(tensors["src"][:, first + c], [i for i, _ in meetings]), _at(
        tensors["dst"][:, o], [p for _, p in meetings]
    )


def _bias(channels: Channels, tensors: dict[str, Array], index: Index) -> tuple[Array, Array]:
    values = tensors["dst"][:, index[0]]
    return values, np.broadcast_to(np.float64(1), values.shape)


def _bias_add(channels: Channels, tensors: dict[str, Array], index: Index) -> tuple[Array, Array]:
    shape = (1,) * (1 + len(channels.extents))
    return tensors["src"][index].reshape(shape), np.ones(shape)


def _group(channel: int, of: int, others: int, groups: int) -> tuple[int, int]:
    """Return the first channel and the number of channels of the other tensor that are in a channel's group."""
    per_group = others // groups
    return channel // (of // groups) * per_group, per_group


def _at(array: Array, indices_of_axes: Sequence[Indices]) -> Array:
    """Return the values of an array at these indices of its last axes."""
    indices: Selection = (..., *map(_slice, indices_of_axes))
    picked: Array = array[indices]
    return picked


def _slice(indices: Indices) -> slice:
    """Return equally spaced indices along an axis as a slice."""
    if indices.size < 2:
        return slice(int(indices[0]), int(indices[0]) + 1) if indices.size else slice(0)
    step, stop = int(indices[1] - indices[0]), int(2 * indices[-1] - indices[-2])
    return slice(int(indices[0]), stop if stop >= 0 else None, step)


def _positions_of(axis: Axis, k: int) -> tuple[Indices, Indices]:
    """Return the source and destination positions along an axis that a tap connects."""
    first = k * axis.dilation - axis.pad_begin
    p = counted_from_0(axis.dst, axis.stride, first)
    i = p * axis.stride + first
    exists = (i >= 0) & (i < axis.src)
    return i[exists].astype(np.intp), p[exists].astype(np.intp)


def _taps_of_dst(axis: Axis, p: int) -> tuple[Indices, Indices]:
    """Return the source positions that a destination position sums, and the tap of each."""
    first = p * axis.stride - axis.pad_begin
    k = counted_from_0(axis.kernel, axis.dilation, first)
    i = first + k * axis.dilation
    exists = (i >= 0) & (i < axis.src)
    return i[exists].astype(np.intp), k[exists].astype(np.intp)


def _taps_of_src(axis: Axis, i: int) -> tuple[Indices, Indices]:
    """Return the destination positions to whose sums a source position contributes, and the tap of each."""
    first = i + axis.pad_begin
    k = counted_from_0(axis.kernel, axis.dilation, first, axis.stride)
    p, off = (first - k * axis.dilation) // axis.stride, (first - k * axis.dilation) % axis.stride
    exists = (off == 0) & (p >= 0) & (p < axis.dst)
    return p[exists].astype(np.intp), k[exists].astype(np.intp)


# For each output tensor: the function from an element's index along one axis to the indices of its factors x and y.
MEETINGS: Mapping[str, Callable[[Axis, int], tuple[Indices, Indices]]] = {
    "dst": _taps_of_dst,
    "src": _taps_of_src,
    "weights": _positions_of,
}

_PICK: dict[str, Any] = {"dst": _dst, "src": _src, "weights": _weights, "bias": _bias, "bias_add": _bias_add}
