"""The taps that a tile takes at once: what they move and write, and where which of them exist, as tables."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from convgrad.plan.backward_weights.nest import View
from convgrad.plan.backward_weights.operands import Side
from convgrad.plan.backward_weights.recipe import STRIP, KernelSpec
from convgrad.plan.constants import MIN_STORE_LINE
from convgrad.plan.records import Record
from convgrad.plan.tables import Ints, Table, offsets, wrapped

TAP = Record("outer", "rows.shift", "lanes.shift", "whole", "segment", "segments")
SEGMENT = Record(
    "low", "high", "absent"
)  # positions, masks; read in place: where all exist, then, for each, where it does
ELSEWHERE = np.iinfo(np.int64).min  # among the bytes of output: another tile writes it


def starts(count: int, size: int) -> list[int]:
    """Return where tiles of ``size`` taps begin; the last overlaps the one before rather than run over.

    >>> starts(7, 3), starts(3, 3)
    ([0, 3, 4], [0])
    """
    return [*range(0, count - size, size), count - size]


def of_tiles(count: int, size: int) -> Ints:
    """Return the numbers of the taps of each tile.

    >>> of_tiles(5, 2).tolist()
    [[0, 1], [2, 3], [3, 4]]
    """
    return np.add.outer(starts(count, size), np.arange(size))


def margins(view: View, spec: KernelSpec) -> tuple[int, int]:
    """Return how many positions on padding a tile of several taps may read before a row of src and behind it."""
    if spec.moving.in_place:  # nothing is there
        return 0, 0
    axis = view.conv.axes[-1]
    reach = (spec.tile.inner_taps - 1) * axis.dilation
    behind = axis.span - axis.pad_begin - axis.src
    return min(reach, axis.pad_begin), min(reach, max(behind, 0))


def tap_tables(view: View, spec: KernelSpec, sides: tuple[Side, Side]) -> dict[str, Table]:
    """Return the tables of the tiles' taps, row-major: what they move and write, where which of them exist."""
    (*outer, inner), (*outer_steps, inner_step) = view.conv.axes, view.weights_strides[2:]
    tile = spec.tile
    existing: dict[tuple[bool, ...], int] = {(True,) * tile.inner_taps: 0}
    segments: list[dict[str, int]] = []
    along: list[dict[str, int]] = []  # the inner axis: the columns of TAP but the first
    for k in starts(inner.kernel, tile.inner_taps):
        met = [inner.existing(k + t, range(inner.src), range(inner.dst)) for t in range(tile.inner_taps)]
        if view.pointwise:
            met = [range(view.conv.positions)]
        whole = len(segments)
        if spec.body == STRIP:  # where all taps exist, and where each of them does
            all_exist = (max(one.start for one in met), min(one.stop for one in met))
            ranges = [all_exist, *((one.start, one.stop) for one in met)]
            segments += [{"low": low, "high": max(low, high), "absent": 0} for low, high in ranges]
        else:
            some = [one for one in met if one] or met[:1]
            low, high = min(one.start for one in some), max(one.stop for one in some)
            segments.append({"low": low, "high": high, "absent": 0})
            for low, high, there in _segments(met):
                absent = existing.setdefault(there, len(existing)) * tile.taps * 4
                segments.append({"low": low, "high": high, "absent": absent})
        rows, lanes = (wrapped(k * inner.dilation * side.step) if side.tensor == "src" else 0 for side in sides)
        along.append({
            "rows.shift": rows, "lanes.shift": lanes,
            "whole": whole, "segment": whole + 1, "segments": len(segments) - whole - 1,
        })  # fmt: skip
    outer_out = offsets(tuple(a.kernel for a in outer), tuple(outer_steps))
    outer_tiles, inner_tiles = of_tiles(len(outer_out), tile.outer_taps), of_tiles(inner.kernel, tile.inner_taps)
    places = outer_out[outer_tiles][:, None, :, None] + inner_tiles[:, None, :] * inner_step
    here = _first_here(outer_tiles)[:, None, :, None] & _first_here(inner_tiles)[:, None, :]
    numbers = np.repeat(np.arange(len(outer_tiles)), len(along))
    of_inner = {column: np.tile([row[column] for row in along], len(outer_tiles)) for column in along[0]}
    return {
        "taps": TAP.table(len(numbers), outer=numbers, **of_inner),
        "outs": np.where(here, places, ELSEWHERE).reshape(len(numbers), tile.taps),
        "segments": SEGMENT.rows(segments),
        "masks": _masks(tile.outer_taps, list(existing)),
    }


def _first_here(tiles: Ints) -> NDArray[np.bool_]:
    """Return which taps of each tile none before it has."""
    count, size = tiles.shape
    first: NDArray[np.bool_] = tiles >= (np.arange(count) * size)[:, None]
    return first


def together(outs: Table, size: int) -> bool:
    """Return whether what tiles of taps write lies together: all tiles of one tap, or the taps of each tile of several.

    Where a tile has taps that another writes, it does not.

    >>> together(np.array([[0], [4], [8], [12]]), 4), together(np.array([[0, 4, 8, 12], [ELSEWHERE, 16, 20, 24]]), 4)
    (True, False)
    """
    lines = outs.reshape(1, -1) if outs.shape[1] == 1 else outs
    return lines.shape[1] >= MIN_STORE_LINE and bool((np.diff(lines) == size).all())


def _segments(met: list[range]) -> list[tuple[int, int, tuple[bool, ...]]]:
    """Cut positions where some of a tile's taps begin or cease to exist; where none does, nothing is to be summed.

    >>> _segments([range(1, 5), range(0, 4)])
    [(0, 1, (False, True)), (1, 4, (True, True)), (4, 5, (True, False))]
    """
    ends = sorted({end for r in met if r for end in (r.start, r.stop)})
    cuts = [(low, high, tuple(low in r for r in met)) for low, high in pairwise(ends)]
    return [one for one in cuts if any(one[2])]


def _masks(outer_taps: int, existing: list[tuple[bool, ...]]) -> NDArray[np.int32]:
    """Return a word a tap, -1 where it exists: by which of the outer taps do, all in the first row, and the inner."""
    numbers = (1 << outer_taps) - 1 - np.arange(1 << outer_taps)
    outer = (numbers[:, None] >> np.arange(outer_taps) & 1).astype(bool)
    both = outer[:, None, :, None] & np.array(existing)[None, :, None, :]
    masks: NDArray[np.int32] = -both.astype(np.int32)
    return masks
