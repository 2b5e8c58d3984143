"""The terms of one output element: which values of the operands meet in it, and where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.spec.geometry import Axis, Channels, Conv
from convgrad.spec.problem import Problem

Array = NDArray[Any]
F64Array = NDArray[np.float64]
Index = tuple[int, ...]
Met = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Terms:
    """The products of one output element: ``x * y``, element by element, in float64, exact for f32, bf16 and f16.

    Both arrays have one axis for what is summed beside the spatial axes (images of a weight or bias gradient, channels
    of a group otherwise), then one for each spatial axis (positions; taps), with existing taps only, in order.
    ``added`` are the values that enter without a product: bias, then the old value.
    """

    x: F64Array
    y: F64Array
    added: tuple[float, ...] = ()

    @property
    def products(self) -> F64Array:
        """The products, as they lie."""
        return self.x * self.y


def terms_of(problem: Problem, operands: Sequence[Array], index: Index, old: Array | None = None) -> Terms:
    """Return the terms of the canonical output element at ``index``, of canonical operands.

    >>> from convgrad.notation import problem
    >>> one = problem("BWD_W f32 NXC mb1ic1iw3oc1ow3kw3pw1")
    >>> terms_of(one, [np.arange(1.0, 4.0).reshape(1, 1, 3)] * 2, (0, 0, 0)).products.tolist()
    [[2.0, 6.0]]
    """
    given = dict(zip(problem.operands, operands, strict=True))
    added = (float(given["bias"][index[1]]),) if "bias" in given else ()
    if old is not None:
        added = (*added, float(old[index]))
    x, y = _PICK[problem.solves_for](problem.geometry, given, index)
    return Terms(_wide(x), _wide(y), added)


def _wide(values: Array) -> F64Array:
    return np.ascontiguousarray(values, np.float64)


def _dst(conv: Conv, given: dict[str, Array], index: Index) -> tuple[Array, Array]:
    n, o, *positions = index
    first, channels = _group(o, conv.dst_channels, conv.src_channels, conv.groups)
    met = [_taps_of_dst(axis, p) for axis, p in zip(conv.axes, positions, strict=True)]
    return _at(given["src"][n, first : first + channels], [i for _, i in met]), _at(
        given["weights"][o], [k for k, _ in met]
    )


def _src(conv: Conv, given: dict[str, Array], index: Index) -> tuple[Array, Array]:
    n, c, *positions = index
    per_group = conv.src_channels // conv.groups
    first, channels = _group(c, conv.src_channels, conv.dst_channels, conv.groups)
    met = [_taps_of_src(axis, i) for axis, i in zip(conv.axes, positions, strict=True)]
    weights = given["weights"][first : first + channels, c % per_group]
    return _at(given["dst"][n, first : first + channels], [p for _, p in met]), _at(weights, [k for k, _ in met])


def _weights(conv: Conv, given: dict[str, Array], index: Index) -> tuple[Array, Array]:
    o, c, *tap = index
    first, _ = _group(o, conv.dst_channels, conv.src_channels, conv.groups)
    met = [_positions_of(axis, k) for axis, k in zip(conv.axes, tap, strict=True)]
    return _at(given["src"][:, first + c], [i for i, _ in met]), _at(given["dst"][:, o], [p for _, p in met])


def _bias(channels: Channels, given: dict[str, Array], index: Index) -> tuple[Array, Array]:
    values = given["dst"][:, index[0]]
    return values, np.broadcast_to(np.float64(1), values.shape)


def _bias_add(channels: Channels, given: dict[str, Array], index: Index) -> tuple[Array, Array]:
    shape = (1,) * (1 + len(channels.extents))
    return given["src"][index].reshape(shape), np.ones(shape)


def _group(channel: int, of: int, others: int, groups: int) -> tuple[int, int]:
    """Return the first and the number of the other end's channels that meet a channel."""
    per_group = others // groups
    return channel // (of // groups) * per_group, per_group


def _at(array: Array, met: Sequence[Met]) -> Array:
    """Return the values of the last axes at what is met along each."""
    indices: Any = (..., *np.ix_(*met))
    picked: Array = array[indices]
    return picked


def _positions_of(axis: Axis, k: int) -> tuple[Met, Met]:
    """Return the source and destination positions that meet under a tap."""
    p = np.arange(axis.dst)
    i = p * axis.stride + k * axis.dilation - axis.pad_begin
    exists = (i >= 0) & (i < axis.src)
    return i[exists], p[exists]


def _taps_of_dst(axis: Axis, p: int) -> tuple[Met, Met]:
    """Return the existing taps of a destination position, and the source positions they meet."""
    k = np.arange(axis.kernel)
    i = p * axis.stride - axis.pad_begin + k * axis.dilation
    exists = (i >= 0) & (i < axis.src)
    return k[exists], i[exists]


def _taps_of_src(axis: Axis, i: int) -> tuple[Met, Met]:
    """Return the existing taps of a source position, and the destination positions they meet."""
    k = np.arange(axis.kernel)
    p, off = np.divmod(i + axis.pad_begin - k * axis.dilation, axis.stride)
    exists = (off == 0) & (p >= 0) & (p < axis.dst)
    return k[exists], p[exists]


_PICK: dict[str, Any] = {"dst": _dst, "src": _src, "weights": _weights, "bias": _bias, "bias_add": _bias_add}
