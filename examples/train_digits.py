"""Train a small network on handwritten digits; convgrad computes every convolution and every gradient of one.

edges    convolution 3x3, 1 -> 16, ReLU             8x8x16
strokes  convolution 3x3 stride 2, 16 -> 32, ReLU   4x4x32
digit    convolution 4x4 valid, 32 -> 10            the class, from strokes
picture  transposed convolution 4x4 stride 2        the image again, from strokes
"""

from __future__ import annotations

import argparse
import importlib
import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import digits_graph
import numpy as np
from numpy.typing import NDArray

import convgrad

Array = NDArray[Any]
Arrays = dict[str, Array]

PICTURE_SHARE = 0.1  # the weight of the squared error beside the cross entropy
RATE = 3e-3
SPLIT_SEED = 0
RECORDED_IMAGES = 16


class Layer(NamedTuple):
    """The weights' shape (XIO, where transposed XOI), the channels of dst, and the attributes."""

    shape: tuple[int, ...]
    channels: int
    attributes: dict[str, Any]


LAYERS = {
    "edges": Layer((3, 3, 1, 16), 16, {"auto_pad": "same_upper"}),
    "strokes": Layer((3, 3, 16, 32), 32, {"auto_pad": "same_upper", "strides": 2}),
    "digit": Layer((4, 4, 32, 10), 10, {"auto_pad": "valid"}),
    "picture": Layer((4, 4, 1, 32), 1, {"auto_pad": "same_upper", "strides": 2}),
}


def load(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        sys.exit(f"{module} is missing: pip install scikit-learn matplotlib")


def split_images(digits: Any) -> tuple[Array, Array, Array, Array]:
    """Return the training images (N, 8, 8, 1), from 0 to 1, and their labels; then the held-out quarter."""
    order = np.random.default_rng(SPLIT_SEED).permutation(len(digits.images))
    images = (digits.images[order, :, :, np.newaxis] / 16).astype(np.float32)
    labels, cut = digits.target[order], len(order) * 3 // 4
    return images[:cut], labels[:cut], images[cut:], labels[cut:]


def initial(rng: np.random.Generator) -> Arrays:
    parameters = {}
    for name, (shape, channels, _) in LAYERS.items():
        parameters[name] = rng.standard_normal(shape, np.float32) * math.sqrt(2 * channels / math.prod(shape))
        parameters[f"{name}_bias"] = np.zeros(channels, np.float32)
    return parameters


def forward(parameters: Arrays, images: Array) -> Arrays:
    """Return every layer's dst."""

    def dst(operator: Callable[..., Array], name: str, src: Array) -> Array:
        return operator(src, parameters[name], parameters[f"{name}_bias"], **LAYERS[name].attributes)

    edges = np.maximum(dst(convgrad.convolution, "edges", images), 0)
    strokes = np.maximum(dst(convgrad.convolution, "strokes", edges), 0)
    digit = dst(convgrad.convolution, "digit", strokes)
    picture = dst(convgrad.conv_transpose, "picture", strokes)
    return {"edges": edges, "strokes": strokes, "digit": digit, "picture": picture}


def cross_entropy(digit: Array, labels: Array) -> tuple[float, Array]:
    """Return the mean of -log softmax at the labels, and its gradient."""
    shifted = digit - digit.max(axis=-1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    at_labels = (np.arange(len(labels)), 0, 0, labels)
    diff_digit = np.exp(logs)
    diff_digit[at_labels] -= 1
    return float(-logs[at_labels].mean()), diff_digit / len(labels)


def squared_error(picture: Array, images: Array) -> tuple[float, Array]:
    """Return the mean squared error of the pixels, and its gradient."""
    error = picture - images
    return float(np.square(error).mean()), 2 * error / error.size


def backward(parameters: Arrays, dst: Arrays, diff_digit: Array, diff_picture: Array) -> Arrays:
    """Return every layer's diff_dst. None is by the images: each gradient is a call of its own, and that one idle."""

    def by_src(operator: Callable[..., Array], name: str, diff_dst: Array) -> Array:
        return operator(diff_dst, parameters[name], **LAYERS[name].attributes)

    strokes = by_src(convgrad.convolution_backward_data, "digit", diff_digit)
    strokes += by_src(convgrad.conv_transpose_backward_data, "picture", diff_picture)
    strokes *= dst["strokes"] > 0
    edges = by_src(convgrad.convolution_backward_data, "strokes", strokes) * (dst["edges"] > 0)
    return {"edges": edges, "strokes": strokes, "digit": diff_digit, "picture": diff_picture}


def by_parameters(images: Array, dst: Arrays, diff_dst: Arrays) -> Arrays:
    """Return the gradients by all weights and biases."""
    sources = {"edges": images, "strokes": dst["edges"], "digit": dst["strokes"], "picture": dst["strokes"]}
    gradients = {f"{name}_bias": convgrad.bias_add_backward(diff) for name, diff in diff_dst.items()}
    for name, (shape, _, attributes) in LAYERS.items():
        transposed = name == "picture"
        operator = convgrad.conv_transpose_backward_weights if transposed else convgrad.convolution_backward_weights
        gradients[name] = operator(sources[name], diff_dst[name], shape, **attributes)
    return gradients


def step(parameters: Arrays, images: Array, labels: Array) -> tuple[tuple[float, float], Arrays, Arrays]:
    """Return both losses of a batch, every layer's dst and every layer's diff_dst."""
    dst = forward(parameters, images)
    loss, diff_digit = cross_entropy(dst["digit"], labels)
    picture_loss, diff_picture = squared_error(dst["picture"], images)
    return (loss, picture_loss), dst, backward(parameters, dst, diff_digit, PICTURE_SHARE * diff_picture)


def adam(parameters: Arrays, gradients: Arrays, means: Arrays, squares: Arrays, number: int, rate: float) -> None:
    """Move the parameters, in place, by step ``number`` of Adam, counted from 1."""
    rate *= math.sqrt(1 - 0.999**number) / (1 - 0.9**number)
    for name, gradient in gradients.items():
        means[name] += 0.1 * (gradient - means[name])
        squares[name] += 0.001 * (np.square(gradient) - squares[name])
        parameters[name] -= rate * means[name] / (np.sqrt(squares[name]) + 1e-8)


def schedule(count: int, options: argparse.Namespace) -> Iterator[list[tuple[int, Array, float]]]:
    """Yield the steps of every epoch: their numbers from 1, which images, and the rate, which falls linearly to 0."""
    rng, batches = np.random.default_rng(options.seed), -(-count // options.batch)
    rates = np.linspace(RATE, 0, options.epochs * batches, endpoint=False).tolist()
    for epoch in range(options.epochs):
        split = np.array_split(rng.permutation(count), batches)
        yield [(number + 1, batch, rates[number]) for number, batch in enumerate(split, epoch * batches)]


def train(parameters: Arrays, images: Array, labels: Array, options: argparse.Namespace) -> Iterator[list[float]]:
    """Train the parameters in place; yield both losses after every epoch."""
    means, squares = ({name: np.zeros_like(values) for name, values in parameters.items()} for _ in range(2))
    for steps in schedule(len(images), options):
        losses = []
        for number, batch, rate in steps:
            both, dst, diff_dst = step(parameters, images[batch], labels[batch])
            adam(parameters, by_parameters(images[batch], dst, diff_dst), means, squares, number, rate)
            losses.append(both)
        yield np.mean(losses, axis=0).tolist()


def record(path: Path, parameters: Arrays, images: Array, labels: Array) -> None:
    """Write one training step as a graph with its tensors: every convolution, every gradient."""
    _, dst, diff_dst = step(parameters, images, labels)
    given = {"images": images, **parameters, "edges_relu": dst["edges"], "strokes_relu": dst["strokes"]}
    given |= {f"diff_{name}": array for name, array in diff_dst.items()}
    attributes = {
        name: {"strides": [layer.attributes.get("strides", 1)] * 2, "dilations": [1, 1]}
        | {"auto_pad": layer.attributes["auto_pad"]}
        for name, layer in LAYERS.items()
    }
    digits_graph.record(path, given, attributes)


def plot(figure: Any, path: Path, epochs: list[list[float]], parameters: Arrays, images: Array) -> None:
    """Draw the first filters, the course of the training, and images beside what the network makes of them."""
    top, bottom = figure.subfigures(2, 1, height_ratios=(1.6, 1), hspace=0.03)
    left, right = top.subfigures(1, 2, width_ratios=(1, 1.7), wspace=0.03)
    left.suptitle("The 16 filters of the first layer", fontsize=11)
    right.suptitle("Training", fontsize=11)
    bottom.suptitle("Held-out images above, the network's reconstructions below", fontsize=11)

    filters = parameters["edges"][:, :, 0]
    for k, axes in enumerate(left.subplots(4, 4).flat):
        axes.imshow(filters[:, :, k], cmap="RdBu", vmin=-abs(filters).max(), vmax=abs(filters).max())
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_color("#bbbbbb")

    losses, picture_losses, accuracies = zip(*epochs, strict=True)
    counts = range(1, len(epochs) + 1)
    upper, lower = right.subplots(2, 1, sharex=True)
    upper.semilogy(counts, losses, "o-", ms=3, color="#1f5a99", label="cross entropy")
    upper.semilogy(counts, picture_losses, "o-", ms=3, color="#d1782c", label="squared error")
    upper.set_ylabel("training loss")
    lower.plot(
        counts, [100 * a for a in accuracies], "o-", ms=3, color="#2c7d4f", label=f"{accuracies[-1]:.2%} at the end"
    )
    lower.locator_params(axis="x", integer=True)
    lower.set(xlabel="epoch", ylabel="held-out accuracy, %")
    for axes in (upper, lower):
        axes.grid(alpha=0.25)
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)

    rows = zip(bottom.subplots(2, len(images)), (images, forward(parameters, images)["picture"]), strict=True)
    for axes, picture in ((a, p) for row, pictures in rows for a, p in zip(row, pictures, strict=True)):
        axes.imshow(picture[:, :, 0], cmap="gray_r", vmin=0, vmax=1)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_color("#bbbbbb")
    figure.savefig(path, format="png", dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0, help="of the first weights and the order of the images")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write one step as FILE.json and FILE.npz")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw filters, losses and pictures")
    parser.add_argument("--force", action="store_true", help="replace the files of --record and --plot")
    options = parser.parse_args()
    if min(options.epochs, options.batch) < 1 or options.seed < 0:
        parser.error("--epochs and --batch begin at 1, --seed at 0")
    recorded = [options.record.with_suffix(ending) for ending in (".json", ".npz")] if options.record else []
    outputs = [*recorded, options.plot] if options.plot else recorded
    for path in outputs:
        if not path.absolute().parent.is_dir():
            parser.error(f"{path.parent} is not a directory")
        if path.exists() and not options.force:
            parser.error(f"{path} exists; give --force to replace it")
    if options.plot:
        figure = load("matplotlib.figure").Figure(figsize=(11, 6.2), layout="constrained")
    images, labels, held_out, held_out_labels = split_images(load("sklearn.datasets").load_digits())

    parameters, epochs, start = initial(np.random.default_rng(options.seed)), [], time.perf_counter()
    for loss, picture_loss in train(parameters, images, labels, options):
        right = forward(parameters, held_out)["digit"].argmax(axis=-1).ravel() == held_out_labels
        epochs.append([loss, picture_loss, right.mean()])
        losses = f"loss {loss:.4f}  reconstruction {picture_loss:.4f}"
        seconds = time.perf_counter() - start
        print(f"epoch {len(epochs):3}  {losses}  held-out {right.mean():.4f}  {seconds:5.1f} s", flush=True)
    print(f"held-out accuracy {right.mean():.4f}: {right.sum()} of {len(right)} images")
    if options.record:
        record(options.record, parameters, images[:RECORDED_IMAGES], labels[:RECORDED_IMAGES])
    if options.plot:
        plot(figure, options.plot, epochs, parameters, held_out[:12])
    for path in outputs:
        print(f"wrote {path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
