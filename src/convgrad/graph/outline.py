"""The outline of a JSON text before it is decoded: its nesting depth, and the position of each op of a graph.

Only brackets, commas and quotes are examined, one block of bytes at a time. Therefore 64 MB of ops take about a second.
Memory is needed for a few blocks, for the end of each op, and for a copy of the text if it has backslashes. A text
that is not JSON also has an outline; decoding its parts finds the error.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from convgrad.array_types import Array
from convgrad.errors import GraphError
from convgrad.graph.limits import Limits

_OPEN, _CLOSE, _COMMA, _QUOTE = 1, 2, 3, 4
_KINDS = np.zeros(256, np.uint8)
_KINDS[list(b'[{]},"')] = _OPEN, _OPEN, _CLOSE, _CLOSE, _COMMA, _QUOTE
_STEPS = np.array([0, 1, -1, 0, 0], np.int64)  # the change of the depth by each kind
# The literal prefix makes the search fast. A match after a backslash is inside another key.
_LIST_OF_OPS = re.compile(rb'"graph"\s*:\s*\[')
_BLOCK = 1 << 18

_Block = tuple[Array, Array, Array]


@dataclass(frozen=True)
class Outline:
    """The byte ranges of the list of ops, without its brackets, and of each op; empty if there is no list."""

    begin: int
    end: int
    ops: tuple[tuple[int, int], ...]


def outline(data: bytes, limits: Limits) -> Outline:
    """Return the outline of a text, or raise GraphError if its nesting or its ops exceed the limits.

    >>> outline(b'{"version": "[,", "graph": [{"id": 0}, {"id": 1}]}', Limits())
    Outline(begin=28, end=48, ops=((28, 37), (38, 48)))
    """
    blocks = _blocks(data, limits.nesting)
    begin, cuts = _list_of_ops(data, blocks)
    deque(blocks, maxlen=0)  # checks the nesting of the rest of the text
    end = int(cuts[-1]) if len(cuts) else 0
    if len(cuts) <= 1 and not data[begin:end].strip():
        return Outline(begin, end, ())
    if len(cuts) > limits.ops:
        raise GraphError(f"$.graph: must hold at most {limits.ops} ops; got {len(cuts)}")
    ops = tuple((first + 1, last) for first, last in pairwise([begin - 1, *cuts.tolist()]))
    for number, (first, last) in enumerate(ops):
        if last - first > limits.op_bytes:
            sentence = f"an op must be at most {limits.op_bytes} bytes (op_bytes); got {last - first}"
            raise GraphError(f"$.graph[{number}]: {sentence}")
    return Outline(begin, end, ops)


def _list_of_ops(data: bytes, blocks: Iterator[_Block]) -> tuple[int, Array]:
    """Return the start of the list of ops, after its bracket, and the end of each op.

    Without such a list, return 0 and no ends.
    """
    matches = (match for match in _LIST_OF_OPS.finditer(data) if data[match.start() - 1 : match.start()] != b"\\")
    candidates = np.fromiter((match.end() - 1 for match in matches), np.int64)
    begin, cuts = 0, [np.empty(0, np.int64)]
    for places, kinds, depths in blocks if len(candidates) else ():
        if not begin:
            opens = places[(kinds == _OPEN) & (depths == 2)]
            known = candidates[np.searchsorted(candidates[:-1], opens)] == opens
            begin = int(opens[known][0]) + 1 if known.any() else 0
        if begin:
            within = places >= begin
            closes = places[within & (kinds == _CLOSE) & (depths == 1)][:1]
            commas = places[within & (kinds == _COMMA) & (depths == 2)]
            if len(closes):
                return begin, np.concatenate([*cuts, commas[commas < closes], closes])
            cuts.append(commas)
    return (begin, np.array([*np.concatenate(cuts), len(data)])) if begin else (0, cuts[0])


def _blocks(data: bytes, nesting: int) -> Iterator[_Block]:
    """Yield the positions of brackets and commas outside strings, their kinds, and the depths after them, per block.

    Raises GraphError if the depth exceeds ``nesting``.
    """
    text = np.frombuffer(_without_escaped_quotes(data), np.uint8)
    quotes = depth = 0
    for start in range(0, len(text), _BLOCK):
        kinds = _KINDS[text[start : start + _BLOCK]]
        places = np.flatnonzero(kinds)
        kinds = kinds[places]
        is_quote = kinds == _QUOTE
        within = (np.cumsum(is_quote, dtype=np.int32) + quotes) & 1
        quotes = int(within[-1]) if len(within) else quotes
        bare = (within == 0) & ~is_quote
        places, kinds = places[bare] + start, kinds[bare]
        depths = np.cumsum(_STEPS[kinds]) + depth
        depth = int(depths[-1]) if len(depths) else depth
        if depths.max(initial=0) > nesting:
            before = data[: places[np.argmax(depths > nesting)]].decode(errors="replace")
            sentence = f"must nest at most {nesting} deep (nesting); it is deeper at character {len(before)}"
            raise GraphError(f"$: {sentence}")
        yield places, kinds, depths


def _without_escaped_quotes(data: bytes) -> bytes:
    """Return a text of the same length in which every quote begins or ends a string."""
    return data.replace(b"\\\\", b"__").replace(b'\\"', b"__") if b"\\" in data else data
