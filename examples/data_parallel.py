"""Train a small network by any number of worker processes, each on its slice of the batch: the weights are one hash.

python examples/data_parallel.py --workers 1 2 3 5

Each number is a run; in the last one the number changes from step to step, as workers come and go. A slice begins with
a leaf of every layer's sum over the batch (docs/batch.md). A worker goes forwards and back, image by image, and sends
its unfinished sums; what joins them has the gradients' bits as one process computes them of all images.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import multiprocessing
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad import Partials, convolution, convolution_backward_data, explain, join, partials

Array = NDArray[np.float32]
IMAGES, SIZE, RATE = 48, 14, np.float32(0.02)
SHAPES = ((3, 3, 1, 8), (3, 3, 8, 8))  # the second layer has strides of 2: 7 x 7 positions, five images a leaf
STRIDES = (1, 2)


def layer(strides: int) -> dict[str, Any]:
    """Return a layer's attributes."""
    return {"strides": [strides] * 2, "dilations": [1, 1], "auto_pad": "same_upper"}


def batch_of(first: int, end: int) -> tuple[Array, Array]:
    """Return images of the batch and what the network is to make of them: of each image the same, whoever asks."""
    src = np.empty((end - first, SIZE, SIZE, 1), np.float32)
    wanted = np.empty((end - first, SIZE // 2, SIZE // 2, 8), np.float32)
    for at in range(end - first):
        rng = np.random.default_rng(first + at)
        src[at], wanted[at] = (rng.standard_normal(one.shape[1:], np.float32) for one in (src, wanted))
    return src, wanted


def work(first: int, end: int, weights: Sequence[Array]) -> list[Partials]:
    """Return the unfinished sums of both layers' gradients over a slice of the batch."""
    src, wanted = batch_of(first, end)
    hidden = np.maximum(convolution(src, weights[0], **layer(1)), 0)
    result = convolution(hidden, weights[1], **layer(2))
    diff_result = (result - wanted) / np.float32(IMAGES)  # the loss is a mean over the whole batch, not over a slice
    diff_hidden = convolution_backward_data(diff_result, weights[1], hidden.shape, **layer(2)) * (hidden > 0)
    met = ((src, diff_hidden), (hidden, diff_result))
    return [
        partials("ConvolutionBackwardWeights", *pair, shape, first=first, **layer(strides))
        for pair, shape, strides in zip(met, SHAPES, STRIDES, strict=True)
    ]


def slices(workers: int) -> list[tuple[int, int]]:
    """Return slices of the batch, as equal as leaves of all layers allow; some are empty where there are too few."""
    leaves = []
    for shape, strides in zip(SHAPES, STRIDES, strict=True):
        src, dst = ((IMAGES, n, n, c) for n, c in zip((SIZE, SIZE // strides), shape[2:], strict=True))
        leaves.append(explain("ConvolutionBackwardWeights", src, dst, shape, **layer(strides)).leaf_images or 1)
    each = math.lcm(*leaves)
    count = -(-IMAGES // each)
    return [(a * each, min(b * each, IMAGES)) for a, b in pairwise(count * n // workers for n in range(workers + 1))]


def train(pool: Any, workers: Sequence[int]) -> str:
    """Take a step with each of these numbers of workers; return the weights' hash."""
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal(shape, np.float32) / np.float32(8) for shape in SHAPES]
    for number in workers:
        sent = pool.starmap(work, [(*one, weights) for one in slices(number)])
        gradients = [join(parts) for parts in zip(*sent, strict=True)]
        weights = [one - RATE * gradient for one, gradient in zip(weights, gradients, strict=True)]
    return hashlib.sha256(b"".join(one.tobytes() for one in weights)).hexdigest()[:16]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Train by any number of workers: the weights are one hash.")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 3, 5])
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args(arguments)
    if min(*options.workers, options.steps) < 1:
        parser.error("--workers and --steps begin at 1")
    runs = {str(number): [number] * options.steps for number in options.workers}
    runs["changing"] = [options.workers[step % len(options.workers)] for step in range(options.steps)]
    with multiprocessing.get_context("spawn").Pool(max(options.workers)) as pool:
        hashes = {name: train(pool, workers) for name, workers in runs.items()}
    for name, digest in hashes.items():
        print(f"{name:>8} workers, {options.steps} steps: weights {digest}")
    return 0 if len(set(hashes.values())) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
