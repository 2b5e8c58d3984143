"""Train two networks of 3x3 convolutions on handwritten digits by the direct sum, and by tiles of 2x2 and 4x4.

python benchmarks/tiles_training.py -o tiles_training.csv --plot docs/tiles_training.png

"digits" has four convolutions of 32 and 64 channels on 8x8 images, "resnet" a stem and three residual blocks of 64
channels on the same images, each pixel four times. Every ``max_error`` (1, 8, 64) begins with the same weights and
takes the same batches; forwards and both gradients of all convolutions are computed within it. Steps are taken in
turns, so that times compare: a step is a forward, a backward and an update.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rows import asked, write_rows

import convgrad
from convgrad.engines.settings import count
from convgrad.host import cpu_model

Array = NDArray[Any]
NETWORKS = ("digits", "resnet")
ACCURACIES = (1, 8, 64)
RATE, MOMENTUM = 0.01, 0.9  # the rate of the first step; it falls to 0
SAME = {"auto_pad": "same_upper"}
SPLIT = 1437  # images to train with; the others are held out


# -- layers: a forward returns its result and its backward ------------------------------------------------------------

Backward = Callable[[Array], Array]


@dataclass
class Weights:
    """An array that is learned, and how it moves."""

    value: Array
    moved: Array = field(init=False)
    gradient: Array = field(init=False)

    def __post_init__(self) -> None:
        """Begin at rest."""
        self.moved, self.gradient = np.zeros_like(self.value), np.zeros_like(self.value)

    def update(self, rate: float) -> None:
        """Take a step along the gradient, with momentum."""
        self.moved = (MOMENTUM * self.moved - rate * self.gradient).astype(np.float32)
        self.value += self.moved


@dataclass
class Convolution:
    """3x3, same size; ``learned`` are its weights. The first layer's src needs no gradient."""

    learned: Weights
    first: bool = False

    def __call__(self, x: Array) -> tuple[Array, Backward]:
        """Convolve."""
        needs = ("weights",) if self.first else ("src", "weights")

        def backward(v: Array) -> Array:
            found = convgrad.convolution_backward(x, v, self.learned.value, needs=needs, **SAME)
            self.learned.gradient = found.weights
            return x if self.first else found.src

        return convgrad.convolution(x, self.learned.value, **SAME), backward


def relu(x: Array) -> tuple[Array, Backward]:
    """Set what is negative to 0."""
    return np.maximum(x, 0), lambda v: v * (x > 0)


def halved(x: Array) -> tuple[Array, Backward]:
    """Take the mean of 2x2 positions."""
    n, height, width, channels = x.shape
    pooled = x.reshape(n, height // 2, 2, width // 2, 2, channels).mean((2, 4), dtype=np.float32)
    return pooled, lambda v: (v / np.float32(4)).repeat(2, 1).repeat(2, 2)


@dataclass
class Residual:
    """A sum of what comes in and what some layers make of it, to begin with half as much."""

    layers: Sequence[Any]

    def __call__(self, x: Array) -> tuple[Array, Backward]:
        """Compute the layers, and add."""
        made, backward = through(self.layers, x)
        half = np.float32(0.5)
        return x + half * made, lambda v: v + backward(half * v)


@dataclass
class Classes:
    """The mean over all positions, times weights."""

    learned: Weights

    def __call__(self, x: Array) -> tuple[Array, Backward]:
        """Return a number for each class."""
        means, places = x.mean((1, 2), dtype=np.float32), x.shape[1] * x.shape[2]

        def backward(v: Array) -> Array:
            self.learned.gradient = means.T @ v
            each = (v @ self.learned.value.T / np.float32(places))[:, None, None]
            return np.broadcast_to(each, x.shape).astype(np.float32)

        return means @ self.learned.value, backward


def through(layers: Sequence[Any], x: Array) -> tuple[Array, Backward]:
    """Compute layers, the first one first; the backward goes the other way."""
    back: list[Backward] = []
    for layer in layers:
        x, backward = layer(x)
        back.append(backward)

    def backwards(v: Array) -> Array:
        for one in reversed(back):
            v = one(v)
        return v

    return x, backwards


# -- networks ---------------------------------------------------------------------------------------------------------


@dataclass
class Network:
    """Layers, and all that they learn."""

    layers: Sequence[Any]
    learned: list[Weights]


def network(name: str) -> Network:
    """Return a network with its first weights, which are always the same."""
    rng = np.random.default_rng(20)
    learned: list[Weights] = []

    def weights(*shape: int) -> Weights:
        scale = np.sqrt(2 / np.prod(shape[:-1]))
        learned.append(Weights((scale * rng.standard_normal(shape)).astype(np.float32)))
        return learned[-1]

    def block() -> Residual:
        return Residual([Convolution(weights(3, 3, 64, 64)), relu, Convolution(weights(3, 3, 64, 64))])

    if name == "digits":
        layers = [
            Convolution(weights(3, 3, 1, 32), first=True), relu, Convolution(weights(3, 3, 32, 64)), relu, halved,
            Convolution(weights(3, 3, 64, 64)), relu, Convolution(weights(3, 3, 64, 64)), relu,
            Classes(weights(64, 10)),
        ]  # fmt: skip
    else:
        layers = [
            Convolution(weights(3, 3, 1, 64), first=True), relu, block(), relu, block(), relu, halved, block(), relu,
            Classes(weights(64, 10)),
        ]  # fmt: skip
    return Network(layers, learned)


def step(one: Network, images: Array, labels: Array, rate: float) -> float:
    """Learn from a batch; return its mean cross entropy before."""
    scores, backward = through(one.layers, images)
    scores -= scores.max(1, keepdims=True)
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -float(np.log(shares[rows, labels]).mean())
    shares[rows, labels] -= 1
    backward((shares / len(labels)).astype(np.float32))
    for each in one.learned:
        each.update(rate)
    return loss


def right(one: Network, images: Array, labels: Array) -> float:
    """Return the share of images whose class is found."""
    return float((through(one.layers, images)[0].argmax(1) == labels).mean())


def variants(batch: int, extent: int, channels: int, most: float) -> str:
    """Return which tiles a layer's forward, data and weight gradients take."""
    data, kernel = (batch, extent, extent, channels), (3, 3, channels, channels)
    calls = (
        ("Convolution", (data, kernel)), ("ConvolutionBackwardData", (data, kernel)),
        ("ConvolutionBackwardWeights", (data, data, kernel)),
    )  # fmt: skip
    found = [convgrad.explain(name, *shapes, max_error=most, **SAME).problem.algorithm for name, shapes in calls]
    return " ".join(each or "direct" for each in found)


# -- training ---------------------------------------------------------------------------------------------------------


def train(name: str, images: Array, labels: Array, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield a row for every step of every accuracy; the last of each has the share of images held out that is right."""
    if name == "resnet":
        images = images.repeat(2, 1).repeat(2, 2)
    networks, rng = {most: network(name) for most in ACCURACIES}, np.random.default_rng(64)
    taken = {most: variants(options.batch, images.shape[1], 64, most) for most in ACCURACIES}
    number = 0
    while number < options.steps:
        order = rng.permutation(SPLIT)
        for first in range(0, SPLIT - options.batch + 1, options.batch):
            batch, number = order[first : first + options.batch], number + 1
            for most, one in networks.items():
                with convgrad.max_error(most):
                    begin = time.perf_counter()
                    loss = step(one, images[batch], labels[batch], RATE * (1 - number / options.steps))
                    row = {"network": name, "max_error": most, "tiles": taken[most], "step": number, "loss": loss}
                    row["ms"] = 1e3 * (time.perf_counter() - begin)
                    row["held_out"] = right(one, images[SPLIT:], labels[SPLIT:]) if number == options.steps else ""
                    row["apart"] = apart(one, networks[1]) if number == options.steps else ""
                    yield row
            if number == options.steps:
                return


def apart(one: Network, other: Network) -> float:
    """Return how far all weights of two networks are apart, of their size."""
    mine, theirs = (np.concatenate([each.value.ravel() for each in which.learned]) for which in (one, other))
    return float(np.linalg.norm(mine - theirs) / np.linalg.norm(theirs))


def draw(rows: Sequence[dict[str, Any]], path: str) -> None:
    """Draw the losses of both networks, means of 20 steps."""
    from matplotlib import pyplot  # noqa: PLC0415 - for who asks for a picture

    names = list(dict.fromkeys(row["network"] for row in rows))
    figure, all_axes = pyplot.subplots(1, len(names), figsize=(9, 3.8), layout="constrained", squeeze=False)
    for name, axes in zip(names, all_axes[0], strict=True):
        for most, (style, width) in zip(ACCURACIES, (("-", 3.5), ("--", 2.0), (":", 1.5)), strict=True):
            losses = [row["loss"] for row in rows if (row["network"], row["max_error"]) == (name, most)]
            means = np.convolve(losses, np.full(20, 1 / 20), "valid")
            axes.plot(np.arange(len(means)) + 20, means, style, lw=width, label=f"max_error {most}")
        axes.set_yscale("log")
        axes.set_title(name)
        axes.set_xlabel("step")
    all_axes[0][0].set_ylabel("loss, mean of 20 steps")
    all_axes[0][0].legend(fontsize=8)
    figure.savefig(path, dpi=120)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, and print what came of it."""
    parser = argparse.ArgumentParser(prog="tiles_training.py", description="Train by tiles beside the direct sum.")
    parser.add_argument("--steps", type=int, default=320)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=NETWORKS)
    parser.add_argument("--plot", metavar="FILE.png", help="draw the losses")
    options = asked(parser, arguments)
    from sklearn.datasets import load_digits  # noqa: PLC0415 - an extra

    digits, order = load_digits(), np.random.default_rng(0).permutation(1797)
    images, labels = (digits.images[order, :, :, None] / 16 - 0.3).astype(np.float32), digits.target[order]
    rows = [row for name in options.networks for row in train(name, images, labels, options)]
    for last in [row for row in rows if row["step"] == options.steps]:
        same = [row for row in rows if (row["network"], row["max_error"]) == (last["network"], last["max_error"])]
        loss = np.mean([row["loss"] for row in same[-20:]])
        print(
            f"{last['network']:7} max_error {last['max_error']:2} ({last['tiles']}): loss {loss:.2e}, held out "
            f"{last['held_out']:.4f}, {np.median([row['ms'] for row in same]):.1f} ms a step, apart {last['apart']:.1e}"
        )
    if options.output:
        named = {"batch": options.batch, "threads": count(None), "processor": cpu_model()}
        shown = [row | {"loss": f"{row['loss']:.6g}", "ms": f"{row['ms']:.3f}"} | named for row in rows]
        write_rows(options.output, shown)
    if options.plot:
        draw(rows, options.plot)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
