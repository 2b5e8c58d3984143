"""Minimal filtering F(m, r): m sums of r products each, from m + r - 1 products, along one axis (Winograd, Toom-Cook).

The products are those of the values of two polynomials at m + r - 1 points: infinity, and the first of 0, 1,
-1, 2 and -1/2. So a tile at the end of an axis, which has fewer than m positions, has some of the points of the other
tiles.

In a weight gradient, the m positions of a tile of dst are one factor, and the sums are the r weights. In a forward, the
r weights are one factor, and the sums are the m positions of a tile. The other factor is the m + r - 1 positions of src
that the tile meets.

Transforms are written once, as additions and fused multiply-adds of an arithmetic, which is an argument. Different
arithmetics compute values with NumPy, generate the instructions of kernels, and count roundings. The results are
divided by an integer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from convgrad.spec.operators import SolvesFor

Number = TypeVar("Number")


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


class Transform(Protocol):
    """A transform: from values to as many values as it makes of them, in any arithmetic."""

    def __call__(self, a: Arithmetic[Number], values: Sequence[Number], /) -> list[Number]:
        """Return the transformed values."""
        ...


def _data_two(a: Arithmetic[Number], d: Sequence[Number]) -> list[Number]:
    return [a.sub(d[2], d[0]), a.add(d[2], d[1]), a.sub(d[2], d[1]), a.sub(d[3], d[1])]


def _pair_at_four(a: Arithmetic[Number], g: Sequence[Number]) -> list[Number]:
    return [g[0], a.add(g[0], g[1]), a.sub(g[0], g[1]), g[1]]


def _to_three(a: Arithmetic[Number], s: Sequence[Number]) -> list[Number]:
    even = a.add(s[1], s[2])
    return [a.fma(-2.0, s[0], even), a.sub(s[1], s[2]), a.fma(2.0, s[3], even)]


def _three_at_four(a: Arithmetic[Number], w: Sequence[Number]) -> list[Number]:
    even = a.add(w[0], w[2])
    return [w[0], a.add(even, w[1]), a.sub(even, w[1]), w[2]]


def _to_two(a: Arithmetic[Number], s: Sequence[Number]) -> list[Number]:
    return [a.fma(-2.0, s[0], a.add(s[1], s[2])), a.fma(2.0, s[3], a.sub(s[1], s[2]))]


def _data_six(a: Arithmetic[Number], d: Sequence[Number]) -> list[Number]:
    even, odd = a.sub(d[4], d[2]), a.sub(d[3], d[1])
    return [
        a.fma(-1.5, odd, a.add(a.sub(d[0], d[2]), even)),
        a.fma(-2.5, d[2], a.fma(-0.5, d[3], a.sub(d[4], d[1]))),
        a.fma(-2.5, d[3], a.fma(0.5, d[2], a.add(d[4], d[1]))),
        a.fma(0.5, odd, even),
        a.fma(-2.0, odd, even),
        a.fma(-1.5, even, a.sub(a.sub(d[5], d[3]), odd)),
    ]


def _four_at_six(a: Arithmetic[Number], g: Sequence[Number]) -> list[Number]:
    even, odd = a.add(g[0], g[2]), a.add(g[1], g[3])
    two = a.fma(2.0, a.fma(4.0, g[3], g[1]), a.fma(4.0, g[2], g[0]))
    half = a.sub(a.scale(2.0, a.fma(4.0, g[0], g[2])), a.fma(4.0, g[1], g[3]))  # times 8
    return [g[0], a.add(even, odd), a.sub(even, odd), two, half, g[3]]


def _three_at_six(a: Arithmetic[Number], w: Sequence[Number]) -> list[Number]:
    even = a.add(w[0], w[2])
    two = a.fma(4.0, w[2], a.fma(2.0, w[1], w[0]))
    half = a.fma(4.0, w[0], a.fma(-2.0, w[1], w[2]))  # times 4
    return [w[0], a.add(even, w[1]), a.sub(even, w[1]), two, half, w[2]]


def _pair_at_six(a: Arithmetic[Number], g: Sequence[Number]) -> list[Number]:
    half = a.sub(a.scale(2.0, g[0]), g[1])  # times 2
    return [g[0], a.add(g[0], g[1]), a.sub(g[0], g[1]), a.fma(2.0, g[1], g[0]), half, g[1]]


def _five_at_six(a: Arithmetic[Number], w: Sequence[Number]) -> list[Number]:
    even, odd = a.add(a.add(w[0], w[2]), w[4]), a.add(w[1], w[3])
    two = a.fma(2.0, a.fma(4.0, w[3], w[1]), a.fma(4.0, a.fma(4.0, w[4], w[2]), w[0]))
    half = a.fma(-2.0, a.fma(4.0, w[1], w[3]), a.fma(4.0, a.fma(4.0, w[0], w[2]), w[4]))  # times 16
    return [w[0], a.add(even, odd), a.sub(even, odd), two, half, w[4]]


def _from_six(outputs: int) -> Transform:
    """Return the transform of the sums of six points to ``outputs`` values, times 15.

    The other factor has 7 - ``outputs`` values. Its point -1/2 is multiplied by 2^(6 - outputs).
    """

    def transform(a: Arithmetic[Number], s: Sequence[Number]) -> list[Number]:
        even, odd = a.add(s[1], s[2]), a.sub(s[1], s[2])
        results: list[Number] = []
        for power in range(outputs):
            total = _pair(a, 2.0**power, s[3], -(2.0 ** (outputs - 2)) * (-0.5) ** power, s[4])
            total = a.fma(-5.0, even if power % 2 else odd, total)
            if power in (0, outputs - 1):
                total = a.fma(15.0, s[5 if power else 0], total)
            results.append(total)
        return results

    return transform


def _pair(a: Arithmetic[Number], first: float, x: Number, second: float, y: Number) -> Number:
    """Return first * x + second * y with one rounding. Both factors are powers of two, which may be negative."""
    if first == 1:
        return a.fma(second, y, x)
    if first == second:
        return a.scale(first, a.add(x, y))
    if second == -1:
        return a.sub(a.scale(first, x), y)
    return a.fma(first, x, y if second == 1 else a.scale(second, y))


def _data_three(a: Arithmetic[Number], d: Sequence[Number]) -> list[Number]:
    return [a.sub(d[0], d[1]), d[1], a.sub(d[2], d[1])]


def _to_one_of_three(a: Arithmetic[Number], s: Sequence[Number]) -> list[Number]:
    return [a.add(a.add(s[0], s[1]), s[2])]


def _met_five(a: Arithmetic[Number], d: Sequence[Number]) -> list[Number]:
    return [
        a.fma(2.0, a.sub(d[0], d[2]), a.sub(d[3], d[1])),
        a.fma(-2.0, d[1], a.sub(d[3], d[2])),
        a.fma(-3.0, d[2], a.fma(2.0, d[1], d[3])),
        a.sub(d[3], d[1]),
        a.fma(2.0, a.sub(d[1], d[3]), a.sub(d[4], d[2])),
    ]


def _to_one_of_five(a: Arithmetic[Number], s: Sequence[Number]) -> list[Number]:
    return [a.fma(6.0, s[4], a.fma(3.0, a.sub(s[0], s[1]), a.sub(s[3], s[2])))]


def _to_three_of_five(a: Arithmetic[Number], s: Sequence[Number]) -> list[Number]:
    return [
        a.fma(3.0, a.sub(s[0], s[1]), a.sub(s[3], s[2])),
        a.fma(2.0, s[3], a.fma(-3.0, s[1], s[2])),
        a.fma(6.0, s[4], a.fma(4.0, s[3], a.fma(-3.0, s[1], a.scale(-1.0, s[2])))),
    ]


def _without(transform: Transform, *missing: int) -> Transform:
    """Return a transform to the same points, except the ``missing`` ones."""

    def some(a: Arithmetic[Number], values: Sequence[Number]) -> list[Number]:
        return [value for point, value in enumerate(transform(a, values)) if point not in missing]

    return some


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


@dataclass(frozen=True)
class Way:
    """The transforms of one axis for a weight gradient or for the other passes, and the constant of the error bound."""

    data: Transform  # from the positions that a tile meets to points
    other: Transform  # from a tile of dst, or from the weights, to points
    back: Transform  # from the sums of all points to weights or to a tile
    kappa: float  # the smallest possible constant of one axis, rounded up; docs/numerics.md derives it


@dataclass(frozen=True)
class Filtering:
    """F(m, r) along one axis: its sizes, its transforms, and the divisor of its results.

    If there are no transforms for weight gradients, it is for tiles at the end of an axis.
    """

    tile: int  # m, the positions of a tile of dst
    taps: int  # r, the weights of the axis
    divisor: int
    of_weights: Way | None
    of_positions: Way

    def __str__(self) -> str:
        return f"F({self.tile}, {self.taps})"

    @property
    def points(self) -> int:
        """The number of points, which is also the number of positions that a tile meets."""
        return self.tile + self.taps - 1

    def way(self, solves_for: SolvesFor) -> Way:
        """Return the transforms for the tensor that is solved for."""
        way = self.of_weights if solves_for == "weights" else self.of_positions
        assert way is not None, f"{self} has no transforms for {solves_for}"
        return way

    def remainder(self, positions: int) -> Filtering | None:
        """Return the filtering of the last tile of ``positions``, in forward and backward data; None if it is whole."""
        return FILTERINGS[left, self.taps] if (left := positions % self.tile) else None

    def lines(self, solves_for: SolvesFor) -> tuple[tuple[Transform, int], ...]:
        """Return the transforms (data, other, back), each with the number of its inputs."""
        way, others = self.way(solves_for), self.tile if solves_for == "weights" else self.taps
        return (way.data, self.points), (way.other, others), (way.back, self.points)

    def roundings(self, solves_for: SolvesFor) -> tuple[int, ...]:
        """Return the largest number of roundings of a value in each of the transforms (data, other, back)."""
        return tuple(max(line(_Roundings(), [0] * count)) for line, count in self.lines(solves_for))

    def granule(self, solves_for: SolvesFor) -> int:
        """Return the exponent of the power of two of which results are integer multiples if all values are integers."""
        return sum(min(line(_Granules(), [0] * count)) for line, count in self.lines(solves_for))


def _same(a: Arithmetic[Number], values: Sequence[Number]) -> list[Number]:
    return list(values)


def _six(tile: int, taps: int, tile_at: Transform, taps_at: Transform, kappas: tuple[float, float]) -> Filtering:
    """Return the filtering at six points. ``kappas`` are those of weight gradients and of other passes."""
    return Filtering(
        tile,
        taps,
        15,
        Way(_data_six, tile_at, _from_six(taps), kappas[0]),
        Way(_data_six, taps_at, _from_six(tile), kappas[1]),
    )


ONE_TAP = Filtering(1, 1, 1, Way(_same, _same, _same, 1.0), Way(_same, _same, _same, 1.0))  # of an axis with one tap
FILTERINGS: Mapping[tuple[int, int], Filtering] = {
    (filtering.tile, filtering.taps): filtering
    for filtering in (
        ONE_TAP,
        Filtering(
            2,
            3,
            2,
            Way(_data_two, _pair_at_four, _to_three, 3.4143),
            Way(_data_two, _three_at_four, _to_two, 3.0593),
        ),
        _six(4, 3, _four_at_six, _three_at_six, (10.0431, 9.3179)),
        _six(2, 5, _pair_at_six, _five_at_six, (12.9732, 10.3201)),
        Filtering(1, 3, 1, None, Way(_data_three, _without(_three_at_four, 2), _to_one_of_three, 3.1463)),
        Filtering(3, 3, 6, None, Way(_met_five, _without(_three_at_six, 4), _to_three_of_five, 9.3711)),
        Filtering(1, 5, 6, None, Way(_met_five, _without(_five_at_six, 4), _to_one_of_five, 10.024)),
    )
}
