"""Train a small network on handwritten digits; convgrad computes every convolution and every gradient of one.

edges    convolution 3x3, 1 -> 16, ReLU             8x8x16
strokes  convolution 3x3 stride 2, 16 -> 32, ReLU   4x4x32
digit    convolution 4x4 valid, 32 -> 10            the class, from strokes
picture  transposed convolution 4x4 stride 2        the image again, from strokes
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import convgrad
from convgrad.functional.call import prepare
from convgrad.spec.oracle import evaluate

Array = NDArray[np.float32]
Labels = NDArray[np.int64]
Arrays = dict[str, Array]

PICTURE_SHARE = 0.1  # the weight of the squared error beside the cross entropy
RATE = 3e-3
SPLIT_SEED = 0
RECORDED_IMAGES = 16

Layer = NamedTuple("Layer", [("shape", tuple[int, ...]), ("channels", int), ("attributes", dict[str, Any])])
Forward = NamedTuple("Forward", [("edges", Array), ("strokes", Array), ("digit", Array), ("picture", Array)])
Epoch = NamedTuple("Epoch", [("loss", float), ("picture_loss", float), ("accuracy", float)])

LAYERS = {
    "edges": Layer((3, 3, 1, 16), 16, {"auto_pad": "same_upper"}),
    "strokes": Layer((3, 3, 16, 32), 32, {"auto_pad": "same_upper", "strides": 2}),
    "digit": Layer((4, 4, 32, 10), 10, {"auto_pad": "valid"}),
    "picture": Layer((4, 4, 1, 32), 1, {"auto_pad": "same_upper", "strides": 2}),
}


def load_images() -> tuple[Array, Labels, Array, Labels]:
    """Return the training images (N, 8, 8, 1), from 0 to 1, and their labels; then the held-out quarter."""
    try:
        from sklearn.datasets import load_digits  # noqa: PLC0415
    except ImportError:
        sys.exit("the digits come with scikit-learn: pip install 'convgrad[examples]'")
    digits = load_digits()
    order = np.random.default_rng(SPLIT_SEED).permutation(len(digits.images))
    images = (digits.images[order, :, :, np.newaxis] / 16).astype(np.float32)
    labels, cut = digits.target[order], len(order) * 3 // 4
    return images[:cut], labels[:cut], images[cut:], labels[cut:]


def initial(rng: np.random.Generator) -> Arrays:
    parameters = {}
    for name, layer in LAYERS.items():
        scale = math.sqrt(2 * layer.channels / math.prod(layer.shape))
        parameters[name] = rng.standard_normal(layer.shape, np.float32) * scale
        parameters[f"{name}_bias"] = np.zeros(layer.channels, np.float32)
    return parameters


def forward(parameters: Arrays, images: Array) -> Forward:
    def dst(operator: Any, name: str, src: Array) -> Array:
        return operator(src, parameters[name], parameters[f"{name}_bias"], **LAYERS[name].attributes)

    edges = np.maximum(dst(convgrad.convolution, "edges", images), 0)
    strokes = np.maximum(dst(convgrad.convolution, "strokes", edges), 0)
    digit = dst(convgrad.convolution, "digit", strokes)
    return Forward(edges, strokes, digit, dst(convgrad.conv_transpose, "picture", strokes))


def cross_entropy(digit: Array, labels: Labels) -> tuple[float, Array]:
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


def backward(parameters: Arrays, images: Array, dst: Forward, diff_digit: Array, diff_picture: Array) -> Arrays:
    """Return the gradients by all parameters; there is none by the images, as each gradient is a call of its own.

    The gradient that enters the strided convolution comes along as "diff_strokes".
    """

    def by_src(operator: Any, name: str, diff_dst: Array) -> Array:
        return operator(diff_dst, parameters[name], **LAYERS[name].attributes)

    def by_parameters(operator: Any, name: str, src: Array, diff_dst: Array) -> Arrays:
        diff_weights = operator(src, diff_dst, LAYERS[name].shape, **LAYERS[name].attributes)
        return {name: diff_weights, f"{name}_bias": convgrad.bias_add_backward(diff_dst)}

    diff_strokes = by_src(convgrad.convolution_backward_data, "digit", diff_digit)
    diff_strokes += by_src(convgrad.conv_transpose_backward_data, "picture", diff_picture)
    diff_strokes *= dst.strokes > 0
    diff_edges = by_src(convgrad.convolution_backward_data, "strokes", diff_strokes) * (dst.edges > 0)
    return {
        "diff_strokes": diff_strokes,
        **by_parameters(convgrad.convolution_backward_weights, "edges", images, diff_edges),
        **by_parameters(convgrad.convolution_backward_weights, "strokes", dst.edges, diff_strokes),
        **by_parameters(convgrad.convolution_backward_weights, "digit", dst.strokes, diff_digit),
        **by_parameters(convgrad.conv_transpose_backward_weights, "picture", dst.strokes, diff_picture),
    }


def step(parameters: Arrays, images: Array, labels: Labels) -> tuple[float, float, Forward, Arrays]:
    """Return both losses of a batch, what the layers gave and the gradients."""
    dst = forward(parameters, images)
    loss, diff_digit = cross_entropy(dst.digit, labels)
    picture_loss, diff_picture = squared_error(dst.picture, images)
    return loss, picture_loss, dst, backward(parameters, images, dst, diff_digit, PICTURE_SHARE * diff_picture)


def adam(parameters: Arrays, gradients: Arrays, means: Arrays, squares: Arrays, number: int, rate: float) -> None:
    """Move the parameters, in place, by step ``number`` of Adam, counted from 1."""
    rate *= math.sqrt(1 - 0.999**number) / (1 - 0.9**number)
    for name, values in parameters.items():
        means[name] += 0.1 * (gradients[name] - means[name])
        squares[name] += 0.001 * (np.square(gradients[name]) - squares[name])
        values -= rate * means[name] / (np.sqrt(squares[name]) + 1e-8)


def train(parameters: Arrays, images: Array, labels: Labels, epochs: int, batch: int, seed: int) -> Iterator[Any]:
    """Train the parameters in place, at a rate that falls linearly to 0; yield both losses after every epoch."""
    rng = np.random.default_rng(seed)
    means, squares = ({name: np.zeros_like(values) for name, values in parameters.items()} for _ in range(2))
    batches = -(-len(images) // batch)
    for epoch in range(epochs):
        losses = []
        for number, chosen in enumerate(np.array_split(rng.permutation(len(images)), batches), epoch * batches):
            loss, picture_loss, _, gradients = step(parameters, images[chosen], labels[chosen])
            adam(parameters, gradients, means, squares, number + 1, RATE * (1 - number / (epochs * batches)))
            losses.append((loss, picture_loss))
        yield np.mean(losses, axis=0).tolist()


def exact(operator: str, *operands: Any) -> Array:
    """Return the exact result of an operator of the strided layer, rounded once: the oracle's."""
    prepared = prepare(operator, operands, {"dilations": 1, **LAYERS["strokes"].attributes}, scalars=True)
    rounded = evaluate(prepared.problem, prepared.operands).rounded(prepared.problem)
    result = np.empty(prepared.problem.output_shape, rounded.dtype)
    prepared.canonical_output(result)[...] = rounded
    return result


def recording(parameters: Arrays, images: Array, labels: Labels) -> Arrays:
    """Return one training step of the strided layer: what enters it, and its exact gradients."""
    _, _, dst, gradients = step(parameters, images, labels)
    src, diff_dst, weights = dst.edges, gradients["diff_strokes"], parameters["strokes"]
    diff_weights = exact("ConvolutionBackwardWeights", src, diff_dst, weights.shape)
    diff_src = exact("ConvolutionBackwardData", diff_dst, weights, src.shape)
    return {"src": src, "diff_dst": diff_dst, "weights": weights, "diff_weights": diff_weights, "diff_src": diff_src}


def load_pyplot() -> Any:
    try:
        import matplotlib  # noqa: PLC0415
    except ImportError:
        sys.exit("--plot draws with matplotlib: pip install 'convgrad[plot]'")
    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    return pyplot


def plot(pyplot: Any, path: Path, epochs: list[Epoch], parameters: Arrays, images: Array) -> None:
    """Draw the first filters, the course of the training, and images beside what the network makes of them."""
    figure = pyplot.figure(figsize=(11, 6.4), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=(1.55, 1), hspace=0.04)
    left, right = top.subfigures(1, 2, width_ratios=(1, 1.6), wspace=0.04)

    left.suptitle("The 16 filters of the first layer", fontsize=11)
    filters = parameters["edges"][:, :, 0]
    for k, axes in enumerate(left.subplots(4, 4).flat):
        axes.imshow(filters[:, :, k], cmap="RdBu", vmin=-abs(filters).max(), vmax=abs(filters).max())
        axes.set(xticks=[], yticks=[])

    counts = range(1, len(epochs) + 1)
    right.suptitle("Training", fontsize=11)
    upper, lower = right.subplots(2, 1, sharex=True)
    upper.semilogy(counts, [e.loss for e in epochs], "o-", ms=3, color="#1f5a99", label="cross entropy")
    upper.semilogy(counts, [e.picture_loss for e in epochs], "o-", ms=3, color="#d1782c", label="squared error")
    upper.legend(frameon=False)
    upper.set_ylabel("training loss")
    lower.plot(counts, [100 * e.accuracy for e in epochs], "o-", ms=3, color="#2c7d4f")
    lower.annotate(f"{epochs[-1].accuracy:.2%}", (len(epochs), 100 * epochs[-1].accuracy), (0, -14),
                   textcoords="offset points", ha="right", color="#2c7d4f")  # fmt: skip
    lower.set(xlabel="epoch", ylabel="held-out accuracy, %")
    for axes in (upper, lower):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)

    bottom.suptitle("Held-out images, and what the transposed convolution makes of them", fontsize=11)
    rows = bottom.subplots(2, len(images))
    for row, pictures, label in zip(
        rows, (images, forward(parameters, images).picture), ("image", "picture"), strict=True
    ):
        row[0].set_ylabel(label)
        for axes, picture in zip(row, pictures, strict=True):
            axes.imshow(picture[:, :, 0], cmap="gray_r", vmin=0, vmax=1)
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_color("#bbbbbb")
    figure.savefig(path, format="png", dpi=130)


def output_file(text: str) -> Path:
    if not Path(text).absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{Path(text).parent} is not a directory")
    return Path(text)


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a positive integer; got {text}")
    return int(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--epochs", type=positive, default=20)
    parser.add_argument("--batch", type=positive, default=32)
    parser.add_argument("--seed", type=int, default=0, help="of the first weights and of the order of the images")
    parser.add_argument("--record", type=output_file, metavar="FILE.npz", help="write one step of the strided layer")
    parser.add_argument("--plot", type=output_file, metavar="FILE.png", help="draw filters, losses and pictures")
    options = parser.parse_args()
    pyplot = load_pyplot() if options.plot else None
    images, labels, held_out, held_out_labels = load_images()

    start, epochs = time.perf_counter(), []
    parameters = initial(np.random.default_rng(options.seed))
    for losses in train(parameters, images, labels, options.epochs, options.batch, options.seed):
        right = forward(parameters, held_out).digit.argmax(axis=-1).ravel() == held_out_labels
        epochs.append(Epoch(*losses, float(right.mean())))
        print("epoch {:3}  loss {:.4f}  reconstruction {:.4f}  held-out {:6.2%}  {:5.1f} s".format(
            len(epochs), *epochs[-1], time.perf_counter() - start), flush=True)  # fmt: skip
    print(f"held-out accuracy {right.mean():.4f}: {right.sum()} of {len(right)} images")
    if options.record:
        with options.record.open("wb") as file:
            np.savez_compressed(file, **recording(parameters, images[:RECORDED_IMAGES], labels[:RECORDED_IMAGES]))
    if options.plot:
        plot(pyplot, options.plot, epochs, parameters, held_out[:12])


if __name__ == "__main__":
    main()
