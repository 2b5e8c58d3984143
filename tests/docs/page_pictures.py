"""The pictures of docs/gradient.md and docs/shapes.md; every number in them is computed by convgrad.

``python -m tests.docs.page_pictures`` writes them; a test holds the files to what this makes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import convgrad
from tests.docs.svg import CELL, DARK, EMPTY, INK, PLAIN, QUIET, TAPS, WIDTH, cell, line, number, picture, row, words
from tests.support.places import DOCS

SRC, WEIGHTS, DIFF_DST = (1, 3, 2, 0, 4), (2, 1, 3), (1, -1, 2)  # the page's example
SECOND_SRC, SECOND_DIFF_DST = (2, 0, 1, 1, 3), (1, 1, -1)  # its second image
SMALL = (1, 3, 2)  # what is transposed


def tensor(values: Sequence[float]) -> np.ndarray:
    """Return values as one image of one channel."""
    return np.array(values, np.float32).reshape(1, -1, 1)


def kernel(values: Sequence[float]) -> np.ndarray:
    """Return values as taps from one channel to one."""
    return np.array(values, np.float32).reshape(-1, 1, 1)


def listed(array: np.ndarray) -> list[float]:
    return array.ravel().tolist()


def forward(src: Sequence[float] = SRC, **layer: Any) -> list[float]:
    return listed(convgrad.convolution(tensor(src), kernel(WEIGHTS), **layer))


def by_weights(src: Sequence[float], diff_dst: Sequence[float]) -> list[float]:
    return listed(convgrad.convolution_backward_weights(tensor(src), tensor(diff_dst), (3, 1, 1)))


def product(a: float, b: float) -> str:
    return f"{number(a)}·{number(b)}"


def total(terms: Sequence[float], result: float) -> str:
    """Write a sum of numbers and what it is."""
    text = " + ".join(map(number, terms)).replace("+ −", "− ")
    return f"{text} = {number(result)}"


# -- the example -----------------------------------------------------------------------------------------------------


def sliding() -> str:
    """The kernel under three positions of src."""
    parts, x, step = [], 84, 128
    for p, result in enumerate(forward()):
        y = 12 + p * step
        fills = [TAPS[i - p] if 0 <= i - p < 3 else PLAIN for i in range(5)]
        parts += [words(x - 12, y + CELL / 2, "src", "end", ink=QUIET), row(x, y, [*map(number, SRC)], fills)]
        parts += [words(x - 12, y + 1.5 * CELL, "weights", "end", ink=QUIET)]
        parts += [row(x + p * CELL, y + CELL, [*map(number, WEIGHTS)], TAPS)]
        parts += [line(x + 5 * CELL + 8, y + CELL, x + 5 * CELL + 36, y + CELL, INK, arrow=True)]
        parts += [cell(x + 5 * CELL + 42, y + CELL / 2, number(result), thick=True)]
        said = " + ".join(product(SRC[p + k], WEIGHTS[k]) for k in range(3))
        parts += [words(x + (p + 1.5) * CELL, y + 2 * CELL + 14, f"{said} = {number(result)}", size=14)]
        if p == 0:
            parts += [words(x + 5 * CELL + 42 + CELL / 2, y + 8, "dst", ink=QUIET)]
    return picture(
        "Forward: the kernel slides along src; each dst is a sum of three products", 2 * step + 2 * CELL + 40, parts
    )


def table(
    columns: int,
    taps: Callable[[int, int], int],
    entry: Callable[[int, int, int], str],
    top: Sequence[float] | None,
    left: Sequence[float] | None,
    names: tuple[str, str],
    width: float,
) -> tuple[list[str], float, float]:
    """Return the table of who meets: rows are positions of dst, columns those of src, colours are taps."""
    x, y = 74, 66 if top else 40
    parts = []
    if top:
        parts += [words(x - 10, 30, names[0], "end", ink=QUIET), row(x, 8, [*map(number, top)], width=width)]
    else:
        parts += [words(x + (i + 0.5) * width, 24, f"i = {i}", ink=QUIET, size=13) for i in range(columns)]
    for p in range(3):
        at = y + p * CELL
        if left:
            parts += [cell(8, at, number(left[p]), width=50)]
        else:
            parts += [words(x - 10, at + CELL / 2, f"p = {p}", "end", ink=QUIET, size=13)]
        for i in range(columns):
            k = taps(p, i)
            met = 0 <= k < 3
            parts += [cell(x + i * width, at, entry(p, i, k) if met else "", TAPS[k] if met else EMPTY, width, size=15)]
    if left:
        parts += [words(33, y - 12, names[1], ink=QUIET, size=14)]
    return parts, x, y + 3 * CELL


def meetings() -> str:
    """Forward as a table: rows are summed."""
    results, width = forward(), 50
    parts, x, below = table(
        5, lambda p, i: i - p, lambda p, i, k: product(SRC[i], WEIGHTS[k]), SRC, None, ("src", ""), width
    )
    parts += [words(x + 5 * width + 46, 30, "dst", ink=QUIET)]
    for p, result in enumerate(results):
        parts += [words(x + 5 * width + 12, below - (2.5 - p) * CELL, "=", size=15)]
        parts += [cell(x + 5 * width + 26, below - (3 - p) * CELL, number(result), thick=True, width=40)]
    parts += legend(x, below + 22)
    return picture("Forward as a table of products: each row adds up to one dst", below + 44, parts)


def legend(x: float, y: float) -> list[str]:
    """Say which colour is which tap."""
    parts = []
    for k in range(3):
        parts += [f'<rect x="{x + k * 96:g}" y="{y - 8:g}" width="16" height="16" fill="{TAPS[k]}" stroke="#8a8a8a"/>']
        parts += [words(x + k * 96 + 22, y, f"tap {k}", "start", size=14, ink=DARK[k])]
    return parts


def weights_gradient() -> str:
    """The same table without the weights: cells of one colour are summed."""
    products = [[SRC[p + k] * DIFF_DST[p] for p in range(3)] for k in range(3)]
    entry = lambda p, i, k: product(SRC[i], DIFF_DST[p])  # noqa: E731
    parts, x, below = table(5, lambda p, i: i - p, entry, SRC, DIFF_DST, ("src", "diff_dst"), 62)
    for k, result in enumerate(by_weights(SRC, DIFF_DST)):
        y = below + 30 + k * (CELL + 6)
        parts += [words(x + 172, y + CELL / 2, total(products[k], result).split("=")[0] + "=", "end", size=16)]
        parts += [f'<rect x="{x:g}" y="{y + 14:g}" width="16" height="16" fill="{TAPS[k]}" stroke="#8a8a8a"/>']
        parts += [words(x + 22, y + CELL / 2, f"tap {k}", "start", size=14, ink=DARK[k])]
        parts += [cell(x + 182, y, number(result), TAPS[k], 50, thick=True)]
    parts += [words(x + 207, below + 16, "diff_weights", ink=QUIET, size=14)]
    return picture(
        "Weight gradient: the products of one colour add up to the gradient of one tap",
        below + 34 + 3 * (CELL + 6),
        parts,
    )


def data_gradient() -> str:
    """The same table without src: columns are summed."""
    diff_src = listed(convgrad.convolution_backward_data(tensor(DIFF_DST), kernel(WEIGHTS), (1, 5, 1)))
    entry = lambda p, i, k: product(DIFF_DST[p], WEIGHTS[k])  # noqa: E731
    return columns_summed(
        "Data gradient: each column adds up to one diff_src",
        5,
        1,
        entry,
        DIFF_DST,
        ("diff_dst", "diff_src"),
        diff_src,
        62,
    )


def transposed() -> str:
    """Copies of the kernel, each times one src, laid two apart."""
    dst = listed(convgrad.conv_transpose(tensor(SMALL), kernel(WEIGHTS), strides=2))
    entry = lambda p, i, k: product(SMALL[p], WEIGHTS[k])  # noqa: E731
    title = "Transposed convolution of stride 2: each src lays down a copy of the kernel; columns add up to dst"
    return columns_summed(title, len(dst), 2, entry, SMALL, ("src", "dst"), dst, 45)


def columns_summed(
    title: str,
    columns: int,
    stride: int,
    entry: Callable[[int, int, int], str],
    left: Sequence[float],
    names: tuple[str, str],
    sums: Sequence[float],
    width: float,
) -> str:
    parts, x, below = table(columns, lambda p, i: i - stride * p, entry, None, left, ("", names[0]), width)
    for i in range(columns):
        parts += [line(x + (i + 0.5) * width, below + 4, x + (i + 0.5) * width, below + 24, INK, 1.5, arrow=True)]
    parts += [words(x - 10, below + 28 + CELL / 2, names[1], "end", ink=QUIET, size=14)]
    parts += [row(x, below + 28, [*map(number, sums)], width=width, thick=True), *legend(x, below + CELL + 50)]
    return picture(title, below + CELL + 70, parts)


# -- stride, padding, dilation ---------------------------------------------------------------------------------------


def strip(title: str, src: Sequence[float], stride: int = 1, dilation: int = 1, pads: tuple[int, int] = (0, 0)) -> str:
    """Draw who meets whom: a line from each src to each dst that it goes into, in its tap's colour."""
    layer = {"strides": stride, "dilations": dilation, "pads_begin": pads[0], "pads_end": pads[1]}
    dst = forward(src, **layer)
    places = range(-pads[0], len(src) + pads[1])
    x = (WIDTH + 34 - len(places) * CELL) / 2 + pads[0] * CELL
    low, high = 24 + CELL + 84, 24
    spread = stride * CELL
    first = x + CELL / 2 + (dilation - pads[0]) * CELL  # above its middle tap
    parts = []
    for p in range(len(dst)):
        for k in range(3):
            i = p * stride + k * dilation - pads[0]
            if 0 <= i < len(src):
                ends = (x + (i + 0.5) * CELL, low, first + p * spread, high + CELL)
                parts += [line(*ends, DARK[k], 2)]
    for i in places:
        inside = 0 <= i < len(src)
        parts += [
            cell(x + i * CELL, low, number(src[i]) if inside else "", PLAIN if inside else EMPTY, dashed=not inside)
        ]
        parts += [words(x + (i + 0.5) * CELL, low + CELL + 14, f"{number(i)}", ink=QUIET, size=13)]
    for p, result in enumerate(dst):
        parts += [cell(first + p * spread - CELL / 2, high, number(result), thick=True)]
        parts += [words(first + p * spread, high - 12, str(p), ink=QUIET, size=13)]
    left = min(x - pads[0] * CELL, first - CELL / 2)
    parts += [
        words(left - 8, low + CELL / 2, "src", "end", ink=QUIET),
        words(left - 8, high + CELL / 2, "dst", "end", ink=QUIET),
    ]
    parts += [
        words(left - 8, low + CELL + 14, "i", "end", ink=QUIET, size=13),
        words(left - 8, high - 12, "p", "end", ink=QUIET, size=13),
    ]
    parts += legend((WIDTH - 250) / 2, low + CELL + 44)
    return picture(title, low + CELL + 64, parts)


def batch() -> str:
    """Two images, two gradients, one sum."""
    images = ((SRC, DIFF_DST), (SECOND_SRC, SECOND_DIFF_DST))
    both = [np.concatenate([tensor(values) for values in pair]) for pair in zip(*images, strict=True)]
    whole = listed(convgrad.convolution_backward_weights(*both, (3, 1, 1)))
    parts, width, x = [], 28, 6
    results = x + 8 * width + 58
    for n, (src, diff_dst) in enumerate(images):
        y = 34 + n * (CELL + 44)
        parts += [words(x, y - 14, f"image {n}: src", "start", ink=QUIET, size=14)]
        parts += [row(x, y, [*map(number, src)], width=width)]
        parts += [words(x + 5 * width + 10, y - 14, "diff_dst", "start", ink=QUIET, size=14)]
        parts += [row(x + 5 * width + 10, y, [*map(number, diff_dst)], width=width)]
        parts += [line(x + 8 * width + 18, y + CELL / 2, results - 10, y + CELL / 2, INK, arrow=True)]
        parts += [row(results, y, [*map(number, by_weights(src, diff_dst))], TAPS, 36)]
    bottom = 34 + 2 * (CELL + 44)
    parts += [words(results + 54, 34 - 14, "its gradient", ink=QUIET, size=14)]
    parts += [words(results + 54, 34 + CELL + 22, "+", size=20), words(results + 54, bottom - 22, "=", size=20)]
    parts += [words(results - 12, bottom + CELL / 2, "diff_weights of the batch", "end", ink=QUIET, size=14)]
    parts += [row(results, bottom, [*map(number, whole)], TAPS, 36, thick=True)]
    return picture("The weight gradient of a batch is the sum of its images' gradients", bottom + CELL + 12, parts)


def image() -> str:
    """Two taps of a kernel of 3 x 3, and which numbers of an image add up to their gradients."""
    values = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)
    gradient = convgrad.convolution_backward_weights(values, np.ones((1, 2, 2, 1), np.float32), (3, 3, 1, 1))
    x, y, to, low = 8, 30, WIDTH - 8 - 3 * CELL, 30 + CELL // 2
    parts = [words(x, y - 14, "src", "start", ink=QUIET), words(to, low - 14, "diff_weights", "start", ink=QUIET)]
    shown = (0, TAPS[0], DARK[0]), (2, TAPS[2], DARK[2])  # a tap on the diagonal, its colours
    for at in range(4):
        fills = [next((fill for tap, fill, _ in shown if {at, i} <= {tap, tap + 1}), PLAIN) for i in range(4)]
        parts += [row(x, y + at * CELL, [*map(number, values[0, at].ravel())], fills)]
    for at in range(3):
        fills = [next((fill for tap, fill, _ in shown if at == i == tap), PLAIN) for i in range(3)]
        parts += [row(to, low + at * CELL, [*map(number, gradient[at].ravel())], fills, thick=True)]
    for at, (tap, fill, ink) in enumerate(shown):
        terms = values[0, tap : tap + 2, tap : tap + 2].ravel().tolist()
        below = y + 4 * CELL + 20 + at * 26
        parts += [f'<rect x="{x}" y="{below - 8:g}" width="16" height="16" fill="{fill}" stroke="#8a8a8a"/>']
        parts += [words(x + 22, below, f"tap ({tap}, {tap})", "start", size=14, ink=ink)]
        parts += [words(x + 100, below, total(terms, float(gradient[tap, tap].item())), "start", size=15)]
    return picture(
        "Weight gradient in two dimensions, diff_dst all ones: four numbers for each tap", y + 4 * CELL + 66, parts
    )


# -- layouts ---------------------------------------------------------------------------------------------------------


def memory(title: str, rows: Sequence[tuple[str, str, Sequence[str], Sequence[int]]], below: str, key: str) -> str:
    """Draw the same numbers in two orders, as they lie in memory: a text and a colour for each."""
    parts, width = [], (WIDTH - 12) / 12
    for at, (name, order, texts, colours) in enumerate(rows):
        y = 30 + at * 84
        parts += [words(6, y - 14, name, "start", bold=True), words(58, y - 14, order, "start", ink=QUIET, size=14)]
        parts += [row(6, y, texts, [TAPS[colour] for colour in colours], width, size=14 if key == "channel" else 12)]
    y = 30 + 84 + CELL
    parts += [words(6, y + 18, below, "start", ink=QUIET, size=14)]
    for k in range(3 if key == "channel" else 2):
        x = 226 + k * 58 if key == "channel" else 262 + k * 70
        parts += [f'<rect x="{x:g}" y="{y + 10:g}" width="16" height="16" fill="{TAPS[k]}" stroke="#8a8a8a"/>']
        parts += [words(x + 21, y + 18, f"{'c' if key == 'channel' else 'tap '}{k}", "start", size=14, ink=DARK[k])]
    return picture(title, y + 36, parts)


def data_layouts() -> str:
    """Four positions of three channels."""
    labels = np.arange(4).repeat(3).reshape(1, 4, 3), np.tile(np.arange(3), 4).reshape(1, 4, 3)
    orders = (
        ("NXC", "all channels of a position lie together", (0, 1, 2)),
        ("NCX", "all positions of a channel", (0, 2, 1)),
    )
    rows = [
        (name, text, [f"x{x}" for x in labels[0].transpose(axes).ravel()], listed(labels[1].transpose(axes)))
        for name, text, axes in orders
    ]
    return memory("Data in memory, channels last and channels first", rows, "x: position, colour: channel", "channel")


def weights_layouts() -> str:
    """Two taps, two channels in, three out."""
    tap, channel_in, channel_out = np.indices((2, 2, 3))
    orders = (("XIO", "all of a tap lies together", (0, 1, 2)), ("OIX", "all of a channel out", (2, 1, 0)))
    rows = []
    for name, text, axes in orders:
        pairs = zip(channel_in.transpose(axes).ravel(), channel_out.transpose(axes).ravel(), strict=True)
        rows.append((name, text, [f"{i}→{o}" for i, o in pairs], listed(tap.transpose(axes))))
    return memory("Weights in memory, in two orders", rows, "1→2: from channel 1 to channel 2", "tap")


PICTURES: Mapping[str, Callable[[], str]] = {
    "forward.svg": sliding,
    "meetings.svg": meetings,
    "weights_gradient.svg": weights_gradient,
    "data_gradient.svg": data_gradient,
    "stride.svg": lambda: strip("Stride 2: dst reads every second window", (*SRC, 2, 1), stride=2),
    "padding.svg": lambda: strip("Padding 1: the first and last dst lack a product", SRC, pads=(1, 1)),
    "dilation.svg": lambda: strip("Dilation 2: the taps lie two apart", (*SRC, 2, 1), dilation=2),
    "image.svg": image,
    "batch.svg": batch,
    "transposed.svg": transposed,
    "layouts_data.svg": data_layouts,
    "layouts_weights.svg": weights_layouts,
}

if __name__ == "__main__":
    (DOCS / "pictures").mkdir(exist_ok=True)
    for name, made in PICTURES.items():
        (DOCS / "pictures" / name).write_text(made(), encoding="utf-8")
        print(f"wrote docs/pictures/{name}", file=sys.stderr)
