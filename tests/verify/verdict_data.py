"""Kinds of data for verdicts: canonical arrays [batch or channel, channel, positions...], by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.verify.verdict_data_more import MORE

Array = NDArray[Any]
Shape = tuple[int, ...]
Made = Callable[[np.random.Generator, Shape, str], Array]


def _grid(shape: Shape) -> Array:
    """Return the row-major number of each position, the same for all batches and channels."""
    return np.arange(int(np.prod(shape[2:]))).reshape(1, 1, *shape[2:])


def _normal(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    return rng.standard_normal(shape)


def _relu(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    values = rng.standard_normal(shape)
    return np.maximum(values, 0) if tensor == "src" else values


def _positive(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    return rng.random(shape) + 0.01


def _heavy(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    return np.exp((2 if tensor == "src" else 1) * rng.standard_normal(shape))


def _student(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    return rng.standard_t(2.5, shape)


def _cauchy(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    return np.clip(rng.standard_cauchy(shape), -1e4, 1e4)


def _quantised(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    return np.clip(np.rint(rng.standard_normal(shape) * 30), -127, 127) * np.float32(0.0173)


def _softmax(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    if tensor == "src":
        return np.maximum(rng.standard_normal(shape) + 1, 0)
    logits = np.exp(3 * rng.standard_normal(shape))
    share = logits / logits.sum(1, keepdims=True)
    return share - (share == share.max(1, keepdims=True))


def _decaying(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    channels = np.arange(shape[1]).reshape(1, -1, *[1] * (len(shape) - 2))
    return rng.standard_normal(shape) * np.exp(-channels * 1.5)


def _sparse_blocks(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    if len(shape) < 3 or tensor == "weights":
        return rng.standard_normal(shape)
    blocks = rng.random((*shape[:2], *(-(-extent // 4) for extent in shape[2:]))) < 0.1
    for axis, extent in enumerate(shape[2:], 2):
        blocks = np.repeat(blocks, 4, axis).take(range(extent), axis)
    return rng.standard_normal(shape) * blocks


def _sinusoids(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    frequency, phase = rng.uniform(0.01, 3, (2, *shape[:2], *[1] * (len(shape) - 2)))
    return np.sin(frequency * _grid(shape) + phase)


def _sawtooth(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    period = rng.choice([2, 4, 8, 16], (*shape[:2], *[1] * (len(shape) - 2)))
    return (_grid(shape) % period) / period - 0.4 + 0.01 * rng.standard_normal(shape)


def _checkered(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    signs = 1 - 2 * (_grid(shape) % 2) if tensor != "weights" else 1
    return (0.5 + rng.random(shape)) * signs


def _alternating_channels(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    signs = (1 - 2 * (np.arange(shape[1]) % 2)).reshape(1, -1, *[1] * (len(shape) - 2))
    return (0.5 + rng.random(shape)) * (signs if tensor == "weights" else 1)


def _images(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    ones = [1] * (len(shape) - 2)
    if tensor == "src":
        return (2 + np.sin(_grid(shape) / 17)) * (1 + rng.random((*shape[:2], *ones))) + 0.05 * _normal(rng, shape, "")
    return _normal(rng, shape, "") * np.exp(_normal(rng, (shape[0], 1, *ones), "")) + 0.3 * _normal(
        rng, (*shape[:2], *ones), ""
    )


def _halves(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    if tensor == "src":
        return 1 + 0.1 * rng.standard_normal(shape)
    position = _grid(shape)
    return rng.standard_normal(shape) + np.where(position * 2 < position.size, 1, -1)


def _walk(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    flat = rng.standard_normal((*shape[:2], int(np.prod(shape[2:]))))
    return (np.cumsum(flat, 2) / np.sqrt(max(1, flat.shape[2])) + 0.1 * flat).reshape(shape)


def _ones(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    return np.ones(shape) if tensor != "src" else np.maximum(rng.standard_normal(shape), 0)


def _mirrored(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    values = rng.standard_normal(shape)
    values[:, 1::2] = -values[:, : 2 * (shape[1] // 2) : 2]
    return values


def _spikes(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    values = rng.standard_normal(shape)
    values[rng.random(shape) < 0.002] *= 1e4
    return values


def _short(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    return np.rint(rng.standard_normal(shape) * 64) / 1024 + 2.0**-11


def _tiny(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    return rng.standard_normal(shape) * 2.0**-66


def _batch_norm(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    """A gradient that sums to 0 in each channel, and to 0 with its normalised input."""
    values = rng.standard_normal(shape) * np.exp(0.5 * rng.standard_normal((1, shape[1], *[1] * (len(shape) - 2))))
    return values if tensor == "weights" else values - values.mean((0, *range(2, len(shape))), keepdims=True)


KINDS: Mapping[str, Made] = {
    "normal": _normal,
    "relu": _relu,
    "positive": _positive,
    "heavy": _heavy,
    "student": _student,
    "cauchy": _cauchy,
    "quantised": _quantised,
    "softmax": _softmax,
    "decaying": _decaying,
    "sparse blocks": _sparse_blocks,
    "sinusoids": _sinusoids,
    "sawtooth": _sawtooth,
    "checkered": _checkered,
    "alternating channels": _alternating_channels,
    "images": _images,
    "halves": _halves,
    "walk": _walk,
    "ones": _ones,
    "mirrored": _mirrored,
    "spikes": _spikes,
    "short": _short,
    "tiny": _tiny,
    "batch norm": _batch_norm,
}


def made(kind: str, seed: int, shape: Shape, tensor: str) -> Array:
    """Return a canonical f32 array of a kind; a bias is normal."""
    rng = np.random.default_rng([seed, sum(map(ord, tensor))])
    make = _normal if tensor == "bias" or len(shape) < 2 else {**KINDS, **MORE}[kind]
    return np.ascontiguousarray(make(rng, shape, tensor), np.float32)
