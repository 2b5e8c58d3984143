"""The exact results that define every operator: sums over existing taps in float64, written for readers, not for speed.

A tap exists if i = p * stride + k * dilation - pad_begin is a position of src. Padding has no other effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.array_types import Array, F64Array, Selection
from convgrad.float_environment import in_default_environment
from convgrad.formats import store
from convgrad.spec.activation import activate
from convgrad.spec.geometry import Axis, Channels, Conv
from convgrad.spec.operators import Tensor
from convgrad.spec.problem import Problem, canonical_shape

Operands = Mapping[Tensor, F64Array]


@dataclass(frozen=True)
class Answer:
    """The exact result in canonical axis order.

    ``value`` is the sum before rounding, after the activation if there is one. A sum that needs more than 53 bits is
    rounded to float64. ``magnitude`` is sum |x||y| before the activation, where infinities and NaN count as 0.
    ``terms`` is the number of products per element. ``integral`` means that all finite operands are integers.
    """

    value: F64Array
    magnitude: F64Array
    terms: NDArray[np.int64]
    integral: bool

    def rounded(self, problem: Problem) -> Array:
        """Return the value rounded once to the problem's output format. An exact zero is +0."""
        return store(self.value + 0.0, problem.output_format)


@in_default_environment
def evaluate(
    problem: Problem,
    operands: Sequence[Array],
    old: Array | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> Answer:
    """Return the exact result of a problem on canonical operands. An accumulating problem adds the ``old`` value.

    >>> from convgrad.notation import problem
    >>> one = problem("BWD_W f32 NXC mb1ic1iw3oc1ow3kw3pw1")
    >>> x = np.arange(1.0, 4.0).reshape(1, 1, 3)
    >>> evaluate(one, [x, x]).value.ravel().tolist(), evaluate(one, [x, x]).terms.ravel().tolist()
    ([8.0, 14.0, 8.0], [2, 3, 2])
    """
    if problem.accumulate and old is None:
        raise ValueError("an accumulating problem needs the old value it adds to")
    with np.errstate(all="ignore"):
        operands_f64: dict[Tensor, F64Array] = {
            tensor: np.asarray(array).astype(np.float64)
            for tensor, array in zip(problem.operands, operands, strict=True)
        }
        finite = {tensor: np.where(np.isfinite(array), array, 0.0) for tensor, array in operands_f64.items()}
        absolute: dict[Tensor, F64Array] = {tensor: np.abs(array) for tensor, array in finite.items()}
        value = _solve(problem, operands_f64, lambda share: progress(share / 2))
        magnitude = _solve(problem, absolute, lambda share: progress((1 + share) / 2))
        integral = all(np.array_equal(array, np.rint(array)) for array in finite.values())
        if problem.accumulate and old is not None:
            before = old.astype(np.float64)
            value = value + before
            magnitude = magnitude + np.abs(np.where(np.isfinite(before), before, 0.0))
            integral = integral and np.array_equal(before, np.rint(before), equal_nan=True)
    return Answer(activate(value, problem), magnitude, count_terms(problem, value.shape), integral)


def _solve(problem: Problem, arrays: Operands, progress: Callable[[float], None]) -> F64Array:
    value = _SOLVERS[problem.solves_for](problem.geometry, arrays, progress)
    if "bias" in arrays:
        value = value + arrays["bias"].reshape(1, -1, *[1] * (value.ndim - 2))
    return value


def count_terms(problem: Problem, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the number of products of each output element. ``shape`` is the output's canonical shape.

    In forwards and data gradients, this is the number of existing taps times the number of summed channels. In weight
    gradients, it is the number of positions at which the tap exists times the number of images.
    """
    geometry, output = problem.geometry, problem.solves_for
    if isinstance(geometry, Channels):
        return np.full(shape, geometry.batch * geometry.positions if output == "bias" else 1)
    beside = {
        "dst": geometry.src_channels // geometry.groups,
        "src": geometry.dst_channels // geometry.groups,
        "weights": geometry.batch,
    }
    counted = np.full((), beside[output], np.int64)
    for axis in geometry.axes:
        along = np.zeros({"dst": axis.dst, "src": axis.src, "weights": axis.kernel}[output], np.int64)
        for k in range(axis.kernel):
            i, p = _meetings(axis, k)
            if output == "weights":
                along[k] = p.size
            else:
                along[p if output == "dst" else i] += 1
        counted = np.multiply.outer(counted, along)
    return np.broadcast_to(counted, shape)


def max_terms(problem: Problem) -> int:
    """Return the number of products of the output element that has the most."""
    spatial = canonical_shape(problem.geometry, problem.output)[2:]  # the number does not depend on channels or images
    return int(count_terms(problem, () if isinstance(problem.geometry, Channels) else spatial).max(initial=0))


def _taps(conv: Conv, progress: Callable[[float], None]) -> Iterator[tuple[Selection, Selection, Selection]]:
    """Yield, per tap, indices k, i and p into the last axes of weights, src and dst.

    The indices i and p select all pairs of positions that meet under the tap.
    """
    for number, tap in enumerate(product(*(range(k) for k in conv.kernel))):
        progress(number / conv.taps)
        meetings = [_meetings(axis, k) for axis, k in zip(conv.axes, tap, strict=True)]
        yield (..., *tap), (..., *np.ix_(*(i for i, _ in meetings))), (..., *np.ix_(*(p for _, p in meetings)))


def _meetings(axis: Axis, k: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    from_first = k * axis.dilation - axis.pad_begin
    p = counted_from_0(axis.dst, axis.stride, from_first)
    i = p * axis.stride + from_first
    existing = (i >= 0) & (i < axis.src)
    return i[existing].astype(np.intp), p[existing].astype(np.intp)


def counted_from_0(count: int, *factors: int) -> Array:
    """Return 0, 1, ... as an array, of Python's integers if sums of products with ``factors`` may exceed 64 bits."""
    is_small = max(1, count) * sum(map(abs, factors)) < 2**62
    return np.arange(count, dtype=np.int64 if is_small else object)


def _grouped(array: F64Array, groups: int, channel_axis: int) -> F64Array:
    """Split the channel axis into (group, channel within the group)."""
    shape = list(array.shape)
    shape[channel_axis : channel_axis + 1] = [groups, shape[channel_axis] // groups]
    return array.reshape(shape)


def _matrices(array: F64Array) -> F64Array:
    """Flatten the positions of (n, g, c, X...) to one matrix (c, X) per image and group."""
    return array.reshape(*array.shape[:3], prod(array.shape[3:]))


def _solve_dst(conv: Conv, arrays: Operands, progress: Callable[[float], None]) -> F64Array:
    """Return dst[n, o, p] = sum over k, c of weights[o, c, k] src[n, c, i]."""
    src, weights = _grouped(arrays["src"], conv.groups, 1), _grouped(arrays["weights"], conv.groups, 0)
    dst = _grouped(np.zeros(conv.dst_shape), conv.groups, 1)
    for k, i, p in _taps(conv, progress):
        products = weights[k] @ _matrices(src[i])
        dst[p] += products.reshape(dst[p].shape)
    return dst.reshape(conv.dst_shape)


def _solve_src(conv: Conv, arrays: Operands, progress: Callable[[float], None]) -> F64Array:
    """Return src[n, c, i] = sum over k, o of weights[o, c, k] dst[n, o, p]."""
    dst, weights = _grouped(arrays["dst"], conv.groups, 1), _grouped(arrays["weights"], conv.groups, 0)
    src = _grouped(np.zeros(conv.src_shape), conv.groups, 1)
    for k, i, p in _taps(conv, progress):
        products = weights[k].swapaxes(-1, -2) @ _matrices(dst[p])
        src[i] += products.reshape(src[i].shape)
    return src.reshape(conv.src_shape)


def _solve_weights(conv: Conv, arrays: Operands, progress: Callable[[float], None]) -> F64Array:
    """Return weights[o, c, k] = sum over n, p of dst[n, o, p] src[n, c, i]."""
    src, dst = _grouped(arrays["src"], conv.groups, 1), _grouped(arrays["dst"], conv.groups, 1)
    weights = _grouped(np.zeros(conv.weights_shape), conv.groups, 0)
    for k, i, p in _taps(conv, progress):
        products = _matrices(dst[p]) @ _matrices(src[i]).swapaxes(-1, -2)
        weights[k] = products.sum(axis=0)
    return weights.reshape(conv.weights_shape)


def _solve_bias_add(channels: Channels, arrays: Operands, progress: Callable[[float], None]) -> F64Array:
    """Return dst with dst[n, c, p] = src[n, c, p]. The caller adds the bias, as in every forward."""
    return arrays["src"]


def _solve_bias(channels: Channels, arrays: Operands, progress: Callable[[float], None]) -> F64Array:
    """Return bias[c] = sum over n, p of dst[n, c, p]."""
    return np.asarray(arrays["dst"].sum(axis=(0, *range(2, arrays["dst"].ndim))))


_SOLVERS: Mapping[str, Callable[[Any, Operands, Callable[[float], None]], F64Array]] = {
    "dst": _solve_dst,
    "src": _solve_src,
    "weights": _solve_weights,
    "bias_add": _solve_bias_add,
    "bias": _solve_bias,
}
