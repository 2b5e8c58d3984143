"""Recognition of mixed accumulation by replay: f32 inside a row, an image or a tap, and fewer bits between them.

The errors of the inner f32 sums are small compared with a rounding to bf16 or f16. So the inner sums can be computed
exactly, and the outer sums be rounded in the order of the loops. A result of this arithmetic then has the replay's bits
at almost all elements. Other errors of the same size have these bits at few elements.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from convgrad.array_types import F64Array
from convgrad.formats import BF16, F16, Format, round_to
from convgrad.verify.diagnose.fit import ENOUGH, surprise
from convgrad.verify.diagnose.sums import Scene
from convgrad.verify.judge.names import PARTIALS
from convgrad.verify.rows import rows_of
from convgrad.verify.verdict import Defect

TERMS = 2**24  # maximum number of terms of all elements that are replayed
AGREED = 0.8  # minimum share of the elements with the replay's bits
AS_GOOD = 0.05  # replays whose shares differ by less are both named


def mixed(scene: Scene) -> Iterator[Defect]:
    """Yield the defect of partial sums rounded between rows, images or taps, if a replay has the result's bits.

    Elements speak if the replay or the result differs from the rounded exact sum. They give evidence as throws of a
    coin do, because another result is on the replay's side of the exact sum, with the replay's bits, in at most half of
    all cases.
    """
    where = _sampled(scene)
    if scene.conv is None or scene.problem.accumulate or "bias" in scene.tensors or not where.size:
        return
    at = [tuple(int(i) for i in index) for index in zip(*np.unravel_index(where, scene.got.shape), strict=True)]
    x, y = rows_of(scene.problem, scene.operands, at)
    out, got = scene.problem.output_format, scene.actual[where]
    right = round_to(scene.exact.value.ravel()[where], out)
    defects: list[tuple[float, Defect]] = []
    for fmt in (BF16, F16):
        if fmt.significand_bits >= scene.accumulator.significand_bits:
            continue
        for words, total in _replays(x * y, scene.problem.solves_for == "weights", fmt):
            replayed = round_to(total, out)
            speaks = np.isfinite(replayed) & ((replayed != right) | (got != right))
            speaking, same = int(speaks.sum()), int((speaks & (replayed == got)).sum())
            if same >= AGREED * speaking and surprise(same, speaking) >= ENOUGH:
                bits = f"the same bits at {same} of {speaking} elements"
                defects.append((same / speaking, Defect(PARTIALS.format(fmt), f"{words}, {bits}")))
    best = max((share for share, _ in defects), default=0.0)
    yield from [defect for share, defect in defects if share >= best - AS_GOOD][:1]


def _sampled(scene: Scene) -> NDArray[np.intp]:
    longest = max(1, int(scene.exact.terms.max(initial=1)))
    return scene.many[:: max(1, -(-scene.many.size * longest // TERMS))]


def _replays(products: F64Array, gradient: bool, fmt: Format) -> Iterator[tuple[str, F64Array]]:
    """Yield the loops in words and the sums [element] of products [element, image or channel, positions or taps...]."""
    count = len(products)
    if not gradient:
        taps = products.sum(1).reshape(count, -1)
        yield "a running sum over taps", _running(taps, fmt)
        yield "rounded after each tap", round_to(taps, fmt).sum(1)
        return
    rows = products.sum(-1).reshape(count, products.shape[1], -1)
    images = rows.sum(2)
    yield "a running sum over images", _running(images, fmt)
    yield "a running sum over the rows of all images", _running(rows.reshape(count, -1), fmt)
    within = _running(rows, fmt)
    yield "a running sum over the rows of each image, then over images", _running(within, fmt)
    yield "a running sum over the rows of each image", within.sum(1)
    yield "rounded after each image", round_to(images, fmt).sum(1)
    yield "rounded after each row", round_to(rows, fmt).sum((1, 2))


def _running(parts: F64Array, fmt: Format) -> F64Array:
    """Return sums along the last axis, rounded to a format after each addition."""
    total = np.zeros(parts.shape[:-1])
    for at in range(parts.shape[-1]):
        total = round_to(total + parts[..., at], fmt)
    return total
