"""A weight or bias gradient as loops: axes simplified, positions cut into pieces of a row and accumulation chains."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from convgrad.plan.constants import MAX_FOLDED_CHANNELS, SPARSE_POSITIONS
from convgrad.plan.tables import Ints, Strides, distinct
from convgrad.spec.geometry import Axis, Conv
from convgrad.spec.order import images_a_block, over_positions


@dataclass(frozen=True)
class View:
    """A convolution over arrays with strides in bytes, canonical axes; src begins ``src_offset`` bytes in."""

    conv: Conv
    src_strides: Strides
    dst_strides: Strides
    weights_strides: Strides
    src_offset: int = 0

    @cached_property
    def pointwise(self) -> bool:
        """Every position meets the source position of the same number."""
        return all(a.kernel == 1 and a.src == a.dst and a.pad_begin == 0 for a in self.conv.axes)

    @cached_property
    def blocks(self) -> tuple[int, int]:
        """How many blocks an image has, and how many images a block: one of the two is 1."""
        extents = [axis.dst for axis in self.conv.axes]
        return over_positions(1, extents).blocks, images_a_block(extents)

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds, those of absent taps among them."""
        return self.conv.multiply_adds

    def strides(self, tensor: str) -> Strides:
        """Return the strides of src or dst."""
        return self.src_strides if tensor == "src" else self.dst_strides


def view(
    conv: Conv, src_strides: Strides, dst_strides: Strides, weights_strides: Strides, solves_for: str = "weights"
) -> View:
    """Return the view of a convolution on arrays of these strides, simplified as is legal for what is solved for."""
    seen = View(conv, src_strides, dst_strides, weights_strides)
    for simpler, legal in SIMPLIFICATIONS:
        if solves_for in legal:
            seen = simpler(seen)
    return seen


def per_group(view: View) -> dict[str, int]:
    """Return the channels of a group of src and dst."""
    conv = view.conv
    return {"src": conv.src_channels // conv.groups, "dst": conv.dst_channels // conv.groups}


def _met(view: View) -> View:
    """Return a view in which an axis with one tap is one of stride 1 over the positions that exist.

    The stride of one position is as good as any: it becomes one whose bytes can be counted.
    """
    axes, offset = [], view.src_offset
    strides = list(view.src_strides)
    for at, axis in enumerate(view.conv.axes):
        if axis.kernel > 1:
            axes.append(replace(axis, stride=min(axis.stride, axis.effective_kernel)) if axis.dst == 1 else axis)
            continue
        met = axis.existing(0, range(axis.src), range(axis.dst))
        if not met:
            axes.append(axis)
            continue
        offset += (met.start * axis.stride - axis.pad_begin) * strides[2 + at]
        strides[2 + at] *= axis.stride if len(met) > 1 else 1
        axes.append(Axis(len(met), axis.dst, 1, pad_begin=met.start))
    return replace(view, conv=replace(view.conv, axes=tuple(axes)), src_strides=tuple(strides), src_offset=offset)


def _spread(view: View) -> View:
    """Return a view with an axis of one position inside where few positions of a row are met, far apart.

    A row is packed from the first position that is met to the last; of rows, only those that are met. An image of one
    block has the same sums either way.
    """
    conv, axis = view.conv, view.conv.axes[-1]
    span = min(axis.src, axis.span)
    if axis.kernel == 1 or view.blocks[0] > 1 or SPARSE_POSITIONS * axis.dst * axis.kernel > span:
        return view
    return replace(
        view,
        conv=replace(conv, axes=(*conv.axes, Axis(1, 1, 1))),
        src_strides=(*view.src_strides, 0),
        dst_strides=(*view.dst_strides, 0),
        weights_strides=(*view.weights_strides, 0),
    )


def _folded(view: View) -> View:
    """Return a view whose innermost taps are channels, where they lie like channels and all of them always exist.

    So patches, stems without pads and long kernels become dense layers with ordinary numbers of channels. Channels are
    packed by tap: few of them, or taps that share no source position.
    """
    conv, axis = view.conv, view.conv.axes[-1]
    channels, taps = conv.src_channels, axis.kernel
    apart, out_apart = view.src_strides[-1] * axis.dilation, view.weights_strides[-1]
    if channels > 1 and (apart, out_apart) != (channels * view.src_strides[1], channels * view.weights_strides[1]):
        return view
    every = range(axis.dst)
    exist = all(axis.existing(k, range(axis.src), every) == every for k in (0, taps - 1))
    small = channels <= MAX_FOLDED_CHANNELS or axis.stride >= axis.effective_kernel
    if taps == 1 or conv.groups > 1 or not exist or not small:
        return view
    first, out_first = (apart, out_apart) if channels == 1 else (view.src_strides[1], view.weights_strides[1])
    one = Axis(axis.dst, axis.dst, 1)
    return replace(
        view,
        conv=replace(conv, src_channels=taps * channels, axes=(*conv.axes[:-1], one)),
        src_strides=(view.src_strides[0], first, *view.src_strides[2:-1], view.src_strides[-1] * axis.stride),
        weights_strides=(view.weights_strides[0], out_first, *view.weights_strides[2:]),
    )


# None is legal for a forward or a data gradient (forward/view.py): their blocks are of the taps and channels that there
# are, and one that writes src must write the positions that no tap meets.
SIMPLIFICATIONS = (
    (_met, ("weights", "bias")),
    (_folded, ("weights", "bias")),
    (_spread, ("weights", "bias")),
)


def collapsed(extents: tuple[int, ...], strides: Strides) -> int | None:
    """Return the stride of all positions as one axis, None where they are none."""
    real = [(n, s) for n, s in zip(extents, strides, strict=True) if n > 1]
    if not real:
        return strides[-1]
    fits = all(outer == inner * n for (_, outer), (n, inner) in pairwise(real))
    return real[-1][1] if fits else None


@dataclass(frozen=True)
class Pieces:
    """Stretches of an image's destination positions within one row, in order: row, first, end, block."""

    row: Ints
    first: Ints
    end: Ints
    block: Ints
    blocks: int
    images_a_block: int  # more than 1 where small images are packed


def blocks_a_row(conv: Conv) -> int:
    """Return how many blocks a destination row is cut into; 1 where a block holds whole rows."""
    return over_positions(1, [axis.dst for axis in conv.axes]).blocks_a_line


def pieces(view: View) -> Pieces:
    """Cut an image's rows where the order of sums begins a block; a pointwise image is one row."""
    conv = view.conv
    extents = [axis.dst for axis in conv.axes]
    row = conv.positions if view.pointwise else extents[-1]
    begins = over_positions(1, extents).begins()
    starts, _ = distinct(np.r_[0 : conv.positions : row, begins])
    number = starts // row
    first, end = starts - number * row, np.r_[starts[1:], conv.positions] - number * row
    block = np.searchsorted(begins, starts, side="right") - 1
    return Pieces(number, first, end, block, len(begins), images_a_block(extents))


def shortened(cutting: Pieces, most: int) -> Pieces:
    """Return the same pieces, those of more positions than ``most`` cut."""
    count = -(-(cutting.end - cutting.first) // most)
    number = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    row, first, end, block = (np.repeat(a, count) for a in (cutting.row, cutting.first, cutting.end, cutting.block))
    first = first + number * most
    return replace(cutting, row=row, first=first, end=np.minimum(first + most, end), block=block)
