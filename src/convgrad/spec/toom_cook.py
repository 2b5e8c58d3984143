"""Winograd (Toom-Cook) for 3x3 kernels, with fewer products than the direct sum: transforms, cost, rounding depth.

A tile has m x m positions of dst and meets (m + 2) x (m + 2) positions of src. Transforms along both axes compute
values at (m + 2)^2 points. For m = 4, the points of an axis are 0, 1, -1, 2, -1/2 and infinity. For m = 2, they are 0,
1, -1 and infinity.

A weight gradient transforms the tiles of dst and the positions of src that each tile meets. It sums the products of
each point over all tiles and images, in the order of ``spec/tiles.py``. It transforms the sums of all points back to
3 x 3 weights.

A forward transforms the positions of src and the 3 x 3 weights. It sums the products of each point over channels, in
the order of a 1x1 forward, and transforms the sums of all points back to a tile. A data gradient is a forward from dst
to src with the taps of the weights reversed.

Transforms are written once, as additions and fused multiply-adds of an arithmetic, which is an argument. Different
arithmetics compute values with NumPy, generate the instructions of kernels, and count roundings. Positions beyond an
operand's edge are 0. The last axis but one is transformed first; the last axis is transformed back first. The results
are divided by an integer, with one rounding.
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
TAPS = 3  # per axis
MET: Mapping[SolvesFor, Tensor] = {"dst": "src", "src": "dst", "weights": "src"}  # the tensor that tiles meet
AXES = 2
MIN_CHANNELS = 32  # the fewest channels of src and of dst, per group, for which tiles are used
# Costs of each value of a tile and of each weight, in multiply-adds per point: transform it or transform it back, write
# it and read it. The costs are part of the specification, because they choose the algorithm, which determines the bits.
OF_WEIGHTS, OF_POSITIONS = (20.0, 20.0), (12.0, 24.0)
CALL = 6e6  # the fixed cost of a group's stages, in multiply-adds


class Arithmetic(Protocol[Number]):
    """The operations of transforms. ``scale`` multiplies by a power of two, so it rounds only denormal numbers."""

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
    """An arithmetic that counts roundings: a number stands for a value after that many roundings."""

    def add(self, x: int, y: int) -> int:
        return max(x, y) + 1

    sub = add

    def fma(self, factor: float, x: int, y: int) -> int:
        return max(x, y) + 1

    def scale(self, factor: float, x: int) -> int:
        return x


class _Granules:
    """An arithmetic on exponents: e stands for an integer times 2^e. A sum has the smaller exponent of its terms."""

    def add(self, x: int, y: int) -> int:
        return min(x, y)

    sub = add

    def fma(self, factor: float, x: int, y: int) -> int:
        return min(self.scale(factor, x), y)

    def scale(self, factor: float, x: int) -> int:
        numerator, denominator = factor.as_integer_ratio()
        return x + (numerator & -numerator).bit_length() - denominator.bit_length()


class Stages(NamedTuple):
    """The largest number of roundings of a product in each stage. ``Order.height`` counts those of the sum."""

    met: int  # roundings of the transform of the positions that tiles meet, along both axes
    other: int  # roundings of the transform of tiles of dst, or of weights
    back: int  # roundings of the transform of sums back and of the division


@dataclass(frozen=True)
class Way:
    """The transforms of one axis for a weight gradient or for the other passes, and the constant of the error bound."""

    met: Transform  # from the m + 2 positions that a tile meets to points
    other: Transform  # from a tile of dst, or from the weights, to points
    back: Transform  # from the sums of all points to weights or to a tile
    others: int  # the number of values that ``other`` transforms: m positions or 3 taps
    kappa: float  # the smallest possible constant of one axis, rounded up; docs/numerics.md derives it


@dataclass(frozen=True)
class Algorithm:
    """A Winograd algorithm: its size of tiles, its transforms, and the divisor of its results."""

    name: str
    tile: int
    divisor: int  # per axis
    of_weights: Way
    of_positions: Way

    def way(self, solves_for: SolvesFor) -> Way:
        """Return the transforms for the tensor that is solved for."""
        return self.of_weights if solves_for == "weights" else self.of_positions

    @property
    def axis_points(self) -> int:
        """The number of points of one axis."""
        return self.tile + TAPS - 1

    @property
    def points(self) -> int:
        """The number of points of a tile."""
        return int(self.axis_points**AXES)

    @property
    def divided(self) -> int:
        """The integer by which results are divided after they are transformed back."""
        return int(self.divisor**AXES)

    @property
    def exactly(self) -> bool:
        """Whether the division of results is exact: the divisor is a power of two."""
        return self.divided & (self.divided - 1) == 0

    def lines(self, solves_for: SolvesFor) -> tuple[tuple[Transform, int], ...]:
        """Return the transforms of one axis (met, other, back), each with the number of its inputs."""
        way = self.way(solves_for)
        return (way.met, self.axis_points), (way.other, way.others), (way.back, self.axis_points)

    def stages(self, solves_for: SolvesFor) -> Stages:
        """Return the largest numbers of roundings of a product per stage, without the roundings of its sum.

        >>> ALGORITHMS["4x4"].stages("weights"), sum(ALGORITHMS["4x4"].stages("dst"))
        (Stages(met=6, other=4, back=7), 17)
        """
        met, other, back = (AXES * max(line(_Roundings(), [0] * count)) for line, count in self.lines(solves_for))
        return Stages(met, other, back + (not self.exactly))

    def scale(self, solves_for: SolvesFor) -> int:
        """Return the number of granules in 1, times the divisor of results.

        If operands are integers, all intermediate values are integer multiples of a power of two, the granule. No value
        exceeds W * scale granules. ``toom_cook_sizes.ways`` computes W.

        >>> [ALGORITHMS[name].scale(of) for name in ("2x2", "4x4") for of in ("weights", "dst")]
        [4, 4, 3600, 3600]
        """
        finest = sum(min(line(_Granules(), [0] * count)) for line, count in self.lines(solves_for))
        return int(self.divided * 2 ** (-AXES * finest))

    def turns(self, conv: Conv) -> Turns:
        """Return the order in which a weight gradient's tiles are summed."""
        return turns(conv.batch, *self.covering(conv))

    def covering(self, conv: Conv) -> tuple[int, int]:
        """Return the numbers of rows and columns of tiles that cover an image of dst."""
        rows, columns = (-(-axis.dst // self.tile) for axis in conv.axes)
        return rows, columns

    def cost(self, conv: Conv, solves_for: SolvesFor) -> float:
        """Return the cost of a convolution with this algorithm by the cost model, in multiply-adds."""
        made = conv if solves_for == "weights" else as_forward(conv, solves_for)
        tiles = conv.batch * prod(self.covering(made))
        channels = conv.src_channels + conv.dst_channels
        weights = conv.src_channels * conv.dst_channels // conv.groups
        value, weight = OF_WEIGHTS if solves_for == "weights" else OF_POSITIONS
        each = self.points * (tiles * weights + value * tiles * channels + weight * weights)
        return float(each + CALL * conv.groups)


ALGORITHMS: Mapping[str, Algorithm] = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm(
            "2x2", 2, 2,
            Way(_source_two, _destination_two, _weights_two, 2, 3.4143),
            Way(_source_two, _kernel_two, _positions_two, TAPS, 3.0593),
        ),
        Algorithm(
            "4x4", 4, 15,
            Way(_source_four, _destination_four, _weights_four, 4, 10.0431),
            Way(_source_four, _kernel_four, _positions_four, TAPS, 9.3179),
        ),
    )
}  # fmt: skip


def as_forward(conv: Conv, solves_for: SolvesFor) -> Conv:
    """Return a data gradient's geometry as a forward from dst to src with reversed taps; a forward's unchanged.

    Pads of the result may be negative.

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
    """Return the convolution of one group of channels. Groups are computed separately."""
    return replace(
        conv, groups=1, src_channels=conv.src_channels // conv.groups, dst_channels=conv.dst_channels // conv.groups
    )  # fmt: skip


def why_not(conv: Conv) -> str:
    """Return the reason why the direct sum is a convolution's only algorithm; "" if there are others."""
    if len(conv.axes) != AXES or any(axis.kernel != TAPS for axis in conv.axes):
        return f"kernels of {TAPS}x{TAPS} have tiles; this one is {'x'.join(str(axis.kernel) for axis in conv.axes)}"
    if any((axis.stride, axis.dilation) != (1, 1) for axis in conv.axes):
        return "tiles need stride 1 and dilation 1"
    if min(conv.src_channels, conv.dst_channels) < MIN_CHANNELS * conv.groups:
        return f"tiles need {MIN_CHANNELS} channels of src and of dst{' per group' if conv.groups > 1 else ''}"
    return ""
