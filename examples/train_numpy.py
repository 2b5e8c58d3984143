"""Train a small network in NumPy with different threads and instruction sets, and check one of its gradients.

python examples/train_numpy.py

The network has three convolutions and learns to tell four kinds of bars apart. Each line has the SHA-256 of all its
trained weights. On another machine, the program prints the same hash. Last, it reverses the taps of a weight gradient,
which is a common bug, and shows what convgrad finds.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys

import numpy as np
from numpy.typing import NDArray

import convgrad
from convgrad.verify import check

Array = NDArray[np.float32]
ISAS = ("avx512", "avx2") if platform.machine() in ("x86_64", "AMD64") else ("neon",)
THREADS, STEPS, RATE = (1, 2, 3), 30, np.float32(2.0**-4)
LAYERS = ({"strides": 2, "auto_pad": "same_upper"}, {"strides": 2, "auto_pad": "same_upper"}, {})
SHAPES = ((3, 3, 1, 16), (3, 3, 16, 32), (4, 4, 32, 4))  # height, width, channels in, channels out


def bars(count: int, seed: int) -> tuple[Array, NDArray[np.int64]]:
    """Return noisy images with a bar each, and the direction of each bar. All numbers are small integers / 16."""
    rng = np.random.default_rng(seed)
    labels, offsets = rng.integers(0, 4, count), rng.integers(-3, 4, count)
    y, x = np.mgrid[:16, :16]
    across = np.stack([y - 8, x - 8, y - x, y + x - 15])[labels] - offsets[:, None, None]
    return ((abs(across) < 2) + rng.integers(-8, 9, across.shape) / 16)[..., None].astype(np.float32), labels


def forward(images: Array, weights: list[Array]) -> list[Array]:
    """Return the input of each layer, and the output of the last one."""
    values = [images]
    for at, (weight, layer) in enumerate(zip(weights, LAYERS, strict=True)):
        activation = "relu" if at + 1 < len(LAYERS) else None
        values.append(convgrad.convolution(values[-1], weight, **layer, activation=activation))
    return values


def gradients(values: list[Array], weights: list[Array], wanted: Array) -> list[Array]:
    """Return the gradients of the mean squared error with respect to the weights, from the last layer to the first."""
    found: list[Array] = []
    diff_dst = (values[-1] - wanted) * np.float32(2 / len(wanted))
    for at in reversed(range(len(LAYERS))):
        src, weight, layer = values[at], weights[at], LAYERS[at]
        found.insert(0, convgrad.convolution_backward_weights(src, diff_dst, weight.shape, **layer))
        if at:
            diff_src = convgrad.convolution_backward_data(diff_dst, weight, src.shape, **layer)
            diff_dst = np.where(src > 0, diff_src, np.float32(0))  # the gradient of ReLU
    return found


def train() -> tuple[list[Array], float]:
    """Return trained weights, and the share of new images that they tell right."""
    rng = np.random.default_rng(0)
    weights = [(rng.integers(-256, 257, shape) / 1024).astype(np.float32) for shape in SHAPES]
    images, labels = bars(256, 1)
    wanted = np.eye(4, dtype=np.float32)[labels][:, None, None]
    for _ in range(STEPS):
        found = gradients(forward(images, weights), weights, wanted)
        weights = [weight - RATE * gradient for weight, gradient in zip(weights, found, strict=True)]
    images, labels = bars(256, 2)
    return weights, float((forward(images, weights)[-1].reshape(-1, 4).argmax(1) == labels).mean())


def one_process() -> None:
    """Train with each number of threads, and print the hashes of the weights."""
    for threads in THREADS:
        with convgrad.threads(threads):
            weights, accuracy = train()
        digest = hashlib.sha256(b"".join(weight.tobytes() for weight in weights)).hexdigest()
        setting = f"at most {os.environ['CONVGRAD_MAX_ISA']}, {threads} thread" + "s" * (threads > 1)
        print(f"{setting:26}  {digest[:16]}  {accuracy:.0%} of new images are right", flush=True)


def main() -> None:
    if "--one" in sys.argv:
        one_process()
        return
    for isa in ISAS:
        environment = {**os.environ, "CONVGRAD_MAX_ISA": isa}
        subprocess.run([sys.executable, __file__, "--one"], env=environment, check=True)
    src, diff_dst = (np.random.default_rng(at).standard_normal((2, 28, 28, 16), np.float32) for at in (0, 1))
    layer = {"weights_shape": (3, 3, 16, 16), "auto_pad": "same_upper"}
    reversed_taps = convgrad.convolution_backward_weights(src, diff_dst, **layer)[::-1, ::-1]
    verdict = check("ConvolutionBackwardWeights", reversed_taps, src, diff_dst, **layer)
    print(f"A weight gradient with reversed taps is {verdict.outcome}: {', '.join(verdict.defects)}")


if __name__ == "__main__":
    main()
