"""oneDNN's memory tags: the operators' layout that a tag without blocks means.

A tag lists the axes in their order in memory, outermost first. It has the letters a, b, c, ... of the logical axes, or
oneDNN's names (n c d h w, g o i d h w). The letter x means all axes that the tag does not name. Logical axes are n, c,
x... for data, and [g,] o, i, x... for weights, also for the weights of a deconvolution.
"""

from __future__ import annotations

import re

from convgrad.errors import NotationError

ANY = "any"
_SPATIAL = "dhw"
_TAG = re.compile(r"[A-Za-z][A-Za-z0-9]*")

Order = tuple[int, ...]


def data_format(tag: str, axes: int) -> str | None:
    """Return the data format that a tag means for ``axes`` spatial axes; None for any other layout.

    >>> data_format("axb", 2), data_format("ncw", 1), data_format("nChw16c", 2)
    ('NXC', 'NCX', None)
    """
    order = _order(tag, "nc", axes)
    spatial = tuple(range(2, axes + 2))
    return {(0, 1, *spatial): "NCX", (0, *spatial, 1): "NXC"}.get(order)


def weights_format(tag: str, axes: int, groups: int, transposed: bool = False) -> str | None:
    """Return the weights format that a tag means; None for any other layout.

    A tag may have an axis of groups. In OIX and XIO, this axis is a part of the outer channels. In the formats of a
    deconvolution, IOX and XOI, it is a part of the inner channels.

    >>> weights_format("hwio", 2, 1), weights_format("goihw", 2, 4), weights_format("iohw", 2, 1, transposed=True)
    ('XIO', 'OIX', 'IOX')
    """
    grouped = tuple(range(3, axes + 3))
    of_groups = {(0, 1, 2, *grouped): "OIX", (*grouped, 2, 0, 1): "XIO"}
    spatial = tuple(range(2, axes + 2))
    single = {(0, 1, *spatial): "OIX", (*spatial, 1, 0): "XIO"}
    if transposed:
        of_groups = {(0, 2, 1, *grouped): "IOX", (*grouped, 1, 0, 2): "XOI"}
        single = {(1, 0, *spatial): "IOX", (*spatial, 0, 1): "XOI"}
    with_groups = of_groups.get(_order(tag, "goi", axes))
    return with_groups or (single.get(_order(tag, "oi", axes)) if groups == 1 else None)


def check_tag(tag: str) -> None:
    """Raise NotationError if a text does not have the form of a tag.

    >>> check_tag("a-b")
    Traceback (most recent call last):
        ...
    convgrad.errors.NotationError: a tag is letters and block sizes, such as axb, nhwc or aBx16b; got 'a-b'
    """
    if _TAG.fullmatch(tag) is None:
        raise NotationError(f"a tag is letters and block sizes, such as axb, nhwc or aBx16b; got {tag!r:.80}")


def _order(tag: str, names: str, axes: int) -> Order:
    """Return the logical axes in memory order, or () if the tag does not list each axis once."""
    rank = len(names) + axes
    letters = "abcdefghijkl"[:rank]
    if not set(tag) <= {*letters, "x"}:
        letters = names + _SPATIAL[len(_SPATIAL) - axes :]
    others = "".join(letter for letter in letters if letter not in tag)
    spelled = tag.replace("x", others)
    return tuple(map(letters.index, spelled)) if sorted(spelled) == sorted(letters) else ()
