"""The simplified loop nest of a weight or bias gradient, and its segments, which are parts of rows of dst."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from convgrad.cached import cached_property
from convgrad.plan.split_k.constants import MAX_FOLDED_CHANNELS, SPARSE_POSITIONS
from convgrad.plan.tables import Ints, Strides, distinct, numbered
from convgrad.spec.geometry import Axis, Conv
from convgrad.spec.order import SPLIT_TERMS, images_a_block, over_positions


@dataclass(frozen=True)
class WeightsNest:
    """A convolution, the byte strides of its arrays' canonical axes, and the offset of the first src element."""

    conv: Conv
    src_strides: Strides
    dst_strides: Strides
    weights_strides: Strides
    src_offset: int = 0

    @cached_property
    def pointwise(self) -> bool:
        """Whether each dst position meets only the src position with the same number."""
        return all(a.kernel == 1 and a.src == a.dst and a.pad_begin == 0 for a in self.conv.axes)

    @cached_property
    def chains(self) -> int:
        """The number of accumulation chains per image, or 1 if a chain sums whole images."""
        return over_positions(1, self.extents).blocks

    @cached_property
    def images_a_chain(self) -> int:
        """The number of images per accumulation chain, which is 1 unless images are small."""
        return images_a_block(self.extents)

    @property
    def chains_a_row(self) -> int:
        """The number of accumulation chains per row of dst, or 1 if a chain sums whole rows."""
        return over_positions(1, self.extents).blocks_a_line

    @property
    def extents(self) -> list[int]:
        """The number of dst positions along each axis."""
        return [axis.dst for axis in self.conv.axes]

    @property
    def multiply_adds(self) -> int:
        """The number of multiply-adds, including those of absent taps."""
        return self.conv.multiply_adds

    def strides(self, tensor: str) -> Strides:
        """Return the byte strides of ``tensor``, "src" or "dst"."""
        return self.src_strides if tensor == "src" else self.dst_strides


def weights_nest(conv: Conv, src: Strides, dst: Strides, weights: Strides) -> WeightsNest:
    """Return the simplified nest of a convolution on arrays with these byte strides.

    The simplifications are not valid for other passes (``forward_nest.py``). They would change the chains of a forward,
    which sum taps and channels. They would also remove positions to which a data gradient must write zeros.
    """
    return _spread(_folded(_one_tap(WeightsNest(conv, src, dst, weights))))


def per_group(nest: WeightsNest) -> dict[str, int]:
    """Return the number of channels per group of src and of dst, by tensor."""
    conv = nest.conv
    return {"src": conv.src_channels // conv.groups, "dst": conv.dst_channels // conv.groups}


def _one_tap(nest: WeightsNest) -> WeightsNest:
    """Replace each axis with one tap by an axis of stride 1 over the src positions that the tap meets.

    The stride of an axis with one dst position, or of a tap that meets padding only, has no effect. It is replaced, so
    that byte offsets fit in 64 bits.
    """
    axes, offset = [], nest.src_offset
    strides = list(nest.src_strides)
    for at, axis in enumerate(nest.conv.axes):
        if axis.kernel > 1:
            axes.append(replace(axis, stride=min(axis.stride, axis.effective_kernel)) if axis.dst == 1 else axis)
            continue
        existing = axis.existing(0, range(axis.src), range(axis.dst))
        if not existing:
            axes.append(Axis(axis.src, axis.dst, 1, pad_begin=axis.dst))
            continue
        offset += (existing.start * axis.stride - axis.pad_begin) * strides[2 + at]
        strides[2 + at] *= axis.stride if len(existing) > 1 else 1
        axes.append(Axis(len(existing), axis.dst, 1, pad_begin=existing.start))
    return replace(nest, conv=replace(nest.conv, axes=tuple(axes)), src_strides=tuple(strides), src_offset=offset)


def _spread(nest: WeightsNest) -> WeightsNest:
    """Add an innermost axis of one position, if a row has few positions that taps meet.

    Packing copies a row from the first to the last position that taps meet. With the added axis, each position is a
    row, so only these positions are copied. The sums are the same, because the image has one chain.
    """
    conv, axis = nest.conv, nest.conv.axes[-1]
    span = min(axis.src, axis.span)
    if axis.kernel == 1 or nest.chains > 1 or SPARSE_POSITIONS * axis.dst * axis.kernel > span:
        return nest
    return replace(
        nest,
        conv=replace(conv, axes=(*conv.axes, Axis(1, 1, 1))),
        src_strides=(*nest.src_strides, 0),
        dst_strides=(*nest.dst_strides, 0),
        weights_strides=(*nest.weights_strides, 0),
    )


def _folded(nest: WeightsNest) -> WeightsNest:
    """Turn the innermost taps into src channels, if channels and taps have a common stride and no tap reads padding.

    So patch embeddings, stems without pads and long kernels become dense layers with more channels. A position of src
    is packed once per tap, so channels must be few, or taps must share no position.
    """
    conv, axis = nest.conv, nest.conv.axes[-1]
    channels, taps = conv.src_channels, axis.kernel
    tap, out_tap = nest.src_strides[-1] * axis.dilation, nest.weights_strides[-1]
    if channels > 1 and (tap, out_tap) != (channels * nest.src_strides[1], channels * nest.weights_strides[1]):
        return nest
    every = range(axis.dst)
    exist = all(axis.existing(k, range(axis.src), every) == every for k in (0, taps - 1))
    small = channels <= MAX_FOLDED_CHANNELS or axis.stride >= axis.effective_kernel
    if taps == 1 or conv.groups > 1 or not exist or not small:
        return nest
    first, out_first = (tap, out_tap) if channels == 1 else (nest.src_strides[1], nest.weights_strides[1])
    folded_axis = Axis(axis.dst, axis.dst, 1)
    return replace(
        nest,
        conv=replace(conv, src_channels=taps * channels, axes=(*conv.axes[:-1], folded_axis)),
        src_strides=(nest.src_strides[0], first, *nest.src_strides[2:-1], nest.src_strides[-1] * axis.stride),
        weights_strides=(nest.weights_strides[0], out_first, *nest.weights_strides[2:]),
    )


def collapsed(extents: tuple[int, ...], strides: Strides) -> int | None:
    """Return the common stride of all positions if the axes merge into one axis, or None if they do not."""
    real = [(n, s) for n, s in zip(extents, strides, strict=True) if n > 1]
    if not real:
        return strides[-1]
    fits = all(outer == inner * n for (_, outer), (n, inner) in pairwise(real))
    return real[-1][1] if fits else None


@dataclass(frozen=True)
class Segments:
    """The segments of the images of a leaf, in order: the part of a row of dst in one chain, or in one portion."""

    image: Ints  # the number of the image in the leaf
    row: Ints  # the number of the row of dst in the image
    first: Ints  # the first position of the segment in the row
    end: Ints  # the position after the segment's last
    chain: Ints  # the number of the accumulation chain in the image
    portion: Ints  # the number of the portion in the leaf; without portions, that of the chain
    odd: Ints  # whether position 0 of the row, counted from the begin of the portion, has an odd number

    def part(self, chosen: Ints | NDArray[np.bool_]) -> Segments:
        """Return some of the segments."""
        return Segments(**{name: column[chosen] for name, column in vars(self).items()})


def segments_of(nest: WeightsNest, portions: bool = False) -> Segments:
    """Cut the rows of a leaf where an accumulation chain or, with ``portions``, a portion begins.

    A pointwise image is one row.
    """
    positions, images = nest.conv.positions, min(nest.images_a_chain, nest.conv.batch)
    row = positions if nest.pointwise else nest.extents[-1]
    chains = over_positions(1, nest.extents).begins()
    begins = chains
    if portions:
        lengths = np.diff(chains, append=images * positions)
        chain, number = numbered(-(-lengths // SPLIT_TERMS))
        begins = chains[chain] + number * SPLIT_TERMS
    starts, _ = distinct(np.r_[0 : images * positions : row, begins])
    number, portion = starts // row, np.searchsorted(begins, starts, side="right") - 1
    first, end = starts - number * row, np.r_[starts[1:], images * positions] - number * row
    image, number_in_image = np.divmod(number, positions // row)
    odd = (number * row - begins[portion]) & 1
    chain = np.searchsorted(chains, starts, side="right") - 1
    return Segments(image, number_in_image, first, end, chain, portion, odd)


def shortened(segments: Segments, longest: int) -> Segments:
    """Cut segments into pieces of at most ``longest`` positions."""
    segment, number = numbered(-(-(segments.end - segments.first) // longest))
    first = segments.first[segment] + number * longest
    end = np.minimum(first + longest, segments.end[segment])
    return replace(segments.part(segment), first=first, end=end)
