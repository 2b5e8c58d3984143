"""Winograd (Toom-Cook): which convolutions have tiles, their algorithm along each axis, its cost and rounding depth.

Minimal filtering (``filtering.py``) applies to two axes of a convolution, rows and columns. An axis with one tap is not
transformed. Another axis is summed directly: an image at each position of it is a **slice**, and the src channels of a
slice are those at each tap of it.

A weight gradient sums the products of each point over all tiles and slices, in the order of ``tile_order.py``. A
forward sums the products of each point over channels, in the order of a 1x1 forward. A data gradient is a forward from
dst to src with the taps of the weights reversed. Positions beyond an operand's edge are 0. Rows are transformed first,
and columns are transformed back first. The results are divided by an integer, with one rounding.

In a forward or a data gradient, the tiles at the end of an axis have only the positions that are left: if 14 rows have
tiles of 4, the last tile has 2. It has fewer points, and its weights have the same values at these points.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import prod
from typing import NamedTuple

from convgrad.spec.geometry import Axis, Conv
from convgrad.spec.operators import SolvesFor, Tensor
from convgrad.spec.winograd.filtering import FILTERINGS, ONE_TAP, Filtering
from convgrad.spec.winograd.tile_order import Turns, turns

DATA: Mapping[SolvesFor, Tensor] = {"dst": "src", "src": "dst", "weights": "src"}  # the tensor that tiles meet
TILES = (2, 4)  # the largest tiles of the axes of an algorithm
MAX_AXES = 3
REMEMBERED = 1024
MIN_CHANNELS = 32  # the fewest channels of src and of dst, per group, for which tiles are used
# Costs of each value of a tile and of each weight, in multiply-adds per point: transform it or transform it back, write
# it and read it. The costs are part of the specification, because they choose the algorithm, which determines the bits.
OF_WEIGHTS, OF_POSITIONS = (20.0, 20.0), (12.0, 24.0)
CALL = 6e6  # the fixed cost of a group's stages, in multiply-adds


class Stages(NamedTuple):
    """The largest number of roundings of a product in each stage. ``SumOrder.height`` counts those of the sum."""

    data: int  # roundings of the transform of the positions that tiles meet, along both axes
    other: int  # roundings of the transform of tiles of dst, or of weights
    back: int  # roundings of the transform of sums back and of the division


class EqualTiles(NamedTuple):
    """Neighbouring tiles of equal size along an axis."""

    filtering: Filtering
    first: int  # the first position of dst
    tiles: int


def _segments(filtering: Filtering, positions: int) -> list[EqualTiles]:
    """Return the segments of tiles that cover an axis of dst exactly."""
    whole, last = positions // filtering.tile, filtering.remainder(positions)
    return [EqualTiles(filtering, 0, whole)] * (whole > 0) + (
        [] if last is None else [EqualTiles(last, whole * filtering.tile, 1)]
    )


@dataclass(frozen=True)
class Algorithm:
    """A Winograd algorithm: the minimal filtering of rows (the index along the first axis) and of columns."""

    axes: tuple[Filtering, Filtering]

    @property
    def tile(self) -> tuple[int, int]:
        """The numbers of rows and columns of a tile."""
        rows, columns = self.axes
        return rows.tile, columns.tile

    @property
    def taps(self) -> tuple[int, int]:
        """The numbers of rows and columns of the weights."""
        rows, columns = self.axes
        return rows.taps, columns.taps

    @property
    def sides(self) -> tuple[int, int]:
        """The numbers of rows and columns of points, and of the positions that a tile meets."""
        rows, columns = self.axes
        return rows.points, columns.points

    @property
    def points(self) -> int:
        """The number of points of a tile."""
        return prod(self.sides)

    @property
    def divisor(self) -> int:
        """The integer by which results are divided after they are transformed back."""
        return prod(axis.divisor for axis in self.axes)

    @property
    def divides_exactly(self) -> bool:
        """Whether the division of results is exact: the divisor is a power of two."""
        return self.divisor & (self.divisor - 1) == 0

    def kappa(self, slices: Conv, solves_for: SolvesFor) -> float:
        """Return the constant kappa of the error bound, for tiles of all sizes."""
        axes = self.segments(slices, solves_for)
        return prod(max(tiles.filtering.way(solves_for).kappa for tiles in axis) for axis in axes)

    def segments(self, slices: Conv, solves_for: SolvesFor) -> tuple[list[EqualTiles], list[EqualTiles]]:
        """Return the segments of equal tiles along rows and along columns."""
        rows, columns = (
            [EqualTiles(filtering, 0, -(-axis.dst // filtering.tile))]
            if solves_for == "weights"
            else _segments(filtering, axis.dst)
            for filtering, axis in zip(self.axes, slices.axes, strict=True)
        )
        return rows, columns

    def stages(self, solves_for: SolvesFor) -> Stages:
        """Return the largest numbers of roundings of a product per stage, without the roundings of its sum.

        >>> four = algorithm_of(Conv(1, 1, 32, 32, (Axis(4, 4, 3),) * 2), "4x4")
        >>> four.stages("weights"), sum(four.stages("dst"))
        (Stages(data=6, other=4, back=7), 17)
        """
        data, other, back = map(sum, zip(*(axis.roundings(solves_for) for axis in self.axes), strict=True))
        return Stages(data, other, back + (not self.divides_exactly))

    def scale(self, solves_for: SolvesFor) -> int:
        """Return the number of granules in 1, times the divisor of results.

        If operands are integers, all intermediate values are integer multiples of a power of two, the granule. No value
        exceeds W * scale granules. ``sizes.ways`` computes W.

        >>> one = Conv(1, 1, 32, 32, (Axis(4, 4, 3),) * 2)
        >>> [algorithm_of(one, name).scale(of) for name in ("2x2", "4x4") for of in ("weights", "dst")]
        [4, 4, 3600, 3600]
        """
        return int(self.divisor * 2 ** -sum(axis.granule(solves_for) for axis in self.axes))

    def turns(self, slices: Conv) -> Turns:
        """Return the order in which a weight gradient's tiles are summed."""
        return turns(slices.batch, *self.covering(slices))

    def covering(self, slices: Conv) -> tuple[int, int]:
        """Return the numbers of rows and columns of tiles that cover a slice of dst."""
        rows, columns = (-(-axis.dst // tile) for axis, tile in zip(slices.axes, self.tile, strict=True))
        return rows, columns

    def cost(self, conv: Conv, solves_for: SolvesFor) -> float:
        """Return the cost of a convolution with this algorithm by the cost model, in multiply-adds."""
        slices = in_slices(conv if solves_for == "weights" else as_forward(conv, solves_for))
        along = (
            sum(tiles.tiles * tiles.filtering.points for tiles in axis) for axis in self.segments(slices, solves_for)
        )
        values, channels = slices.batch * prod(along), slices.src_channels + slices.dst_channels  # values at points
        weights = slices.src_channels * slices.dst_channels // slices.groups
        value, weight = OF_WEIGHTS if solves_for == "weights" else OF_POSITIONS
        adds = values * (weights + value * channels) + self.points * weight * weights
        return float(adds + CALL * conv.groups)


def algorithm_of(conv: Conv, name: str) -> Algorithm:
    """Return the algorithm of a convolution. Its name has the tile of each axis; 1 if the axis is not transformed."""
    tiles = [int(tile) for tile in name.split("x")]
    rows, columns = (
        ONE_TAP if axis is None else FILTERINGS[tiles[axis], conv.axes[axis].kernel] for axis in slots(conv)[1:]
    )
    return Algorithm((rows, columns))


@lru_cache(maxsize=REMEMBERED)
def algorithms(conv: Conv) -> Mapping[str, Algorithm]:
    """Return the algorithms of a convolution, by name, except the direct sum.

    >>> for axes in ((3,), (3, 3), (1, 5), (3, 3, 3)):
    ...     print(*algorithms(Conv(1, 1, 32, 32, tuple(Axis(8, 8, taps) for taps in axes))))
    2 4
    2x2 4x4
    1x2
    1x2x2 1x4x4
    """
    if why_not(conv):
        return {}
    named = {}
    for largest in TILES:
        transformed, tiles = slots(conv)[1:], _tiles(conv, largest)
        name = "x".join(str(tile if axis in transformed else 1) for axis, tile in enumerate(tiles))
        named[name] = algorithm_of(conv, name)
    return named


def _tiles(conv: Conv, largest: int = max(TILES)) -> list[int]:
    """Return for each axis the largest tile up to ``largest``; 1 if it has one tap, 0 if its taps have no filtering."""
    sizes = ([tile for tile, taps in FILTERINGS if taps == axis.kernel and tile <= largest] for axis in conv.axes)
    return [max(sizes_of_axis, default=0) for sizes_of_axis in sizes]


def slots(conv: Conv) -> tuple[int | None, int | None, int]:
    """Return the axes that are summed directly, transformed as rows, and transformed as columns; None if missing.

    The columns are the last axis. The rows are the axis with the largest tile of those before it; the last of these if
    several have the same tile.

    >>> slots(Conv(1, 1, 1, 1, (Axis(8, 8, 3), Axis(8, 8, 1), Axis(8, 8, 1))))
    (1, 0, 2)
    >>> slots(Conv(1, 1, 1, 1, (Axis(8, 8, 7), Axis(8, 8, 3))))
    (0, None, 1)
    """
    (*others, columns), tiles = range(len(conv.axes)), _tiles(conv)
    rows = max((axis for axis in others if tiles[axis]), key=lambda axis: (tiles[axis], axis), default=None)
    return next((axis for axis in others if axis != rows), None), rows, columns


def in_slices(conv: Conv) -> Conv:
    """Return the convolution of slices, which has two axes, rows and columns, and the same sums.

    >>> in_slices(Conv(2, 1, 32, 64, (Axis(9, 7, 3), Axis(8, 8, 3, pad_begin=1, pad_end=1), Axis(6, 6, 1)))).batch
    14
    """
    directly, rows, columns = aligned(conv)
    return replace(
        conv, batch=conv.batch * directly.dst, src_channels=directly.kernel * conv.src_channels, axes=(rows, columns)
    )


def aligned(conv: Conv) -> tuple[Axis, Axis, Axis]:
    """Return the axes of ``slots``; an axis of one position if one is missing."""
    directly, rows, columns = (Axis(1, 1, 1) if axis is None else conv.axes[axis] for axis in slots(conv))
    return directly, rows, columns


def regions(slices: Conv, algorithm: Algorithm) -> Iterator[tuple[tuple[slice, slice], Conv, str]]:
    """Yield the parts of dst that have tiles of one size: rows and columns, the forward of this part, its algorithm."""
    for rows, columns in product(*algorithm.segments(slices, "dst")):
        axes, where = [], []
        for segment, axis in zip((rows, columns), slices.axes, strict=True):
            positions = segment.tiles * segment.filtering.tile
            cut = replace(axis, dst=positions, pad_begin=axis.pad_begin - segment.first)
            axes.append(replace(cut, pad_end=cut.span - cut.pad_begin - cut.src))
            where.append(slice(segment.first, segment.first + positions))
        yield (where[0], where[1]), replace(slices, axes=tuple(axes)), f"{rows.filtering.tile}x{columns.filtering.tile}"


def as_forward(conv: Conv, solves_for: SolvesFor) -> Conv:
    """Return a data gradient's geometry as a forward from dst to src with reversed taps; a forward's unchanged.

    Pads of the result may be negative.

    >>> as_forward(Conv(1, 1, 32, 64, (Axis(9, 7, 3),) * 2), "src").axes[0]
    Axis(src=7, dst=9, kernel=3, stride=1, dilation=1, pad_begin=2, pad_end=2)
    """
    if solves_for == "dst":
        return conv
    axes = []
    for axis in conv.axes:
        pads = (axis.kernel - 1 - pad for pad in (axis.pad_begin, axis.pad_end))
        axes.append(Axis(axis.dst, axis.src, axis.kernel, 1, 1, *pads))
    return Conv(conv.batch, conv.groups, conv.dst_channels, conv.src_channels, tuple(axes))


def of_group(conv: Conv) -> Conv:
    """Return the convolution of one group of channels. Groups are computed separately."""
    return replace(
        conv, groups=1, src_channels=conv.src_channels // conv.groups, dst_channels=conv.dst_channels // conv.groups
    )


def why_not(conv: Conv) -> str:
    """Return the reason why the direct sum is a convolution's only algorithm; "" if there are others."""
    if len(conv.axes) > MAX_AXES:
        return f"tiles need at most {MAX_AXES} spatial axes"
    if any((axis.stride, axis.dilation) != (1, 1) for axis in conv.axes):
        return "tiles need stride 1 and dilation 1"
    *others, columns = _tiles(conv)
    if not columns or others.count(0) > 1 or max(columns, *others, 1) == 1:
        wanted = "tiles need an axis of 3 or 5 taps, a last axis of 1, 3 or 5 taps, and at most one axis of other taps"
        return f"{wanted}; the kernel is {'x'.join(str(axis.kernel) for axis in conv.axes)}"
    if min(conv.src_channels, conv.dst_channels) < MIN_CHANNELS * conv.groups:
        return f"tiles need {MIN_CHANNELS} channels of src and of dst{' per group' if conv.groups > 1 else ''}"
    return ""
