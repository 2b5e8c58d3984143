"""More kinds of data for verdicts: sorted in memory, cancelling, sparse, of huge range, of few or equal values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Shape = tuple[int, ...]
Made = Callable[[np.random.Generator, Shape, str], Array]


def _place(shape: Shape) -> Array:
    """Return where each position stands in memory, from 0 to 1, the same for all batches and channels."""
    return (np.arange(int(np.prod(shape[2:]))) / max(1, int(np.prod(shape[2:])))).reshape(1, 1, *shape[2:])


def _channel(shape: Shape) -> Array:
    return np.arange(shape[1]).reshape(1, -1, *[1] * (len(shape) - 2))


def _batch(shape: Shape) -> Array:
    return np.arange(shape[0]).reshape(-1, *[1] * (len(shape) - 1))


def _size(rng: np.random.Generator, shape: Shape) -> Array:
    return np.abs(rng.standard_normal(shape)) + 0.01


def _brightening(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    """Products that grow in memory, by 3 decades."""
    return np.exp(8 * _place(shape)) * (_size(rng, shape) if tensor == "src" else rng.standard_normal(shape))


def _ramp(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    return _place(shape) + 0.01 * rng.random(shape) if tensor == "src" else _size(rng, shape)


def _darkening(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    """Positive products, the largest first: what comes late is small beside the sum."""
    return np.exp(-6 * _place(shape) - _channel(shape) / 4) * _size(rng, shape)


def _signed_places(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    signs = np.where(_place(shape) < 0.5, 1, -1) if tensor == "dst" else 1
    return _size(rng, shape) * signs


def _signed_channels(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    signs = np.where(2 * _channel(shape) < shape[1], 1, -1) if tensor == "src" else 1
    rows = np.where(2 * _batch(shape) < shape[0], 1, -1) if tensor == "weights" else 1
    return _size(rng, shape) * signs * rows


def _thirds(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    signs = 1 - 2 * (np.floor(3 * _place(shape)) % 2) if tensor == "dst" else 1
    return _size(rng, shape) * signs


def _period(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    """Signs of period 32 in memory, which 32 lanes sort."""
    place = np.arange(int(np.prod(shape[1:]))).reshape(1, *shape[1:])
    return _size(rng, shape) * (1 if tensor == "weights" else np.where(place % 32 < 16, 1, -1))


def _quadrants(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    signs = np.ones((1, 1, *shape[2:]))
    for axis, extent in enumerate(shape[2:], 2):
        half = np.where(2 * np.arange(extent) < extent, 1, -1)
        signs = signs * half.reshape(*[1] * axis, -1, *[1] * (len(shape) - axis - 1))
    return _size(rng, shape) * (signs if tensor == "dst" else 1)


def _checkerboard(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    return _size(rng, shape) * (1 - 2 * (np.indices(shape[2:]).sum(0) % 2)) if len(shape) > 2 else _size(rng, shape)


def _constant(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    return np.full(shape, {"src": 1.0, "weights": 0.1}.get(tensor, 1 / 3))


def _few_values(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    return rng.choice([0.1, 0.2, 0.7] if tensor == "src" else [-0.3, 0.3], shape)


def _one_hot(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    if tensor != "dst":
        return rng.standard_normal(shape)
    flat = np.zeros((shape[0], int(np.prod(shape[1:]))))
    flat[np.arange(shape[0]), rng.integers(flat.shape[1], size=shape[0])] = 0.7
    return flat.reshape(shape)


def _masked(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    return rng.standard_normal(shape) * (1 if tensor == "weights" else rng.random(shape) < 0.01)


def _huge_range(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    decades = 20 if tensor == "src" else 14
    return 10.0 ** rng.uniform(-decades, decades, shape) * rng.choice([-1, 1], shape)


def _huge_positive(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    return np.abs(_huge_range(rng, shape, tensor))


def _mean_loss(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    return np.full(shape, 1 / np.prod(shape)) if tensor == "dst" else np.maximum(rng.standard_normal(shape), 0)


def _pixels(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    """Pixels of 8 bits with a zero point, weights of 8 bits with a scale a channel."""
    if tensor == "src":
        return (rng.integers(0, 256, shape) - 117) * 0.0235
    return np.clip(np.rint(rng.standard_normal(shape) * 40), -127, 127) * np.exp(-1 - 0.3 * _channel(shape))


def _log_normal(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    return np.exp(3.5 * rng.standard_normal(shape)) * (1 if tensor == "src" else rng.choice([-1, 1], shape))


def _outlier_first(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    values = rng.standard_normal(shape)
    values[(slice(None), slice(None), *[0] * (len(shape) - 2))] *= 1e4
    return values


def _cancelling(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    """Large sums that cancel to small ones: each second position undoes the one before it, nearly."""
    if tensor != "dst":
        return 1 + 1e-3 * rng.standard_normal(shape)
    flat = rng.standard_normal((*shape[:2], int(np.prod(shape[2:]))))
    flat[..., 1::2] = -flat[..., : 2 * (flat.shape[2] // 2) : 2]
    return flat.reshape(shape)


def _powers(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    return 2.0 ** rng.integers(-12, 12, shape) * rng.choice([-1, 1], shape)


def _subnormal(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    return rng.standard_normal(shape) * 2.0**-72


def _two_sizes(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    return rng.standard_normal(shape) * np.where((_channel(shape) + _batch(shape)) % 2, 1, 1e-4)


def _epochs(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    """Images whose gradients push up and down in turns, with a step at each."""
    steps = rng.standard_normal((shape[0], *[1] * (len(shape) - 1)))
    return 1 + 0.1 * rng.standard_normal(shape) if tensor == "src" else rng.standard_normal(shape) + 3 * steps


def _box(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    """Windows that are averaged: neighbours share most of their products."""
    return np.full(shape, 1 / np.prod(shape[1:])) if tensor == "weights" else rng.random(shape) + 0.05


def _box_of_relu(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    return np.full(shape, 0.1) if tensor == "weights" else np.maximum(rng.standard_normal(shape) + 0.5, 0)


def _binary(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    """All products are one."""
    return 1.0 * (rng.random(shape) < 0.3) if tensor == "src" else np.full(shape, 0.1)


def _binary_source(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    return 1.0 * (rng.random(shape) < 0.3) if tensor == "src" else rng.random(shape)


def _bytes(rng: np.random.Generator, shape: Shape, tensor: str) -> Array:
    return rng.integers(0, 256, shape) / 255


MORE: Mapping[str, Made] = {
    "brightening": _brightening,
    "ramp": _ramp,
    "darkening": _darkening,
    "signed places": _signed_places,
    "signed channels": _signed_channels,
    "thirds": _thirds,
    "period": _period,
    "quadrants": _quadrants,
    "checkerboard": _checkerboard,
    "constant": _constant,
    "few values": _few_values,
    "one hot": _one_hot,
    "masked": _masked,
    "huge range": _huge_range,
    "huge positive": _huge_positive,
    "mean loss": _mean_loss,
    "pixels": _pixels,
    "log-normal": _log_normal,
    "outlier first": _outlier_first,
    "cancelling": _cancelling,
    "powers": _powers,
    "subnormal": _subnormal,
    "two sizes": _two_sizes,
    "epochs": _epochs,
    "box": _box,
    "box of ReLU": _box_of_relu,
    "binary": _binary,
    "binary source": _binary_source,
    "bytes": _bytes,
}
