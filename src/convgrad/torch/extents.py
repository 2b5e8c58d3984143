"""The pads and extents that the operators derive from their operands' shapes, which may be symbols."""

from __future__ import annotations

from collections.abc import Sequence

from convgrad.spec.geometry import effective_kernel, split_pads, transposed_extent
from convgrad.spec.rules import refuse

Ints = tuple[int, ...]
Pads = tuple[Ints | None, Ints | None]  # at the begin and at the end; None and None are padding="same"


def pads_of(pads: Pads, kernel: Sequence[int], dilations: Sequence[int]) -> tuple[Ints, Ints]:
    """Return the pads as numbers. If the total of "same" is odd, the pad at the end is larger by 1."""
    begin, end = pads
    if begin is not None and end is not None:
        return begin, end
    pairs = [split_pads(d * (taps - 1), "same_upper") for taps, d in zip(kernel, dilations, strict=True)]
    return tuple([first for first, _ in pairs]), tuple([last for _, last in pairs])


def rests_of(
    large: Sequence[int],
    small: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    pads_begin: Sequence[int],
    dilations: Sequence[int],
) -> Ints:
    """Return the number of positions at the end of the larger tensor that no tap reads, per spatial axis.

    The value is L + pad_begin - (stride*(l - 1) + E), where E = dilation*(K - 1) + 1. L, l and K are extents of
    ``large``, ``small`` and ``kernel``. A negative value -n means a pad of n at the end.
    """
    axes = zip(large, small, kernel, strides, pads_begin, dilations, strict=False)
    return tuple(
        [
            extent - transposed_extent(positions, effective_kernel(taps, dilation), stride, begin)
            for extent, positions, taps, stride, begin, dilation in axes
        ]
    )


def unread(
    large: Sequence[int],
    small: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Pads,
    dilations: Sequence[int],
) -> Ints:
    """Return the number of positions of the padded larger tensor that no tap reads: a transposed layer's padding."""
    if pads[0] is None:
        return (0,) * len(small)  # "same" needs stride 1, with which a tap reads every position
    begin, end = pads_of(pads, kernel, dilations)
    return less(rests_of(large, small, kernel, strides, begin, dilations), tuple([-pad for pad in end]))


def less(pads_end: Ints, output_padding: Ints) -> Ints:
    """Return the pads at the end of the layer whose result has exactly the extents before ``output_padding``."""
    return tuple([end - more for end, more in zip(pads_end, output_padding, strict=False)])


def transposed_extents(
    small: Sequence[int],
    kernel: Sequence[int],
    strides: Ints,
    pads: tuple[Ints, Ints],
    output_padding: Ints,
    dilations: Ints,
) -> Ints:
    """Return the spatial extents of a transposed layer's result."""
    axes = zip(small, kernel, strides, *pads, output_padding, dilations, strict=False)
    return tuple(
        [
            transposed_extent(positions, effective_kernel(taps, dilation), stride, begin + end, more)
            for positions, taps, stride, begin, end, more, dilation in axes
        ]
    )


def check_output_padding(axes: int, strides: Ints, pads_end: Ints, output_padding: Ints, dilations: Ints) -> None:
    """Raise by rule A6 or A9 if no transposed layer has these attributes."""
    for attribute, values in (("pads_end", pads_end), ("output_padding", output_padding)):
        if len(values) != axes:  # A6
            refuse(
                "A6", "ConvTranspose", f"{attribute} must have one value per spatial axis, {axes} here; got {values}"
            )
    for more, stride, dilation in zip(output_padding, strides, dilations, strict=False):
        if not 0 <= more < max(stride, dilation):  # A9
            sentence = "output_padding must be at least 0 and below max(stride, dilation)"
            refuse("A9", "ConvTranspose", f"{sentence}; got {output_padding}")


def check_unread(
    name: str,
    extents: tuple[Sequence[int], Sequence[int], Sequence[int]],
    strides: Ints,
    pads: tuple[Ints, Ints],
    dilations: Ints,
) -> None:
    """Raise by rule G7 if no convolution with these attributes has these extents of src, dst and weights."""
    large = extents[0]
    for axis, (remainder, stride) in enumerate(zip(unread(*extents, strides, pads, dilations), strides)):  # noqa: B905
        if not 0 <= remainder < stride:  # G7
            fit = large[axis] - remainder
            most = f" to {fit + stride - 1}" if stride > 1 else ""
            sentence = f"src must have {fit}{most} positions on spatial axis {axis}"
            refuse("G7", name, f"{sentence}, s(l - 1) + E - P and fewer than s more; got {large[axis]}")
