"""Kinds of data for verdicts: canonical arrays [batch or channel, channel, positions...], by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Draw:
    """What an array is made from: random numbers, its shape, the tensor that it is, and where its elements are."""

    rng: np.random.Generator
    shape: Shape
    tensor: str

    def normal(self) -> Array:
        return self.rng.standard_normal(self.shape)

    def uniform(self) -> Array:
        return self.rng.random(self.shape)

    def positive(self) -> Array:
        return np.abs(self.normal()) + 0.01

    def relu(self, shift: float = 0.0) -> Array:
        return np.maximum(self.normal() + shift, 0)

    def signs(self) -> Array:
        return self.rng.choice([-1, 1], self.shape)

    def full(self, value: float) -> Array:
        return np.full(self.shape, value)

    def of(self, tensor: str, this: Any, other: Any = 1) -> Any:
        """Return one of two values, by the tensor."""
        return this if self.tensor == tensor else other

    @property
    def ones(self) -> Shape:
        return (1,) * (len(self.shape) - 2)

    @property
    def number(self) -> Array:
        """The row-major number of each position, the same for all batches and channels."""
        return np.arange(int(np.prod(self.shape[2:]))).reshape(1, 1, *self.shape[2:])

    @property
    def place(self) -> Array:
        """The same from 0 to 1."""
        return self.number / max(1, self.number.size)

    @property
    def channel(self) -> Array:
        return np.arange(self.shape[1]).reshape(1, -1, *self.ones)

    @property
    def batch(self) -> Array:
        return np.arange(self.shape[0]).reshape(-1, 1, *self.ones)


Made = Callable[[Draw], Array]


def _softmax(d: Draw) -> Array:
    if d.tensor == "src":
        return d.relu(1)
    logits = np.exp(3 * d.normal())
    share = logits / logits.sum(1, keepdims=True)
    return share - (share == share.max(1, keepdims=True))


def _sparse_blocks(d: Draw) -> Array:
    if len(d.shape) < 3 or d.tensor == "weights":
        return d.normal()
    blocks = d.rng.random((*d.shape[:2], *(-(-extent // 4) for extent in d.shape[2:]))) < 0.1
    for axis, extent in enumerate(d.shape[2:], 2):
        blocks = np.repeat(blocks, 4, axis).take(range(extent), axis)
    return d.normal() * blocks


def _sinusoids(d: Draw) -> Array:
    frequency, phase = d.rng.uniform(0.01, 3, (2, *d.shape[:2], *d.ones))
    return np.sin(frequency * d.number + phase)


def _sawtooth(d: Draw) -> Array:
    period = d.rng.choice([2, 4, 8, 16], (*d.shape[:2], *d.ones))
    return (d.number % period) / period - 0.4 + 0.01 * d.normal()


def _images(d: Draw) -> Array:
    if d.tensor == "src":
        return (2 + np.sin(d.number / 17)) * (1 + d.rng.random((*d.shape[:2], *d.ones))) + 0.05 * d.normal()
    values, images = d.normal(), d.rng.standard_normal((d.shape[0], 1, *d.ones))
    return values * np.exp(images) + 0.3 * d.rng.standard_normal((*d.shape[:2], *d.ones))


def _halves(d: Draw) -> Array:
    if d.tensor == "src":
        return 1 + 0.1 * d.normal()
    return d.normal() + np.where(d.number * 2 < d.number.size, 1, -1)


def _walk(d: Draw) -> Array:
    flat = d.normal().reshape(*d.shape[:2], d.number.size)
    return (np.cumsum(flat, 2) / np.sqrt(max(1, flat.shape[2])) + 0.1 * flat).reshape(d.shape)


def _mirrored(d: Draw) -> Array:
    values = d.normal()
    values[:, 1::2] = -values[:, : 2 * (d.shape[1] // 2) : 2]
    return values


def _spikes(d: Draw) -> Array:
    values = d.normal()
    values[d.uniform() < 0.002] *= 1e4
    return values


def _batch_norm(d: Draw) -> Array:
    """A gradient that sums to 0 in each channel, and to 0 with its normalised input."""
    values = d.normal() * np.exp(0.5 * d.rng.standard_normal((1, d.shape[1], *d.ones)))
    return values if d.tensor == "weights" else values - values.mean((0, *range(2, len(d.shape))), keepdims=True)


def _signed_channels(d: Draw) -> Array:
    signs = d.of("src", np.where(2 * d.channel < d.shape[1], 1, -1))
    return d.positive() * signs * d.of("weights", np.where(2 * d.batch < d.shape[0], 1, -1))


def _quadrants(d: Draw) -> Array:
    signs = np.ones((1, 1, *d.shape[2:]))
    for axis, extent in enumerate(d.shape[2:], 2):
        half = np.where(2 * np.arange(extent) < extent, 1, -1)
        signs = signs * half.reshape(*[1] * axis, -1, *[1] * (len(d.shape) - axis - 1))
    return d.positive() * d.of("dst", signs)


def _one_hot(d: Draw) -> Array:
    if d.tensor != "dst":
        return d.normal()
    flat = np.zeros((d.shape[0], int(np.prod(d.shape[1:]))))
    flat[np.arange(d.shape[0]), d.rng.integers(flat.shape[1], size=d.shape[0])] = 0.7
    return flat.reshape(d.shape)


def _outlier_first(d: Draw) -> Array:
    values, first = d.normal(), [0] * len(d.ones)
    values[(slice(None), slice(None), *first)] *= 1e4
    return values


def _cancelling(d: Draw) -> Array:
    """Large sums that cancel to small ones: each second position undoes the one before it, nearly."""
    if d.tensor != "dst":
        return 1 + 1e-3 * d.normal()
    flat = d.normal().reshape(*d.shape[:2], d.number.size)
    flat[..., 1::2] = -flat[..., : 2 * (flat.shape[2] // 2) : 2]
    return flat.reshape(d.shape)


def _huge_range(d: Draw) -> Array:
    decades = d.of("src", 20, 14)
    return 10.0 ** d.rng.uniform(-decades, decades, d.shape) * d.signs()


def _epochs(d: Draw) -> Array:
    """Images whose gradients push up and down in turns, with a step at each."""
    steps = d.rng.standard_normal((d.shape[0], 1, *d.ones))
    return 1 + 0.1 * d.normal() if d.tensor == "src" else d.normal() + 3 * steps


def _binary(d: Draw) -> Array:
    return 1.0 * (d.uniform() < 0.3)


KINDS: Mapping[str, Made] = {
    "normal": Draw.normal,
    "relu": lambda d: np.maximum(d.normal(), d.of("src", 0, -np.inf)),
    "positive": lambda d: d.uniform() + 0.01,
    "heavy": lambda d: np.exp(d.of("src", 2) * d.normal()),
    "student": lambda d: d.rng.standard_t(2.5, d.shape),
    "cauchy": lambda d: np.clip(d.rng.standard_cauchy(d.shape), -1e4, 1e4),
    "quantised": lambda d: np.clip(np.rint(d.normal() * 30), -127, 127) * np.float32(0.0173),
    "softmax": _softmax,
    "decaying": lambda d: d.normal() * np.exp(-d.channel * 1.5),
    "sparse blocks": _sparse_blocks,
    "sinusoids": _sinusoids,
    "sawtooth": _sawtooth,
    "checkered": lambda d: (0.5 + d.uniform()) * d.of("weights", 1, 1 - 2 * (d.number % 2)),
    "alternating channels": lambda d: (0.5 + d.uniform()) * d.of("weights", 1 - 2 * (d.channel % 2)),
    "images": _images,
    "halves": _halves,
    "walk": _walk,
    "ones": lambda d: d.relu() if d.tensor == "src" else d.full(1),
    "mirrored": _mirrored,
    "spikes": _spikes,
    "short": lambda d: np.rint(d.normal() * 64) / 1024 + 2.0**-11,
    "tiny": lambda d: d.normal() * 2.0**-66,
    "batch norm": _batch_norm,
}
# Sorted in memory, cancelling, sparse, of huge range, of few or equal values.
MORE: Mapping[str, Made] = {
    "brightening": lambda d: np.exp(8 * d.place) * (d.positive() if d.tensor == "src" else d.normal()),
    "ramp": lambda d: d.place + 0.01 * d.uniform() if d.tensor == "src" else d.positive(),
    "darkening": lambda d: np.exp(-6 * d.place - d.channel / 4) * d.positive(),  # what comes late is small
    "signed places": lambda d: d.positive() * d.of("dst", np.where(d.place < 0.5, 1, -1)),
    "signed channels": _signed_channels,
    "thirds": lambda d: d.positive() * d.of("dst", 1 - 2 * (np.floor(3 * d.place) % 2)),
    "period": lambda d: (  # of 32 in memory, which 32 lanes sort
        d.positive() * d.of("weights", 1, np.where((d.number + d.number.size * d.channel) % 32 < 16, 1, -1))
    ),
    "quadrants": _quadrants,
    "checkerboard": lambda d: d.positive() * ((1 - 2 * (np.indices(d.shape[2:]).sum(0) % 2)) if d.ones else 1),
    "constant": lambda d: d.full({"src": 1.0, "weights": 0.1}.get(d.tensor, 1 / 3)),
    "few values": lambda d: d.rng.choice(d.of("src", [0.1, 0.2, 0.7], [-0.3, 0.3]), d.shape),
    "one hot": _one_hot,
    "masked": lambda d: d.normal() * (1 if d.tensor == "weights" else d.uniform() < 0.01),
    "huge range": _huge_range,
    "huge positive": lambda d: np.abs(_huge_range(d)),
    "mean loss": lambda d: d.full(1 / np.prod(d.shape)) if d.tensor == "dst" else d.relu(),
    "pixels": lambda d: (  # of 8 bits with a zero point, weights of 8 bits with a scale a channel
        (d.rng.integers(0, 256, d.shape) - 117) * 0.0235
        if d.tensor == "src"
        else np.clip(np.rint(d.normal() * 40), -127, 127) * np.exp(-1 - 0.3 * d.channel)
    ),
    "log-normal": lambda d: np.exp(3.5 * d.normal()) * (1 if d.tensor == "src" else d.signs()),
    "outlier first": _outlier_first,
    "cancelling": _cancelling,
    "powers": lambda d: 2.0 ** d.rng.integers(-12, 12, d.shape) * d.signs(),
    "subnormal": lambda d: d.normal() * 2.0**-72,
    "two sizes": lambda d: d.normal() * np.where((d.channel + d.batch) % 2, 1, 1e-4),
    "epochs": _epochs,
    "box": lambda d: d.full(1 / np.prod(d.shape[1:])) if d.tensor == "weights" else d.uniform() + 0.05,
    "box of ReLU": lambda d: d.full(0.1) if d.tensor == "weights" else d.relu(0.5),
    "binary": lambda d: _binary(d) if d.tensor == "src" else d.full(0.1),
    "binary source": lambda d: _binary(d) if d.tensor == "src" else d.uniform(),
    "bytes": lambda d: d.rng.integers(0, 256, d.shape) / 255,
}


def made(kind: str, seed: int, shape: Shape, tensor: str) -> Array:
    """Return a canonical f32 array of a kind; a bias is normal."""
    draw = Draw(np.random.default_rng([seed, sum(map(ord, tensor))]), shape, tensor)
    make = Draw.normal if tensor == "bias" or len(shape) < 2 else {**KINDS, **MORE}[kind]
    return np.ascontiguousarray(make(draw), np.float32)
