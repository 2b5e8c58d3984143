"""The tables of docs/shapes.md, every number of them from convgrad.

``python -m tests.docs.shape_pages`` writes them; a test holds the page to what this makes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import convgrad
from convgrad.errors import ConvgradError
from convgrad.functional.call import problem_from_shapes
from tests.support.places import DOCS

PAGE = DOCS / "shapes.md"
MADE = re.compile(r"(<!-- made by tests/docs/shape_pages.py: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

CONVOLUTIONS = (  # I, K, stride, dilation, pads
    (224, 7, 2, 1, (3, 3)),
    (56, 3, 1, 1, (1, 1)),
    (56, 3, 2, 1, (0, 1)),
    (32, 3, 1, 2, (2, 2)),
    (10, 3, 3, 2, (0, 0)),
)
SAME = ((224, 7, 2, 1), (112, 3, 2, 1), (15, 3, 2, 1), (56, 4, 1, 1))
TRANSPOSED = (  # l, K, stride, dilation, pads
    (14, 4, 2, 1, (1, 1)),
    (14, 3, 2, 1, (1, 1)),
    (14, 2, 2, 1, (0, 0)),
    (7, 2, 3, 1, (0, 0)),
)


def attributes(stride: int, dilation: int, pads: tuple[int, int] = (0, 0), **others: Any) -> dict[str, Any]:
    return {"strides": [stride], "dilations": [dilation], "pads_begin": [pads[0]], "pads_end": [pads[1]], **others}


def extent(operator: str, source: int, kernel: int, **layer: Any) -> int:
    """Return the extent that an operator makes of one."""
    return convgrad.infer_shapes(operator, (1, source, 1), (kernel, 1, 1), **layer)[1]


def alike(source: int, kernel: int, **layer: Any) -> str:
    """Return the first and the last extent of src from which comes the dst that comes from this one."""

    def makes(other: int) -> int:
        try:
            return extent("Convolution", other, kernel, **layer)
        except ConvgradError:  # the kernel does not fit
            return 0

    dst = makes(source)
    stride = layer["strides"][0]
    those = [other for other in range(max(1, source - stride), source + stride + 1) if makes(other) == dst]
    return f"{those[0]}..{those[-1]}" if len(those) > 1 else str(those[0])


def unread(source: int, kernel: int, **layer: Any) -> int:
    """Return how many positions at the end of src no tap reaches: where a gradient of ones is 0."""
    dst = extent("Convolution", source, kernel, **layer)
    ones = np.ones((1, dst, 1), np.float32), np.ones((kernel, 1, 1), np.float32)
    gradient = convgrad.run("ConvolutionBackwardData", *ones, (1, source, 1), **layer).ravel()
    return int(source - 1 - gradient.nonzero()[0][-1])


def pads(source: int, kernel: int, **layer: Any) -> str:
    """Return what an auto_pad comes to, beginning and end."""
    _, problem = problem_from_shapes("Convolution", ((1, source, 1), (kernel, 1, 1)), layer)
    (axis,) = problem.geometry.axes
    return f"{axis.pad_begin}, {axis.pad_end}"


def written(head: str, *rows: tuple[object, ...]) -> str:
    lines = [head, "|---" * (head.count("|") - 1) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(map(str, cells)) + " |" for cells in rows)]) + "\n"


def convolution() -> str:
    rows = []
    for source, kernel, stride, dilation, given in CONVOLUTIONS:
        layer = attributes(stride, dilation, given)
        found = extent("Convolution", source, kernel, **layer), unread(source, kernel, **layer)
        cells = (source, kernel, stride, dilation, "{}, {}".format(*given), f"**{found[0]}**", found[1])
        rows.append((*cells, alike(source, kernel, **layer)))
    return written("| I | K | s | d | pads | O | unread | I of O |", *rows)


def same() -> str:
    rows = []
    for source, kernel, stride, dilation in SAME:
        layers = [attributes(stride, dilation, auto_pad=name) for name in ("same_upper", "same_lower", "valid")]
        upper, lower, valid = (extent("Convolution", source, kernel, **layer) for layer in layers)
        assert upper == lower
        both = (pads(source, kernel, **layer) for layer in layers[:2])
        rows.append((source, kernel, stride, dilation, f"**{upper}**", *both, valid))
    return written("| I | K | s | d | O | same_upper | same_lower | O of valid |", *rows)


def transposed() -> str:
    rows = []
    for small, kernel, stride, dilation, given in TRANSPOSED:
        layer = attributes(stride, dilation, given)
        more = (extent("ConvTranspose", small, kernel, **layer, output_padding=[op]) for op in (0, 1))
        allowed = max(stride, dilation) > 1
        zero = next(more)
        one = next(more) if allowed else "-"
        by_same = extent("ConvTranspose", small, kernel, **layer, auto_pad="same_upper")
        rows.append((small, kernel, stride, dilation, "{}, {}".format(*given), f"**{zero}**", one, by_same))
    return written("| l | K | s | d | pads | L | L, op = 1 | L of same |", *rows)


TABLES: Mapping[str, Callable[[], str]] = {"convolution": convolution, "same": same, "transposed": transposed}


def made(page: str) -> str:
    """Return the page with its tables made again."""
    return MADE.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n{found[3]}", page)


if __name__ == "__main__":
    PAGE.write_text(made(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print("wrote the tables of docs/shapes.md", file=sys.stderr)
