"""Transposing a square in registers."""

from __future__ import annotations

from convgrad.engines.llvm.emit import Function, Value


def transposed(f: Function, rows: list[Value], lanes: int) -> list[Value]:
    """Return the columns of a square matrix; rows that are not given are anything."""
    kind = f"<{lanes} x float>"
    square = rows + [Value(f, kind, "poison")] * (lanes - len(rows))
    distance = 1
    while distance < lanes:  # exchange the off-diagonal quarters of all squares of 2 * distance
        for i in (i for i in range(lanes) if not i & distance):
            a, b = square[i], square[i + distance]
            low = [j if not j & distance else lanes + j - distance for j in range(lanes)]
            high = [j + distance if not j & distance else lanes + j for j in range(lanes)]
            square[i], square[i + distance] = f.shuffle(a, b, low), f.shuffle(a, b, high)
        distance *= 2
    return square
