"""The arguments of a convolution of jax.lax as one checked value. Errors name the argument, as jax.lax calls it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import index
from typing import NoReturn, SupportsIndex, TypeAlias

import jax

from convgrad.errors import InvalidAttributeError, InvalidShapeError
from convgrad.jax.call import Array, check_shape
from convgrad.spec.geometry import convolution_pad_total, effective_kernel, forward_extent, split_pads

DimensionNumbers: TypeAlias = jax.lax.ConvDimensionNumbers | Sequence[str] | None
Pads = Sequence[tuple[int, int]]  # (low, high) per axis
Specs = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]  # of lhs, rhs and result
AUTO_PADS = {"SAME": "same_upper", "SAME_LOWER": "same_lower", "VALID": "valid"}


@dataclass(frozen=True)
class Window:
    """The geometry of a convolution of jax.lax: one value per spatial axis, and the numbers of groups.

    ``lhs_spec``, ``rhs_spec`` and ``out_spec`` are the axes of each array in canonical order, as in
    ``jax.lax.ConvDimensionNumbers``. ``groups`` is feature_group_count and ``batches`` is batch_group_count.
    """

    lhs_spec: tuple[int, ...]
    rhs_spec: tuple[int, ...]
    out_spec: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    lhs_dilation: tuple[int, ...]
    rhs_dilation: tuple[int, ...]
    groups: int = 1
    batches: int = 1

    def extents(self, lhs: Array) -> tuple[int, ...]:
        """Return the spatial extents of lhs."""
        return tuple(lhs.shape[axis] for axis in self.lhs_spec[2:])

    def reach(self, rhs: Array) -> list[int]:
        """Return how far the last tap of rhs is from the first on each axis; -1 if an axis has no taps."""
        kernel = (rhs.shape[axis] for axis in self.rhs_spec[2:])
        return [dilated(taps, dilation) - 1 for taps, dilation in zip(kernel, self.rhs_dilation, strict=True)]

    def result_extents(self, lhs: Array, rhs: Array) -> list[int]:
        """Return the spatial extents of the result. They are 0 where the padded lhs is smaller than rhs."""
        axes = zip(self.extents(lhs), self.lhs_dilation, self.reach(rhs), self.strides, self.pads, strict=True)
        return [
            max(0, forward_extent(dilated(extent, gap), reach + 1, stride, low + high))
            for extent, gap, reach, stride, (low, high) in axes
        ]


def dilated(extent: int, dilation: int) -> int:
    """Return the extent of an axis after ``dilation`` - 1 zeros were inserted between its positions.

    >>> dilated(3, 2), dilated(0, 2)
    (5, 0)
    """
    return effective_kernel(extent, dilation) if extent else 0


@dataclass(frozen=True)
class WindowArguments:
    """The arguments of conv_general_dilated that describe its window, as the caller passes them."""

    window_strides: Sequence[int]
    padding: str | Pads
    lhs_dilation: Sequence[int] | None
    rhs_dilation: Sequence[int] | None
    dimension_numbers: DimensionNumbers
    feature_group_count: int
    batch_group_count: int


def window(lhs: Array, rhs: Array, arguments: WindowArguments) -> Window:
    """Return the checked arguments of conv_general_dilated."""
    operator, padding = "conv_general_dilated", arguments.padding
    specs = dimensions(operator, lhs, rhs, arguments.dimension_numbers)
    axes = lhs.ndim - 2
    strides = per_axis(operator, "window_strides", arguments.window_strides, axes)
    gaps, dilations = (
        (1,) * axes if value is None else per_axis(operator, name, value, axes)
        for name, value in (("lhs_dilation", arguments.lhs_dilation), ("rhs_dilation", arguments.rhs_dilation))
    )
    groups = _positive(operator, "feature_group_count", arguments.feature_group_count)
    batches = _positive(operator, "batch_group_count", arguments.batch_group_count)
    auto_pad = _auto_pad(operator, padding, gaps) if isinstance(padding, str) else ""
    unpadded = Window(*specs, strides, ((0, 0),) * axes, gaps, dilations, groups, batches)
    _check_channels(operator, lhs, rhs, unpadded)
    if isinstance(padding, str):
        spans = zip(unpadded.extents(lhs), unpadded.reach(rhs), strides, strict=True)
        pads = tuple(_pads_of(auto_pad, extent, reach + 1, stride) for extent, reach, stride in spans)
    else:
        pads = pairs(operator, padding, axes)
    for extent, gap, (low, high) in zip(unpadded.extents(lhs), gaps, pads, strict=True):
        if low + high < -dilated(extent, gap):
            raise InvalidAttributeError(
                f"{operator}: negative padding must remove no more than the {dilated(extent, gap)} positions of an axis"
                f" of lhs; got {(low, high)}"
            )
    return Window(*specs, strides, pads, gaps, dilations, groups, batches)


def dimensions(operator: str, lhs: Array, rhs: Array, dimension_numbers: DimensionNumbers) -> Specs:
    """Return the axes of lhs, rhs and result in canonical order, after a check of ranks and shapes."""
    for name, array in (("lhs", lhs), ("rhs", rhs)):
        check_shape(operator, name, array)
    if lhs.ndim != rhs.ndim or lhs.ndim < 2:
        raise InvalidShapeError(
            f"{operator}: lhs and rhs must have the same rank, which is the number of spatial axes + 2; got shapes"
            f" {lhs.shape} and {rhs.shape}"
        )
    try:
        numbers: jax.lax.ConvDimensionNumbers = jax.lax.conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
        lhs_spec, rhs_spec, out_spec = (tuple(map(index, spec)) for spec in numbers)
    except (TypeError, ValueError) as error:
        raise InvalidAttributeError(f"{operator}: {error}") from None
    specs = lhs_spec, rhs_spec, out_spec
    if any(sorted(spec) != list(range(lhs.ndim)) for spec in specs):
        raise InvalidAttributeError(
            f"{operator}: each of the three dimension_numbers must have every axis from 0 to {lhs.ndim - 1} once; got"
            f" {dimension_numbers!r:.200}"
        )
    return specs


def per_axis(operator: str, name: str, value: object, axes: int) -> tuple[int, ...]:
    """Return a list of one positive integer per spatial axis as a tuple; raise if it is something else."""
    numbers = _integers(value)
    if numbers is not None and len(numbers) == axes and all(number >= 1 for number in numbers):
        return numbers
    hint = f". Use {(value,) * axes}" if type(value) is int and value >= 1 else ""
    raise InvalidAttributeError(
        f"{operator}: {name} must have one integer of at least 1 for each of the {axes} spatial axes; got"
        f" {value!r:.200}{hint}"
    )


def _integers(values: object) -> tuple[int, ...] | None:
    """Return a list of integers as a tuple; None if it is something else."""
    try:
        return tuple(map(index, values)) if isinstance(values, Iterable) else None
    except (TypeError, ValueError):
        return None


def pairs(operator: str, padding: Pads, axes: int) -> tuple[tuple[int, int], ...]:
    """Return padding as one pair (low, high) per spatial axis; raise if it is something else."""
    try:
        pads = tuple((index(low), index(high)) for low, high in padding)
    except (TypeError, ValueError):
        _refuse_padding(operator, padding, axes)
    if len(pads) != axes:
        _refuse_padding(operator, padding, axes)
    return pads


def _refuse_padding(operator: str, padding: object, axes: int) -> NoReturn:
    """Raise the error of a padding that is neither a name nor pairs. The hint reads integers as PyTorch does."""
    numbers: list[object] = [padding] * axes if type(padding) is int else []
    if isinstance(padding, list | tuple):
        numbers = [*padding]
    flat = axes and len(numbers) == axes and all(type(number) is int for number in numbers)
    hint = f". Use {[(number, number) for number in numbers]}" if flat else ""
    raise InvalidAttributeError(
        f"{operator}: padding must be one of {', '.join(AUTO_PADS)}, or pairs (low, high) of integers, one for each"
        f" of the {axes} spatial axes; got {padding!r:.200}{hint}"
    )


def _auto_pad(operator: str, name: str, gaps: Sequence[int]) -> str:
    if any(gap > 1 for gap in gaps):
        raise InvalidAttributeError(
            f"{operator}: padding must be pairs (low, high) where lhs_dilation is above 1; got {name!r:.200}. Use"
            " conv_transpose"
        )
    if name.upper() not in AUTO_PADS:
        raise InvalidAttributeError(
            f"{operator}: padding must be one of {', '.join(AUTO_PADS)}, or pairs (low, high); got {name!r:.200}"
        )
    return AUTO_PADS[name.upper()]


def _pads_of(auto_pad: str, extent: int, kernel: int, stride: int) -> tuple[int, int]:
    return (0, 0) if auto_pad == "valid" else split_pads(convolution_pad_total(extent, kernel, stride), auto_pad)


def _positive(operator: str, name: str, value: SupportsIndex) -> int:
    try:
        number = index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise InvalidAttributeError(f"{operator}: {name} must be an integer of at least 1; got {value!r:.200}")
    return number


def _check_channels(operator: str, lhs: Array, rhs: Array, of: Window) -> None:
    batch, channels = (lhs.shape[axis] for axis in of.lhs_spec[:2])
    outputs, inputs = (rhs.shape[axis] for axis in of.rhs_spec[:2])
    if of.batches > 1 and (of.groups > 1 or batch % of.batches or outputs % of.batches):
        raise InvalidAttributeError(
            f"{operator}: batch_group_count must divide the batch of lhs and the outputs of rhs, and"
            f" feature_group_count must then be 1; got {of.batches}, {batch}, {outputs} and {of.groups}"
        )
    if channels != inputs * of.groups:
        raise InvalidShapeError(
            f"{operator}: lhs must have feature_group_count times as many channels as rhs has inputs; got {channels}"
            f" channels, {inputs} inputs and feature_group_count {of.groups}"
        )
    if outputs % of.groups:
        raise InvalidShapeError(
            f"{operator}: feature_group_count must divide the outputs of rhs; got {of.groups} and {outputs}"
        )
