"""Conversion of operands to those of slices, and of the results of slices back.

A slice is an image at one position of the axis that is summed directly. The src channels of a slice are those at each
tap of this axis. ``algorithms.in_slices`` has the geometry. A data gradient becomes a forward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from convgrad.spec.geometry import Axis, Conv
from convgrad.spec.operators import Tensor
from convgrad.spec.problem import Problem
from convgrad.spec.winograd.algorithms import DATA, aligned, as_forward, in_slices, slots

AnyFloat = TypeVar("AnyFloat", np.float32, np.float64)


def problem_in_slices(problem: Problem) -> Problem:
    """Return the problem of the slices: a weight gradient, or a forward."""
    conv = _conv(problem)
    tiles = [*problem.algorithm.split("x"), "1"]
    name = "x".join(tiles[-1 if axis is None else axis] for axis in slots(conv)[1:])
    if problem.solves_for == "weights":
        return replace(problem, geometry=in_slices(conv), algorithm=name)
    return replace(
        problem,
        geometry=in_slices(conv),
        algorithm=name,
        solves_for="dst",
        output="dst",
        operands=("src", "weights", *problem.operands[2:]),
    )


def arrays_in_slices(problem: Problem, arrays: Mapping[Tensor, NDArray[AnyFloat]]) -> dict[Tensor, NDArray[AnyFloat]]:
    """Return the operands of the slices, from those of the problem."""
    conv = _conv(problem)
    data = _gathered(_aligned(conv, arrays[DATA[problem.solves_for]]), aligned(conv)[0])
    operands: dict[Tensor, NDArray[AnyFloat]] = {"src": data}
    if problem.solves_for == "weights":
        dst = _aligned(conv, arrays["dst"]).swapaxes(1, 2)
        return operands | {"dst": dst.reshape(-1, *dst.shape[2:])}
    weights = arrays["weights"]
    if problem.solves_for == "src":
        weights = np.flip(weights.swapaxes(0, 1), tuple(range(2, weights.ndim)))
    weights = _aligned(conv, weights).swapaxes(1, 2)
    operands["weights"] = weights.reshape(len(weights), -1, *weights.shape[3:])
    return operands | {name: arrays[name] for name in arrays if name == "bias"}


def from_slices(problem: Problem, result: NDArray[AnyFloat]) -> NDArray[AnyFloat]:
    """Return the result of a problem from the result of its slices."""
    conv = _conv(problem)
    directly, (first, second, *sizes) = aligned(conv)[0], result.shape
    if problem.solves_for == "weights":
        array = result.reshape(first, directly.kernel, -1, *sizes)
    else:
        array = result.reshape(-1, directly.dst, second, *sizes)
    array = array.swapaxes(1, 2)
    axes = [number for number, axis in enumerate(slots(conv)) if axis is not None]
    missing = tuple(2 + number for number in range(3) if number not in axes)
    array = array.squeeze(missing)
    back = np.argsort([axis for axis in slots(conv) if axis is not None])
    return array.transpose(0, 1, *(2 + back))


def _conv(problem: Problem) -> Conv:
    """Return the geometry of a problem's weight gradient, or of its forward."""
    assert isinstance(problem.geometry, Conv)
    return problem.geometry if problem.solves_for == "weights" else as_forward(problem.geometry, problem.solves_for)


def _aligned(conv: Conv, array: NDArray[AnyFloat]) -> NDArray[AnyFloat]:
    """Return an array with three spatial axes: the axis that is summed directly, rows, and columns."""
    present = [axis for axis in slots(conv) if axis is not None]
    array = array.transpose(0, 1, *(2 + axis for axis in present))
    return np.expand_dims(array, tuple(2 + number for number, axis in enumerate(slots(conv)) if axis is None))


def _gathered(array: NDArray[AnyFloat], axis: Axis) -> NDArray[AnyFloat]:
    """Return the slices that tiles meet: (images at each position, channels at each tap, rows, columns)."""
    before, after = max(0, axis.pad_begin), max(0, axis.span - axis.pad_begin - axis.src)
    pads: Sequence[tuple[int, int]] = [(0, 0), (0, 0), (before, after), (0, 0), (0, 0)]
    padded = np.pad(array, pads)[:, :, before - axis.pad_begin :]
    taps = [padded[:, :, tap : tap + axis.dst] for tap in range(axis.kernel)]
    gathered = np.stack(taps, 1).transpose(0, 3, 1, 2, 4, 5)  # image, position, tap, channel, row, column
    images, positions, count, channels, *sizes = gathered.shape
    return gathered.reshape(images * positions, count * channels, *sizes)
