"""The store: how a sum becomes an element of the output, in every kernel of direct sums.

+0 is added, which turns -0 into +0, then a bias, then the old value if the call accumulates. One rounding follows.
"""

from __future__ import annotations

from typing import Any

from convgrad.engines.llvm.convert import BYTES, read, write
from convgrad.engines.llvm.emit import Function, Value
from convgrad.engines.llvm.transpose import transposed
from convgrad.plan.recipe import F32_BYTES

NO_BIAS = "-0.0"  # x + -0.0 is x, whatever x is


def total(f: Function, sums: Value, bias: Value | None = None) -> Value:
    """Return sums + 0 [+ bias]."""
    finished = f.add(sums, f.zeros(sums.type))
    return finished if bias is None else f.add(finished, bias)


def put(f: Function, spec: Any, finished: Value, out: Value, old: Value, mask: Value | None = None) -> None:
    """Add the old value where asked; round; store."""
    lanes = spec.isa.lanes if finished.type[0] == "<" else 0
    with f.when(old):
        write(f, spec.output, f.add(finished, read(f, spec.output, out, lanes, mask)), out, mask)
    with f.otherwise():
        write(f, spec.output, finished, out, mask)


def put_first(f: Function, spec: Any, finished: Value, out: Value, old: Value, left: Value) -> None:
    """Store the first ``left`` lanes of a vector: all of them, some or none."""
    with f.when(left >= spec.isa.lanes):
        put(f, spec, finished, out, old)
    with f.otherwise(), f.when(f.compare("sgt", left, 0)):
        put(f, spec, finished, out, old, f.mask(left, spec.isa.lanes))


def put_transposed(
    f: Function, spec: Any, sums: Value, step: Value | int, count: Value, out: Value, lane_step: Value, lanes: Value,
    old: Value, bias: Value | None = None,
) -> None:  # fmt: skip
    """Write out[lane][i] of ``count`` vectors sums[i], ``step`` bytes apart: what a lane has lies in one piece.

    As many vectors as they have lanes are a square, which is transposed. The first ``lanes`` lanes are output.
    """
    width, size = spec.isa.lanes, BYTES[spec.output]
    kind = f"<{width} x float>"
    square = f.alloca(kind, width)
    pieces = (count + (width - 1)) >> (width.bit_length() - 1)
    with f.loop(pieces, sums=sums, out=out) as piece:
        left = f.min(count - piece.index * width, width)
        places = [f.at(piece.sums, f.min(f.value(i), left - 1) * step) for i in range(width)]
        for i, column in enumerate(transposed(f, [total(f, f.load(kind, at), bias) for at in places], width)):
            f.store(column, square, i * width * F32_BYTES)
        mask = f.mask(left, width)
        with f.loop(lanes, column=square, out=piece.out) as lane:
            put(f, spec, f.load(kind, lane.column), lane.out, old, mask)
            lane.next(column=f.at(lane.column, width * F32_BYTES), out=f.at(lane.out, lane_step))
        following = f.at(piece.sums, step * width if isinstance(step, Value) else f.value(step * width))
        piece.next(sums=following, out=f.at(piece.out, width * size))
