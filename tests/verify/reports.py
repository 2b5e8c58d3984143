"""Twenty public reports of wrong or misjudged gradients: each kernel's fault done again in a few lines, and judged.

``python -m tests.verify.reports`` prints the table of reports.md, with details and places. The table has the fault of
each report, and docs/findings.md shows some of its rows. Faults are made of right calls: on operands read wrongly, of
other attributes, in pieces that are rounded. Where a report does not say what the kernel did, the fault is one that
does what it describes. Reports that call a right kernel wrong are right results here, which must be ok.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import convgrad
from convgrad.verify import Verdict, check

Array = np.ndarray
BF16 = np.dtype(ml_dtypes.bfloat16)
W, D, F = "ConvolutionBackwardWeights", "ConvolutionBackwardData", "Convolution"
TW, TF = "ConvTransposeBackwardWeights", "ConvTranspose"


def data(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def attributes(axes: int = 2, **given: Any) -> dict[str, Any]:
    """Return attributes as ``run`` wants them, channels first; an int stands for every axis."""
    spread = {n: [v] * axes if isinstance(v, int) and n != "groups" else v for n, v in given.items()}
    return {"strides": [1] * axes, "dilations": [1] * axes, "data_format": "NCX", "weights_format": "OIX"} | spread


def pads(pad: int) -> dict[str, int]:
    return {"pads_begin": pad, "pads_end": pad}


def split_k(parts: int, running: bool = False) -> Verdict:
    """A bf16 weight gradient added up from bf16 partial sums over images, each once or in a running sum."""
    src, diff_dst = data(64, 16, 8, 8, dtype=BF16), data(64, 8, 8, 8, dtype=BF16, seed=1)
    shape, how = (8, 16, 3, 3), attributes(**pads(1))
    total = np.zeros(shape, np.float64)
    for images in np.array_split(np.arange(64), parts):
        one = convgrad.run(W, src[images], diff_dst[images], shape, dtype="f32", **how)
        total += one.astype(np.float64) if running else one.astype(BF16).astype(np.float64)
        total = total.astype(BF16).astype(np.float64) if running else total
    return check(W, total.astype(np.float32), src, diff_dst, shape, **how)


def grouped_strided(axes: int) -> Verdict:
    """A grouped, strided weight gradient channels last, whose groups all read the channels of the first."""
    src, diff_dst = data(2, *[9] * axes, 12), data(2, *[5] * axes, 8, seed=1)
    how = {**attributes(axes, strides=2, groups=4, **pads(1)), "data_format": "NXC", "weights_format": "XIO"}
    shape = (*[3] * axes, 3, 8)
    read = np.concatenate([src[..., :3]] * 4, -1)
    return check(W, convgrad.run(W, read, diff_dst, shape, **how), src, diff_dst, shape, **how)


def pad_beyond_kernel() -> Verdict:
    """A forward whose pad is larger than its kernel reads the edge where it should read nothing."""
    src, weights = data(2, 4, 6, 6), data(8, 4, 3, 3, seed=1)
    wide = np.pad(src, ((0, 0), (0, 0), (5, 5), (5, 5)), mode="edge")
    result = convgrad.run(F, wide, weights, **attributes())
    return check(F, result, src, weights, **attributes(**pads(5)))


def strided_view() -> Verdict:
    """A channel slice of a wider tensor read as though it were contiguous."""
    wide, weights = data(3, 16, 7, 7), data(4, 8, 3, 3, seed=1)
    read = wide.ravel()[: 3 * 8 * 49].reshape(3, 8, 7, 7)
    return check(F, convgrad.run(F, read, weights, **attributes()), wide[:, :8], weights, **attributes())


def output_padding_unread() -> Verdict:
    """A transposed weight gradient by a helper that cannot express output_padding: what it adds is not read."""
    src, weights_shape = data(2, 6, 5, 5), (6, 4, 3, 3)
    diff_dst = data(2, 4, 10, 10, seed=1)
    how = {**attributes(strides=2, **pads(1)), "weights_format": "IOX"}
    cut = diff_dst[:, :, :9, :9]
    result = convgrad.run(TW, src, cut, weights_shape, **how)
    return check(TW, result, src, diff_dst, weights_shape, output_padding=[1, 1], **how)


def output_padding_dropped() -> Verdict:
    """A transposed forward whose rows of output_padding are left 0."""
    src, weights = data(2, 6, 5), data(6, 4, 3, seed=1)
    how = {**attributes(1, strides=2, **pads(1)), "weights_format": "IOX"}
    result = convgrad.run(TF, src, weights, output_padding=[1], **how)
    result[..., 9:] = 0
    return check(TF, result, src, weights, output_padding=[1], **how)


def grouped_strided_data() -> Verdict:
    """A grouped, strided data gradient whose groups are exchanged."""
    diff_dst, weights, shape = data(2, 8, 5, 5), data(8, 3, 3, 3, seed=1), (2, 6, 9, 9)
    how = attributes(strides=2, groups=2, **pads(1))
    read = np.roll(diff_dst, 4, 1)
    return check(D, convgrad.run(D, read, weights, shape, **how), diff_dst, weights, shape, **how)


def one_by_one() -> Verdict:
    """A 1x1 forward of 104 to 208 channels whose kernel sums whole blocks of 32 channels."""
    src, weights = data(2, 104, 4, 4), data(208, 104, 1, 1, seed=1)
    read = src.copy()
    read[:, 96:] = 0
    return check(F, convgrad.run(F, read, weights, **attributes()), src, weights, **attributes())


def too_long() -> Verdict:
    """A data gradient that is longer than its source by the padding_out that it adds."""
    diff_dst, weights = data(2, 4, 4, 4), data(4, 3, 3, 3, seed=1)
    how = attributes(strides=2, **pads(1))
    longer = convgrad.run(D, diff_dst, weights, (2, 3, 8, 8), **how)
    return check(D, longer, diff_dst, weights, (2, 3, 7, 7), **how)


def tf32() -> Verdict:
    """A kernel that an autotuner may choose rounds its operands to tf32."""
    src, diff_dst, shape = data(4, 8, 8, 8), data(4, 8, 8, 8, seed=1), (8, 8, 3, 3)
    how = attributes(**pads(1))
    read = [((a.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32) for a in (src, diff_dst)]
    result = convgrad.run(W, *read, shape, **how)
    return check(W, result, src, diff_dst, shape, **how)


def silently_huge() -> Verdict:
    """A tap that sees only padding holds 1e37, what the memory held before."""
    src, diff_dst, shape = data(2, 4, 1), data(2, 4, 1, seed=1), (4, 4, 3)
    how = attributes(1, **pads(1))
    result = convgrad.run(W, src, diff_dst, shape, **how)
    result[..., 0] = 1e37
    return check(W, result, src, diff_dst, shape, **how)


def correlated() -> Verdict:
    """A gradient with a correlation of 0.99 to the right one: the last of 64 images is not summed."""
    src, diff_dst, shape = data(64, 4, 6, 6), data(64, 4, 6, 6, seed=1), (4, 4, 3, 3)
    how = attributes(**pads(1))
    right, got = (convgrad.run(W, src[:n], diff_dst[:n], shape, **how) for n in (64, 63))
    assert np.corrcoef(right.ravel(), got.ravel())[0, 1] > 0.98
    return check(W, got, src, diff_dst, shape, **how)


def long_batch() -> Verdict:
    """A right weight gradient of 1.28 million terms, by one chain over images of blocked sums in f32."""
    src, diff_dst, shape = data(32, 1, 200, 200), data(32, 1, 200, 200, seed=1), (1, 1, 3, 3)
    how = attributes(**pads(1))
    total = np.zeros(shape, np.float32)
    for n in range(32):
        total += convgrad.run(W, src[n : n + 1], diff_dst[n : n + 1], shape, **how)
    return check(W, total, src, diff_dst, shape, **how)


def signed_zeros() -> Verdict:
    """A right gradient whose zeros are -0, as a comparison of bits would not allow."""
    src, diff_dst, shape = data(2, 3, 5, 5), data(2, 4, 5, 5, seed=1), (4, 3, 3, 3)
    diff_dst[:, 1] = 0
    how = attributes(**pads(1))
    result = convgrad.run(W, src, diff_dst, shape, **how)
    result[1] = -0.0
    return check(W, result, src, diff_dst, shape, **how)


def other_order() -> Verdict:
    """A right bf16 gradient whose sums ran over the images backwards."""
    src, diff_dst, shape = data(8, 8, 6, 6, dtype=BF16), data(8, 8, 6, 6, dtype=BF16, seed=1), (8, 8, 3, 3)
    how = attributes(**pads(1))
    return check(W, convgrad.run(W, src[::-1], diff_dst[::-1], shape, **how), src, diff_dst, shape, **how)


def third_row() -> Verdict:
    """Depthwise, 24 channels, all ones: the third row of taps misses the last row of src."""
    src, diff_dst, shape = np.ones((1, 24, 6, 6), np.float32), np.ones((1, 24, 3, 3), np.float32), (24, 1, 3, 3)
    how = attributes(strides=2, groups=24, **pads(1))
    result = convgrad.run(W, src, diff_dst, shape, **how)
    result[:, :, 2] = [4, 6, 6]
    return check(W, result, src, diff_dst, shape, **how)


def truncated() -> Verdict:
    """A bf16 result of f32 sums, cut off instead of rounded."""
    src, weights = data(2, 16, 8, 8, dtype=BF16), data(16, 16, 3, 3, dtype=BF16, seed=1)
    wide = convgrad.run(F, src, weights, dtype="f32", **attributes())
    return check(F, (wide.view(np.uint32) >> 16).astype(np.uint16).view(BF16), src, weights, **attributes())


REPORTS: Mapping[str, Callable[[], Verdict]] = {
    "ROCm/rocm-libraries#8030": partial(split_k, 8),
    "ROCm/rocm-libraries#8029": partial(split_k, 64),
    "ROCm/rocm-libraries#4010": partial(split_k, 64, running=True),
    "ROCm/rocm-libraries#7082": signed_zeros,
    "iree-org/iree#23786": partial(grouped_strided, 2),
    "iree-org/iree#23706": partial(grouped_strided, 3),
    "nod-ai/amd-shark-ai#2866": long_batch,
    "pytorch/pytorch#173068": pad_beyond_kernel,
    "pytorch/pytorch#192212": strided_view,
    "pytorch/pytorch#195043": output_padding_unread,
    "ml-explore/mlx#3800": grouped_strided_data,
    "tracel-ai/burn#5626": one_by_one,
    "tracel-ai/burn#4916": too_long,
    "openxla/xla#47293": tf32,
    "tenstorrent/tt-metal#47411": output_padding_dropped,
    "tenstorrent/tt-metal#55545": silently_huge,
    "tenstorrent/tt-metal#34245": correlated,
    "flagos-ai/FlagGems#6530": other_order,
    "uxlfoundation/oneDNN#4124": third_row,
    "uxlfoundation/oneDNN#4684": truncated,
}


def cells(verdict: Verdict) -> tuple[str, str, str]:
    """Return a verdict's outcome, defect with its details, and where the wrong elements are."""
    said = ", ".join(f"{d.name} ({d.detail})" if d.detail else d.name for d in verdict.found)
    return verdict.outcome, said or "-", verdict.where or "-"


def agrees(found: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    """Whether a verdict has the outcome and the defect of the table, which leaves out details and the place."""
    return (found[0], found[1].partition(" (")[0]) == wanted


def expected() -> dict[str, tuple[str, ...]]:
    """Return the rows of the table by thread: fault, outcome and defect."""
    page = Path(__file__).with_name("reports.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page if re.match(r"\| \S+/\S+#\d", line)]
    return {thread: tuple(others) for thread, *others in rows}


def main() -> int:
    print("| thread | report | outcome | defect | where | s |\n|---|---|---|---|---|---|")
    missed = 0
    for thread, (fault, *wanted) in expected().items():
        started = time.perf_counter()
        found = cells(REPORTS[thread]())
        print(f"| {' | '.join((thread, fault, *found))} | {time.perf_counter() - started:.2f} |")
        missed += not agrees(found, tuple(wanted))
    print(f"{len(REPORTS)} faults, {missed} judged otherwise than expected")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
