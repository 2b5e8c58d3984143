"""Lines in IR: the stretch of a row of dst that one is, and the rows of src that it meets under a tile's outer taps."""

from __future__ import annotations

from functools import reduce

from convgrad.engines.llvm.emit import Function, Value
from convgrad.plan.backward_weights.lines import LINE, NOWHERE
from convgrad.plan.backward_weights.recipe import KernelSpec


def outer_taps(f: Function, spec: KernelSpec, places: Value, shifts: Value, number: Value) -> list[Value]:
    """Return where in the table of places what each of a tile's outer taps meets begins; ``number`` is the tile's."""
    count = spec.tile.outer_taps
    here = f.at(shifts, number * (8 * count))
    return [f.at(places, f.load("i64", here, 8 * u)) for u in range(count)]


class Met:
    """A line: its positions, none where no outer tap of the tile exists, and what it meets.

    An outer tap that does not exist, beside one that does, has the place of another: what is read there is dropped.
    """

    def __init__(self, f: Function, line: Value, taps: list[Value]) -> None:
        self.first, end, self.fixed, number = (f.load("i64", line, LINE.at(name)) for name in LINE.columns)
        found = [f.load("i64", f.at(tap, number)) for tap in taps]
        some = reduce(f.max, found)
        self.end = f.select(f.compare("eq", some, NOWHERE), self.first, end)
        self.missing = [f.compare("eq", place, NOWHERE) for place in found]
        self.places = [f.select(missing, some, place) for missing, place in zip(self.missing, found, strict=True)]
        self.f = f

    def absent(self, mask_bytes: Value) -> Value:
        """Return how far in the table of masks those are that tell which of several outer taps exist."""
        if len(self.missing) == 1:
            return self.f.value(0)
        bits = (self.f.select(one, mask_bytes * (1 << u), self.f.value(0)) for u, one in enumerate(self.missing))
        return reduce(lambda a, b: a + b, bits)
