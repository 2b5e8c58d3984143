"""The micro-kernel: for each k, an outer product of broadcast values of A and vectors of B is added to registers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product

from convgrad.engines.llvm.emit import Function, Loop, Value
from convgrad.engines.llvm.intrinsics import MultiplyAdd

CHAIN_TAGS = ("", "odd")  # in the names of sums: of even terms, or of all terms, and of odd terms
VECTOR_ROWS = 4  # rows of micro-tiles of vectors that replace tiles of AMX, if the data does not permit tiles
BASE_ROWS = 8  # rows that share a pointer: x86 addresses can multiply a register (1, 3, 5 or 7 strides) by 1, 2 or 4
Values = dict[str, Value]


def multiply_add(f: Function, total: Value, a: Value, b: Value) -> Value:
    """Return total + a * b, rounded once."""
    return f.fma(a, b, total)


def sum_names(rows: int, vectors: int, tap: str = "") -> list[str]:
    """Return the names of the sums of a micro-tile, as "sum<tap><row>_<vector>".

    >>> sum_names(2, 2)
    ['sum0_0', 'sum0_1', 'sum1_0', 'sum1_1']
    """
    return [f"sum{tap}{r}_{v}" for r, v in product(range(rows), range(vectors))]


def outer_product(
    sums: Values,
    rows: Iterable[Value],
    vectors: Sequence[Value],
    add: MultiplyAdd = multiply_add,
    tap: str = "",
    exists: Value | None = None,
) -> None:
    """Add the product of each row of A and each vector of B to its sum, in the lanes of ``exists`` if given."""
    f = vectors[0].function
    for r, row in enumerate(rows):
        for v, vector in enumerate(vectors):
            name = f"sum{tap}{r}_{v}"
            total = add(f, sums[name], row, vector)
            sums[name] = total if exists is None else f.select(exists, total, sums[name])


def even_and_odd(f: Function, sums: Sequence[Value]) -> list[Value]:
    """Return the sums of portions from those of even terms, which come first, and those of odd terms."""
    half = len(sums) // 2
    return [f.add(*both) for both in zip(sums[:half], sums[half:], strict=True)]


class StridedRows:
    """The addresses of ``count`` rows of A, ``step`` bytes apart, computed from few registers."""

    def __init__(self, f: Function, step: Value, count: int) -> None:
        """Emit the distances of rows from their pointer."""
        self.f, self.step, self.count = f, step, count
        self.distances = multiples(f, step, min(count, BASE_ROWS))

    @property
    def bases(self) -> dict[str, int]:
        """The number of the row that each pointer points to, by the pointer's name."""
        return {f"a{row}": row for row in range(0, self.count, BASE_ROWS)}

    def begin(self, first: Value) -> Values:
        """Return the pointers for the first k of a loop; ``first`` is the address of row 0."""
        return {name: self.f.at(first, self.step * row) for name, row in self.bases.items()}

    def moved(self, loop: Loop, step: Value | int) -> Values:
        """Return the pointers for the next k, which is ``step`` bytes after the present k."""
        return {name: self.f.at(loop.carried[name], step) for name in self.bases}

    def places(self, loop: Loop, offset: Value | int = 0) -> Iterator[Value]:
        """Yield the address of each row, plus ``offset``, for the present k of a loop."""
        for r in range(self.count):
            if r % BASE_ROWS == 0:
                here = self.f.at(opaque_pointer(self.f, loop.carried[f"a{r}"]), offset)
            yield self.f.at(here, self.distances[r % BASE_ROWS])


def multiples(f: Function, step: Value, count: int) -> list[Value | int]:
    """Return the first ``count`` multiples of a stride, from 0: odd multiples in registers, times 1, 2 or 4."""
    products: list[Value | int] = [0]
    odd: dict[int, Value] = {}
    for number in range(1, count):
        low = number & -number
        if number // low not in odd:
            odd[number // low] = f.opaque(step * (number // low))
        products.append(odd[number // low] * low)
    return products


def opaque_pointer(f: Function, pointer: Value) -> Value:
    """Return the same pointer in a way that makes LLVM keep one pointer for several rows."""
    return f.op("ptr", f'call ptr asm "", "=r,0"({pointer})')


def by_height(f: Function, rows: int, height: int, some: Callable[[Value, int], None]) -> None:
    """Emit ``some`` for ``height`` rows at a time, and for those left, with the first row and the number of rows."""
    many, left = divmod(rows, height)
    if many:
        with f.loop(many) as iteration:
            some(iteration.index * height, height)
    if left:
        some(f.value(many * height), left)


def heights_of(rows: int, height: int) -> set[int]:
    """Return the numbers of rows with which ``by_height`` emits its code."""
    return {min(rows, height), rows % height} - {0}


def by_width(f: Function, lanes: int, among: Sequence[int], left: Value, name: str, arguments: Values) -> None:
    """Call the function with the smallest width that covers the ``left`` remaining columns.

    ``among`` are the widths in vectors, the largest first. The name of a function is ``name`` and its width.
    """
    if len(among) == 1:
        f.call(f"{name}{among[0]}", **arguments)
        return
    with f.when(f.compare("sgt", left, among[1] * lanes)):
        f.call(f"{name}{among[0]}", **arguments)
    with f.otherwise():
        by_width(f, lanes, among[1:], left, name, arguments)
