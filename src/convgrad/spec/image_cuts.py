"""Cuts of the sum over one image: the blocks of its reduction tree, and the nodes that one call can compute.

A weight or bias gradient sums over an image's positions as a tree of **blocks** (``spec/order.py``). Neighbouring
blocks determine nodes as neighbouring leaves of a batch do (``spec/pieces.py``). A block is a node of level 0.
A call can compute a node if the node's positions are a product of ranges, one per axis. Examples are some rows of the
first axis, or a part of one row. Any other node is a sum of nodes below it, which ``pieces.combine`` adds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import prod

from convgrad.spec.layouts import shape_words
from convgrad.spec.order import BLOCK, FAN_IN, SumOrder, over_positions
from convgrad.spec.pieces import Nodes, nodes_of
from convgrad.spec.subproblems import Ranges

REMEMBERED = 64  # extents of images whose order is cached


def row_step(extents: Sequence[int]) -> int | None:
    """Return the step, in rows of the first axis, at which an image's sum may be cut; None if it may not be cut.

    An image of one block cannot be cut. An image with more than two axes can be cut only if its rows have whole blocks,
    or if its blocks have whole rows.

    >>> row_step((56, 56)), row_step((224, 224)), row_step((5000,)), row_step((7, 7))
    (4, 1, 256, None)
    >>> row_step((9, 6, 64)), row_step((9, 6, 128)), row_step((9, 2, 30))
    (None, 1, 4)
    """
    order = over_positions(1, extents)
    if order.lines == 1 and order.length <= BLOCK:
        return None
    if len(extents) == 1:
        return BLOCK
    rows = order.lines_a_block
    for extent in reversed(extents[1:-1]):
        if extent % rows == 0:
            return 1
        if rows % extent:
            return None
        rows //= extent
    return rows


def blocks_of(extents: Sequence[int], rows: range) -> range:
    """Return the blocks of some rows of the first axis. Rows must begin and end at multiples of ``row_step``.

    >>> blocks_of((56, 56), range(8, 56)), blocks_of((600,), range(256, 600)), blocks_of((4, 300), range(1, 3))
    (range(2, 14), range(1, 3), range(2, 6))

    Rows may also end with the last row of the image. Raises ValueError if the image cannot be cut at these rows.
    """
    if rows != range(extents[0]) and ((step := row_step(extents)) is None or _off(rows, step, extents[0])):
        where = "nowhere" if step is None else f"at multiples of {step} rows"
        must = f"the sum of an image of {shape_words(extents)} positions may be cut {where}"
        raise ValueError(f"{must}; got rows {rows.start} to before {rows.stop}")
    row = prod(extents[1:])
    return range(_block_at(extents, rows.start * row), _block_at(extents, rows.stop * row))


def _off(rows: range, step: int, end: int) -> bool:
    """Return whether rows begin or end where an image with ``end`` rows cannot be cut."""
    return not rows or bool(rows.start % step) or (rows.stop != end and bool(rows.stop % step))


def nodes_with_ranges(extents: Sequence[int], blocks: range) -> list[tuple[Nodes, Ranges]]:
    """Return nodes with their ranges of positions, from left to right, such that one call can compute each.

    Adding the sums of these nodes gives the sums of all nodes that the blocks determine.

    >>> nodes_with_ranges((56, 56), range(2, 14))[0]
    (Nodes(level=0, first=2, number=1), (range(8, 12), range(0, 56)))
    >>> [(tuple(nodes), ranges[0]) for nodes, ranges in nodes_with_ranges((128, 300), range(0, 256))]
    [((2, 0, 1), range(0, 128))]
    """
    return [part for nodes in nodes_of(blocks.start, blocks.stop) for part in _split(extents, nodes)]


def _split(extents: Sequence[int], nodes: Nodes) -> Iterator[tuple[Nodes, Ranges]]:
    """Yield nodes that one call each can compute and whose sums add up to ``nodes``, with their ranges.

    The first nodes are yielded together, as many as have a product of ranges as their positions.
    """
    level, first, number = nodes
    for some in range(number, 0, -1):
        here = Nodes(level, first, some)
        if ranges := _ranges_of(extents, here.leaves):
            yield here, ranges
            break
    else:
        if not level:
            raise ValueError(
                f"block {first} of an image of {shape_words(extents)} positions has no ranges: it is computed whole"
            )
        some = 1
        yield from _split(extents, Nodes(level - 1, first * FAN_IN, FAN_IN))
    for node in range(first + some, first + number):
        yield from _split(extents, Nodes(level, node, 1))


def _ranges_of(extents: Sequence[int], blocks: range) -> Ranges | None:
    """Return the positions of some blocks if they are a product of ranges, else None."""
    begin, end = _position_at(extents, blocks.start), _position_at(extents, blocks.stop)
    ranges: list[range] = []
    for axis, extent in enumerate(extents):
        inner = prod(extents[axis + 1 :])
        first, last = begin // inner % extent, (end - 1) // inner % extent
        ranges.append(range(first, last + 1))
        if first != last:
            whole = not begin % inner and not end % inner
            return (*ranges, *map(range, extents[axis + 1 :])) if whole else None
    return tuple(ranges)


def _position_at(extents: Sequence[int], block: int) -> int:
    """Return the first position of a block, counted row-major; the number of positions for the block after the last."""
    order = _order(tuple(extents))
    line, part = divmod(block, order.blocks_a_line)
    return min(line * order.lines_a_block * order.length + part * BLOCK, prod(extents))


@lru_cache(maxsize=REMEMBERED)
def _order(extents: tuple[int, ...]) -> SumOrder:
    return over_positions(1, extents)


def _block_at(extents: Sequence[int], position: int) -> int:
    """Return the block that begins at a position; the number of blocks for the position after the last."""
    order = over_positions(1, extents)
    line, within = divmod(position, order.length)
    return -(-line // order.lines_a_block) * order.blocks_a_line + within // BLOCK
