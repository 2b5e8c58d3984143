"""Toom-Cook for 3x3: products of transformed tiles, fewer than the direct sum's, and what that does to an error.

A tile of m x m positions and the (m + 2) x (m + 2) positions that they meet are transformed, axis by axis, to (m + 2)^2
points. One axis of it, for m = 4, is evaluation at 0, 1, -1, 2, -1/2 and infinity; for m = 2, at 0, 1, -1 and infinity.

Of a weight gradient, tiles are of dst, and what they meet is of src. The products of a point are summed over all tiles
and images, in the order of ``spec/tiles.py``; the sums of all points are transformed back to
3 x 3 weights. Of a forward, tiles are of dst, and what they meet is of src; the 3 x 3 weights are transformed to points
too, products are summed over channels, in the order of a 1x1 forward, and the sums of all points are transformed back
to the tile. A data gradient is a forward of dst under weights whose taps are in reverse.

Transforms are straight lines of additions and fused multiply-adds in any arithmetic, so that one text is what NumPy
executes, what kernels compute, and what roundings are counted of. What is beyond an operand's edge is 0. The last axis
but one is transformed first, the last axis is transformed back first; what comes out is divided, rounded once, by a
whole number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple, Protocol, TypeVar

from convgrad.spec.geometry import Axis, Conv
from convgrad.spec.operators import SolvesFor, Tensor
from convgrad.spec.tiles import Turns, turns

Number = TypeVar("Number")
TAPS = 3  # of an axis
MET: Mapping[SolvesFor, Tensor] = {"dst": "src", "src": "dst", "weights": "src"}  # what tiles meet
AXES = 2
LEAST_CHANNELS = 32  # of src and of dst, of a group
# What is counted, in multiply-adds: a value of a tile at a point, and a weight at a point, to be made or transformed
# back, written and read. They are part of the specification: where they choose another variant, bits change.
OF_WEIGHTS, OF_POSITIONS = (20.0, 20.0), (12.0, 24.0)
CALL = 6e6  # and what a group's stages take to begin


class Arithmetic(Protocol[Number]):
    """What transforms are made of; ``scale`` is by a power of two, and rounds nothing but what is denormal."""

    def add(self, x: Number, y: Number) -> Number:
        """Return x + y."""
        ...

    def sub(self, x: Number, y: Number) -> Number:
        """Return x - y."""
        ...

    def fma(self, factor: float, x: Number, y: Number) -> Number:
        """Return factor * x + y with one rounding."""
        ...

    def scale(self, factor: float, x: Number) -> Number:
        """Return factor * x."""
        ...


Transform = Callable[[Arithmetic[Any], Sequence[Any]], list[Any]]


def _source_two(a: Arithmetic[Any], d: Sequence[Any]) -> list[Any]:
    return [a.sub(d[2], d[0]), a.add(d[2], d[1]), a.sub(d[2], d[1]), a.sub(d[3], d[1])]


def _destination_two(a: Arithmetic[Any], g: Sequence[Any]) -> list[Any]:
    return [g[0], a.add(g[0], g[1]), a.sub(g[0], g[1]), g[1]]


def _weights_two(a: Arithmetic[Any], s: Sequence[Any]) -> list[Any]:
    even = a.add(s[1], s[2])
    return [a.fma(-2.0, s[0], even), a.sub(s[1], s[2]), a.fma(2.0, s[3], even)]


def _kernel_two(a: Arithmetic[Any], w: Sequence[Any]) -> list[Any]:
    even = a.add(w[0], w[2])
    return [w[0], a.add(even, w[1]), a.sub(even, w[1]), w[2]]


def _positions_two(a: Arithmetic[Any], s: Sequence[Any]) -> list[Any]:
    return [a.fma(-2.0, s[0], a.add(s[1], s[2])), a.fma(2.0, s[3], a.sub(s[1], s[2]))]


def _source_four(a: Arithmetic[Any], d: Sequence[Any]) -> list[Any]:
    even, odd = a.sub(d[4], d[2]), a.sub(d[3], d[1])
    return [
        a.fma(-1.5, odd, a.add(a.sub(d[0], d[2]), even)),
        a.fma(-2.5, d[2], a.fma(-0.5, d[3], a.sub(d[4], d[1]))),
        a.fma(-2.5, d[3], a.fma(0.5, d[2], a.add(d[4], d[1]))),
        a.fma(0.5, odd, even),
        a.fma(-2.0, odd, even),
        a.fma(-1.5, even, a.sub(a.sub(d[5], d[3]), odd)),
    ]


def _destination_four(a: Arithmetic[Any], g: Sequence[Any]) -> list[Any]:
    even, odd = a.add(g[0], g[2]), a.add(g[1], g[3])
    two = a.fma(2.0, a.fma(4.0, g[3], g[1]), a.fma(4.0, g[2], g[0]))
    half = a.sub(a.scale(2.0, a.fma(4.0, g[0], g[2])), a.fma(4.0, g[1], g[3]))  # times 8
    return [g[0], a.add(even, odd), a.sub(even, odd), two, half, g[3]]


def _weights_four(a: Arithmetic[Any], s: Sequence[Any]) -> list[Any]:
    even, odd = a.add(s[1], s[2]), a.sub(s[1], s[2])
    return [
        a.fma(15.0, s[0], a.fma(-5.0, odd, a.fma(-2.0, s[4], s[3]))),
        a.fma(-5.0, even, a.fma(2.0, s[3], s[4])),
        a.fma(15.0, s[5], a.fma(-5.0, odd, a.fma(4.0, s[3], a.scale(-0.5, s[4])))),
    ]


def _kernel_four(a: Arithmetic[Any], w: Sequence[Any]) -> list[Any]:
    even = a.add(w[0], w[2])
    two = a.fma(4.0, w[2], a.fma(2.0, w[1], w[0]))
    half = a.fma(4.0, w[0], a.fma(-2.0, w[1], w[2]))  # times 4
    return [w[0], a.add(even, w[1]), a.sub(even, w[1]), two, half, w[2]]


def _positions_four(a: Arithmetic[Any], s: Sequence[Any]) -> list[Any]:
    even, odd = a.add(s[1], s[2]), a.sub(s[1], s[2])
    return [
        a.fma(15.0, s[0], a.fma(-5.0, odd, a.fma(-4.0, s[4], s[3]))),
        a.fma(-5.0, even, a.scale(2.0, a.add(s[3], s[4]))),
        a.fma(-5.0, odd, a.sub(a.scale(4.0, s[3]), s[4])),
        a.fma(15.0, s[5], a.fma(-5.0, even, a.fma(8.0, s[3], a.scale(0.5, s[4])))),
    ]


class _Roundings:
    """An arithmetic of how many roundings a value went through."""

    def add(self, x: int, y: int) -> int:
        return max(x, y) + 1

    sub = add

    def fma(self, factor: float, x: int, y: int) -> int:
        return max(x, y) + 1

    def scale(self, factor: float, x: int) -> int:
        return x


class _Granules:
    """An arithmetic of exponents: a value is a multiple of 2 to it, and each term a whole multiple of its sum's."""

    def add(self, x: int, y: int) -> int:
        return min(x, y)

    sub = add

    def fma(self, factor: float, x: int, y: int) -> int:
        return min(self.scale(factor, x), y)

    def scale(self, factor: float, x: int) -> int:
        numerator, denominator = factor.as_integer_ratio()
        return x + (numerator & -numerator).bit_length() - denominator.bit_length()


class Stages(NamedTuple):
    """The most roundings a product goes through, by where they are; those of its sum are the order's."""

    met: int  # transforming what tiles meet, along both axes
    other: int  # transforming tiles of dst, or weights
    back: int  # transforming sums back, and dividing


@dataclass(frozen=True)
class Way:
    """What is solved for: the transforms of one axis, and the constant of its bound."""

    met: Transform  # of the m + 2 positions that a tile meets, to points
    other: Transform  # of a tile of dst, or of the weights, to points
    back: Transform  # of the sums of all points, to weights or to a tile
    others: int  # what ``other`` transforms: m positions or 3 taps
    kappa: float  # of one axis: the least there is, rounded up, as docs/numerics.md derives it


@dataclass(frozen=True)
class Variant:
    """One size of tiles: its ways, and what an axis is divided by in each."""

    name: str
    tile: int
    divisor: int  # of one axis
    of_weights: Way
    of_positions: Way

    def way(self, solves_for: SolvesFor) -> Way:
        """Return the transforms of what is solved for."""
        return self.of_weights if solves_for == "weights" else self.of_positions

    @property
    def axis_points(self) -> int:
        """Points of one axis."""
        return self.tile + TAPS - 1

    @property
    def points(self) -> int:
        """Points of all axes."""
        return int(self.axis_points**AXES)

    @property
    def divided(self) -> int:
        """What comes back is divided by."""
        return int(self.divisor**AXES)

    @property
    def exactly(self) -> bool:
        """Whether to divide rounds nothing."""
        return self.divided & (self.divided - 1) == 0

    def lines(self, solves_for: SolvesFor) -> tuple[tuple[Transform, int], ...]:
        """Return the transforms of one axis, met, other and back, each with how many values it is of."""
        way = self.way(solves_for)
        return (way.met, self.axis_points), (way.other, way.others), (way.back, self.axis_points)

    def stages(self, solves_for: SolvesFor) -> Stages:
        """Return the most roundings a product goes through, those of its sum not counted, by where they are.

        >>> VARIANTS["4x4"].stages("weights"), sum(VARIANTS["4x4"].stages("dst"))
        (Stages(met=6, other=4, back=7), 17)
        """
        met, other, back = (AXES * max(line(_Roundings(), [0] * count)) for line, count in self.lines(solves_for))
        return Stages(met, other, back + (not self.exactly))

    def scale(self, solves_for: SolvesFor) -> int:
        """Return how many granules an integer result has before it is divided, where its operands are integers.

        All values on the ways to it are whole multiples of granules, none with more of them than W * scale.

        >>> [VARIANTS[name].scale(of) for name in ("2x2", "4x4") for of in ("weights", "dst")]
        [4, 4, 3600, 3600]
        """
        finest = sum(min(line(_Granules(), [0] * count)) for line, count in self.lines(solves_for))
        return int(self.divided * 2 ** (-AXES * finest))

    def turns(self, conv: Conv) -> Turns:
        """Return in which order a weight gradient's tiles are summed."""
        return turns(conv.batch, *self.covering(conv))

    def covering(self, conv: Conv) -> tuple[int, int]:
        """Return how many rows and columns of tiles cover a dst image."""
        rows, columns = (-(-axis.dst // self.tile) for axis in conv.axes)
        return rows, columns

    def cost(self, conv: Conv, solves_for: SolvesFor) -> float:
        """Return what is counted, in multiply-adds."""
        made = conv if solves_for == "weights" else as_forward(conv, solves_for)
        tiles = conv.batch * prod(self.covering(made))
        channels = conv.src_channels + conv.dst_channels
        weights = conv.src_channels * conv.dst_channels // conv.groups
        value, weight = OF_WEIGHTS if solves_for == "weights" else OF_POSITIONS
        each = self.points * (tiles * weights + value * tiles * channels + weight * weights)
        return float(each + CALL * conv.groups)


VARIANTS: Mapping[str, Variant] = {
    variant.name: variant
    for variant in (
        Variant(
            "2x2", 2, 2,
            Way(_source_two, _destination_two, _weights_two, 2, 3.4143),
            Way(_source_two, _kernel_two, _positions_two, TAPS, 3.0593),
        ),
        Variant(
            "4x4", 4, 15,
            Way(_source_four, _destination_four, _weights_four, 4, 10.0431),
            Way(_source_four, _kernel_four, _positions_four, TAPS, 9.3179),
        ),
    )
}  # fmt: skip


def as_forward(conv: Conv, solves_for: SolvesFor) -> Conv:
    """Return the forward that a forward or a data gradient is: of dst, under taps in reverse; pads may be negative.

    >>> as_forward(Conv(1, 1, 32, 64, (Axis(9, 7, 3),) * 2), "src").axes[0]
    Axis(src=7, dst=9, kernel=3, stride=1, dilation=1, pad_begin=2, pad_end=2)
    """
    if solves_for == "dst":
        return conv
    axes = [
        Axis(axis.dst, axis.src, axis.kernel, pad_begin=TAPS - 1 - axis.pad_begin, pad_end=TAPS - 1 - axis.pad_end)
        for axis in conv.axes
    ]
    return Conv(conv.batch, conv.groups, conv.dst_channels, conv.src_channels, tuple(axes))


def of_group(conv: Conv) -> Conv:
    """Return the convolution of one group of channels: each is computed by itself."""
    return replace(
        conv, groups=1, src_channels=conv.src_channels // conv.groups, dst_channels=conv.dst_channels // conv.groups
    )  # fmt: skip


def why_not(conv: Conv) -> str:
    """Return why a convolution has no variant but the direct sum; nothing where it has."""
    if len(conv.axes) != AXES or any(axis.kernel != TAPS for axis in conv.axes):
        return f"kernels of {TAPS}x{TAPS} have tiles; this one is {'x'.join(str(axis.kernel) for axis in conv.axes)}"
    if any((axis.stride, axis.dilation) != (1, 1) for axis in conv.axes):
        return "tiles are of stride 1 and dilation 1"
    if min(conv.src_channels, conv.dst_channels) < LEAST_CHANNELS * conv.groups:
        return f"tiles pay from {LEAST_CHANNELS} channels of src and dst{' a group' if conv.groups > 1 else ''}"
    return ""
