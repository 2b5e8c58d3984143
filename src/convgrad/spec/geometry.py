"""The geometry that all operators share: a convolution that relates src, dst and weights on each spatial axis.

Position i of src, position p of dst and tap k **meet** if ``i = p * stride + k * dilation - pad_begin`` and i exists.
A pass multiplies two of the three values that meet and adds the product to the third.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from convgrad.cached import cached_property


def effective_kernel(kernel: int, dilation: int) -> int:
    """Return E = d(K - 1) + 1, the extent that a dilated kernel covers."""
    return dilation * (kernel - 1) + 1


@dataclass(frozen=True)
class Axis:
    """One spatial axis of a convolution, with the extents of src (I), dst (O) and kernel (K).

    All three extents are stored, because no two of them determine the third.
    """

    src: int
    dst: int
    kernel: int
    stride: int = 1
    dilation: int = 1
    pad_begin: int = 0
    pad_end: int = 0

    @property
    def effective_kernel(self) -> int:
        """The extent of the dilated kernel, E = d(K - 1) + 1."""
        return effective_kernel(self.kernel, self.dilation)

    @property
    def span(self) -> int:
        """The number of positions from the first to the last that any tap reads, including padding: s(O - 1) + E."""
        return self.stride * (self.dst - 1) + self.effective_kernel

    def existing(self, tap: int, src: range, dst: range) -> range:
        """Return the positions p in ``dst`` whose source position under ``tap`` is in ``src`` (both have step 1).

        >>> Axis(src=6, dst=6, kernel=3, pad_begin=1, pad_end=1).existing(0, range(6), range(6))
        range(1, 6)
        """
        offset = tap * self.dilation - self.pad_begin
        first = min(max(dst.start, -((offset - src.start) // self.stride)), dst.stop)
        last = min(dst.stop, -((offset - src.stop) // self.stride))
        return range(first, max(first, last))

    def source(self, tap: int, positions: range) -> slice:
        """Return, as a slice, the positions of src that ``tap`` reads for a non-empty range of positions of dst."""
        offset = tap * self.dilation - self.pad_begin
        return slice(
            positions.start * self.stride + offset, (positions.stop - 1) * self.stride + offset + 1, self.stride
        )


@dataclass(frozen=True)
class Conv:
    """A convolution's extents and attributes; channels are totals over all groups."""

    batch: int
    groups: int
    src_channels: int
    dst_channels: int
    axes: tuple[Axis, ...]

    @property
    def src_shape(self) -> tuple[int, ...]:
        """The canonical shape of src: batch, channels, spatial extents."""
        return (self.batch, self.src_channels, *(a.src for a in self.axes))

    @property
    def dst_shape(self) -> tuple[int, ...]:
        """The canonical shape of dst: batch, channels, spatial extents."""
        return (self.batch, self.dst_channels, *(a.dst for a in self.axes))

    @property
    def weights_shape(self) -> tuple[int, ...]:
        """The canonical shape of weights: dst channels, src channels per group, kernel extents."""
        return (self.dst_channels, self.src_channels // self.groups, *self.kernel)

    @cached_property
    def kernel(self) -> tuple[int, ...]:
        """The kernel's extent on each spatial axis."""
        return tuple(a.kernel for a in self.axes)

    @cached_property
    def taps(self) -> int:
        """The number of taps of the kernel, over all axes."""
        return prod(self.kernel)

    @cached_property
    def positions(self) -> int:
        """The number of positions of dst per image."""
        return prod(a.dst for a in self.axes)

    @cached_property
    def multiply_adds(self) -> int:
        """The number of multiply-adds, including taps on padding. All three passes have the same number."""
        return self.batch * self.positions * self.taps * self.dst_channels * (self.src_channels // self.groups)


@dataclass(frozen=True)
class Channels:
    """The geometry of BiasAdd and BiasAddBackward: a tensor (N, C, X...) to add a bias to, or to sum per channel."""

    batch: int
    channels: int
    extents: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The canonical shape of the tensor: batch, channels, spatial extents."""
        return (self.batch, self.channels, *self.extents)

    @property
    def positions(self) -> int:
        """The number of positions per image."""
        return prod(self.extents)


# -- auto_pad ------------------------------------------------------------------------------------------------------


def convolution_pad_total(src: int, effective: int, stride: int) -> int:
    """Return a convolution's total padding with auto_pad same: T = max((ceil(I/s) - 1)s + E - I, 0).

    With this padding, dst has the extent O = ceil(I/s).

    >>> convolution_pad_total(300, 7, 2), convolution_pad_total(5, 1, 3)
    (5, 0)
    """
    return max((-(-src // stride) - 1) * stride + effective - src, 0)


def transposed_pad_total(effective: int, stride: int) -> int:
    """Return a transposed operator's total padding with auto_pad same: T = max(E - s, 0), for any extents."""
    return max(effective - stride, 0)


def split_pads(total: int, auto_pad: str) -> tuple[int, int]:
    """Return the pads (begin, end) of a total padding with auto_pad same.

    If the total is odd, the larger pad is at the end for same_upper, and at the beginning for same_lower.

    >>> split_pads(3, "same_upper"), split_pads(3, "same_lower")
    ((1, 2), (2, 1))
    """
    half = total // 2
    return (half, total - half) if auto_pad == "same_upper" else (total - half, half)


def calculated_pads(begin: int | None, end: int | None, total: int) -> tuple[int, int]:
    """Return pads (begin, end) with the sum ``total``, or more if the given pads are larger. None is calculated.

    If both pads are None and the total is odd, the larger pad is at the end.

    >>> calculated_pads(None, None, 3), calculated_pads(None, 1, 3), calculated_pads(5, None, 3)
    ((1, 2), (2, 1), (5, 0))
    """
    if begin is None and end is None:
        return split_pads(max(total, 0), "same_upper")
    if begin is None:
        begin = max(total - (end or 0), 0)
    return begin, max(total - begin, 0) if end is None else end


# -- extents -------------------------------------------------------------------------------------------------------


def forward_extent(src: int, effective: int, stride: int, pads: int) -> int:
    """Return dst's extent O = floor((I + P - E)/s) + 1, which is below 1 if the kernel exceeds the padded src.

    >>> forward_extent(28, 1, 2, 0), forward_extent(1, 2, 2, 0)
    (14, 0)
    """
    return (src + pads - effective) // stride + 1


def transposed_extent(dst: int, effective: int, stride: int, pads: int, output_padding: int = 0) -> int:
    """Return L = s(l - 1) + E - P + op, the output extent of a transposed operator with input extent l.

    For a data gradient, l is the extent O of dst.

    >>> transposed_extent(28, 3, 2, 41), transposed_extent(111, 3, 2, 0, 1)
    (16, 224)
    """
    return stride * (dst - 1) + effective - pads + output_padding
