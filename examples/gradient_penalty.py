"""Hold the gradients of a small critic to length 1: a penalty on a gradient, differentiated by convgrad.vjp.

python examples/gradient_penalty.py --steps 60

The critic is score(src) = <head, ReLU(convolution(src, weights))>. The penalty is the mean over images of
(|gradient| - 1)^2, where gradient = d score / d src is the pullback of what ReLU lets through, so the penalty's
derivatives are those of a pullback. Before the first step they are held against differences.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad import convolution, vjp

Array = NDArray[np.float64]
LAYER: dict[str, Any] = {"strides": 2, "auto_pad": "same_upper"}
IMAGES, SIZE, CHANNELS, FEATURES = 4, 9, 2, 8
RATE, SHIFT, NEAR = 0.02, 1e-6, 1e-6


def penalty(src: Array, weights: Array, head: Array) -> tuple[float, Array, Array]:
    """Return the penalty and its derivatives by weights and head."""
    dst, pullback = vjp("Convolution", src, weights, **LAYER)
    passed = dst > 0
    (gradient, _), again = pullback.vjp(head * passed, needs=("src",))
    lengths = np.sqrt(np.square(gradient).sum(axis=(1, 2, 3), keepdims=True))
    v = 2 / len(src) * (1 - 1 / lengths) * gradient  # the penalty's derivative by the gradient
    _, by_weights, by_diff_dst = again((v, None))
    return float(np.mean((lengths - 1) ** 2)), by_weights, (by_diff_dst * passed).sum(axis=0)


def differences(src: Array, weights: Array, head: Array) -> tuple[Array, Array]:
    """Return the same derivatives from differences of the penalty, element by element."""
    found = []
    for tensor in (weights, head):
        slopes = np.empty_like(tensor)
        for at in np.ndindex(tensor.shape):
            before, around = tensor[at], []
            for shift in (-SHIFT, SHIFT):
                tensor[at] = before + shift
                around.append(penalty(src, weights, head)[0])
            tensor[at] = before
            slopes[at] = (around[1] - around[0]) / (2 * SHIFT)
        found.append(slopes)
    return found[0], found[1]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Train a critic until its gradients have length 1.")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    rng = np.random.default_rng(options.seed)
    src = rng.standard_normal((IMAGES, SIZE, SIZE, CHANNELS))
    weights = rng.standard_normal((3, 3, CHANNELS, FEATURES)) / 3
    head = rng.standard_normal(convolution(src, weights, **LAYER).shape[1:])
    pairs = zip(penalty(src, weights, head)[1:], differences(src, weights, head), strict=True)
    apart = max(float(np.abs(one - other).max() / np.abs(other).max()) for one, other in pairs)
    print(f"derivatives and differences of the penalty are {apart:.1e} of the largest apart")
    for step in range(options.steps + 1):
        value, by_weights, by_head = penalty(src, weights, head)
        if step % 10 == 0 or step == options.steps:
            print(f"step {step:3}: penalty {value:.6f}")
        weights -= RATE * by_weights
        head -= RATE * by_head
    return 0 if apart < NEAR else 1


if __name__ == "__main__":
    sys.exit(main())
