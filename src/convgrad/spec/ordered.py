"""A reference computation of any problem in the specified order of sums, with exactly the specified bits.

The code is simple and slow, for small data: arrays have the terms of all outputs, including absent terms. An absent
term is 0 * 0, which has the same effect as skipping it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.array_types import Array
from convgrad.float_environment import in_default_environment
from convgrad.spec.activation import activate
from convgrad.spec.chains import sum_in_order
from convgrad.spec.geometry import Axis, Channels, Conv
from convgrad.spec.operators import Tensor
from convgrad.spec.order import order_of
from convgrad.spec.problem import Problem
from convgrad.spec.winograd.execution import by_tiles

F32Array = NDArray[np.float32]


@in_default_environment
def evaluate_in_order(problem: Problem, operands: Sequence[Array], old: Array | None = None) -> Array:
    """Return the result of a problem in canonical axes, with the bits of the specified order. Operands are not f64.

    >>> from convgrad.notation import problem
    >>> x = np.arange(1, 4, dtype=np.float32).reshape(1, 1, 3)
    >>> evaluate_in_order(problem("BWD_W f32 NXC mb1ic1iw3oc1ow3kw3pw1"), [x, x]).ravel().tolist()
    [8.0, 14.0, 8.0]
    """
    with np.errstate(all="ignore"):
        arrays: dict[Tensor, F32Array] = {
            tensor: array.astype(np.float32) for tensor, array in zip(problem.operands, operands, strict=True)
        }
        sums = by_tiles(problem, arrays) if problem.algorithm else None
        if sums is None:
            x, y = _TERMS[problem.solves_for](problem.geometry, arrays)
            sums = sum_in_order(x, y, order_of(replace(problem, algorithm="")))
        if "bias" in arrays:
            sums = sums + arrays["bias"].reshape(1, -1, *[1] * (sums.ndim - 2))
        if problem.accumulate:
            if old is None:
                raise ValueError("an accumulating problem needs the old value it adds to")
            sums = sums + old.astype(np.float32)
        result = activate(sums, problem).astype(problem.output_format.dtype)
        return np.where(np.isnan(result), problem.output_format.dtype.type(np.nan), result)


# -- the terms of every output, on the full grid ----------------------------------------------------------------------


def _positions(conv: Conv) -> NDArray[np.intp]:
    """Return the flat position of src for every tap and position of dst, both row-major; -1 if it does not exist."""
    flat = np.zeros((conv.taps, conv.positions), np.intp)
    for row, taps in enumerate(product(*(range(a.kernel) for a in conv.axes))):
        along = [_along(axis, k) for axis, k in zip(conv.axes, taps, strict=True)]
        mesh = np.meshgrid(*along, indexing="ij")
        exists = np.all([m >= 0 for m in mesh], axis=0)
        index = np.zeros(exists.shape, np.intp)
        for axis, m in zip(conv.axes, mesh, strict=True):
            index = index * axis.src + m
        flat[row] = np.where(exists, index, -1).ravel()
    return flat


def _along(axis: Axis, k: int) -> NDArray[np.intp]:
    i = np.arange(axis.dst, dtype=np.intp) * axis.stride + k * axis.dilation - axis.pad_begin
    return np.where((i >= 0) & (i < axis.src), i, -1)


def _flat(array: F32Array, groups: int, channel_axis: int) -> F32Array:
    """Split the channel axis into group and channel, and flatten the axes after it."""
    head, tail = array.shape[:channel_axis], array.shape[channel_axis + 1 :]
    return array.reshape(*head, groups, array.shape[channel_axis] // groups, prod(tail))


def _of_dst(conv: Conv, arrays: Mapping[Tensor, F32Array]) -> tuple[F32Array, F32Array]:
    """Return both factors of the terms src[n, c, i] * weights[o, c, k]. The last axis has taps, then channels."""
    at = _positions(conv)
    src, weights = _flat(arrays["src"], conv.groups, 1), _flat(arrays["weights"], conv.groups, 0)
    x = np.where(at >= 0, src[..., np.maximum(at, 0)], 0)  # axes: n, g, c, k, p
    x = x.transpose(0, 1, 4, 3, 2)[:, :, None]  # axes: n, g, 1, p, k, c
    w = weights.reshape(conv.groups, -1, conv.src_channels // conv.groups, conv.taps).transpose(0, 1, 3, 2)
    y = np.broadcast_to(w[None, :, :, None], (*x.shape[:2], w.shape[1], *x.shape[3:]))
    y = np.where((at >= 0).T[:, :, None], y, 0)
    shape = (*conv.dst_shape, conv.taps * (conv.src_channels // conv.groups))
    return np.broadcast_to(x, y.shape).reshape(shape), y.reshape(shape)


def _of_src(conv: Conv, arrays: Mapping[Tensor, F32Array]) -> tuple[F32Array, F32Array]:
    """Return both factors of the terms dst[n, o, p] * weights[o, c, k]. The last axis has taps, then channels."""
    at = _positions(conv)
    dst, weights = _flat(arrays["dst"], conv.groups, 1), _flat(arrays["weights"], conv.groups, 0)
    per_group_out, per_group_in = conv.dst_channels // conv.groups, conv.src_channels // conv.groups
    sources = prod(a.src for a in conv.axes)
    x = np.zeros((conv.batch, conv.groups, sources, conv.taps, per_group_out), np.float32)
    exists = np.zeros((sources, conv.taps, 1), bool)
    for k in range(conv.taps):
        p = np.flatnonzero(at[k] >= 0)
        x[:, :, at[k][p], k] = dst[..., p].swapaxes(-1, -2)
        exists[at[k][p], k] = True
    w = weights.reshape(conv.groups, per_group_out, per_group_in, conv.taps).transpose(0, 2, 3, 1)  # axes: g, c, k, o
    y = np.where(exists, w[None, :, :, None], np.float32(0))  # axes: 1, g, c, i, k, o
    shape = (*conv.src_shape, conv.taps * per_group_out)
    whole = (conv.batch, conv.groups, per_group_in, sources, conv.taps, per_group_out)
    return np.broadcast_to(x[:, :, None], whole).reshape(shape), np.broadcast_to(y, whole).reshape(shape)


def _of_weights(conv: Conv, arrays: Mapping[Tensor, F32Array]) -> tuple[F32Array, F32Array]:
    """Return both factors of the terms src[n, c, i] * dst[n, o, p]. The last axis has images, then positions."""
    at = _positions(conv)
    src, dst = _flat(arrays["src"], conv.groups, 1), _flat(arrays["dst"], conv.groups, 1)
    x = np.where(at >= 0, src[..., np.maximum(at, 0)], 0)  # axes: n, g, c, k, p
    x = x.transpose(1, 2, 3, 0, 4)[:, None]  # axes: g, 1, c, k, n, p
    y = np.where(at[:, None] >= 0, dst.transpose(1, 2, 0, 3)[:, :, None, None], 0)  # axes: g, o, 1, k, n, p
    whole = np.broadcast_shapes(x.shape, y.shape)
    shape = (*conv.weights_shape, conv.batch * conv.positions)
    return np.broadcast_to(x, whole).reshape(shape), np.broadcast_to(y, whole).reshape(shape)


def _of_bias_add(channels: Channels, arrays: Mapping[Tensor, F32Array]) -> tuple[F32Array, F32Array]:
    src = arrays["src"][..., None]
    return src, np.ones_like(src)


def _of_bias(channels: Channels, arrays: Mapping[Tensor, F32Array]) -> tuple[F32Array, F32Array]:
    dst = arrays["dst"].swapaxes(0, 1).reshape(channels.channels, channels.batch * channels.positions)
    return dst, np.ones_like(dst)


_TERMS: Mapping[str, Any] = {
    "dst": _of_dst,
    "src": _of_src,
    "weights": _of_weights,
    "bias_add": _of_bias_add,
    "bias": _of_bias,
}
