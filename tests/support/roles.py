"""The six operators as roles to be tried in turn, and ways to lay an array out in memory or hand it over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import convgrad
from convgrad.formats import FORMATS

F32, BF16 = np.float32, ml_dtypes.bfloat16
DTYPES = {name: fmt.dtype for name, fmt in FORMATS.items()}

Array = np.ndarray


@dataclass(frozen=True)
class Role:
    """A function, the shapes of its array operands, and the rest of a legal call with overlaps, pads and tails."""

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    rest: dict[str, Any]
    output: tuple[int, ...]

    def operands(self, dtype: Any, seed: int = 0) -> list[Array]:
        """Return small integers: every sum is exact in every format but, at most, the output's rounding."""
        rng = np.random.default_rng(seed)
        return [rng.integers(-2, 3, shape).astype(dtype) for shape in self.shapes]

    def __call__(self, *operands: Any, **options: Any) -> Any:
        return self.function(*operands, **self.rest, **options)


CONV = {"strides": (2, 1), "pads_begin": (1, 0), "pads_end": (0, 1), "dilations": (1, 2)}
SRC, DST, WEIGHTS = (2, 6, 5, 4), (2, 3, 2, 6), (3, 3, 2, 6)  # two groups
T_SRC, T_DST, T_WEIGHTS = DST, SRC, (3, 3, 2, 6)  # the same geometry, its ends exchanged

ROLES = {
    "convolution": Role(convgrad.convolution, (SRC, WEIGHTS, (6,)), CONV | {"groups": 2}, DST),
    "backward_data": Role(
        convgrad.convolution_backward_data, (DST, WEIGHTS), CONV | {"groups": 2, "dst_shape": SRC}, SRC
    ),
    "backward_weights": Role(
        convgrad.convolution_backward_weights, (SRC, DST), CONV | {"groups": 2, "weights_shape": WEIGHTS}, WEIGHTS
    ),
    "transpose": Role(
        convgrad.conv_transpose,
        (T_SRC, T_WEIGHTS, (4,)),
        CONV | {"groups": 2, "output_padding": (0, 0)},
        T_DST,
    ),
    "transpose_backward_data": Role(
        convgrad.conv_transpose_backward_data, (T_DST, T_WEIGHTS), CONV | {"groups": 2}, T_SRC
    ),
    "transpose_backward_weights": Role(
        convgrad.conv_transpose_backward_weights,
        (T_SRC, T_DST),
        CONV | {"groups": 2, "weights_shape": T_WEIGHTS},
        T_WEIGHTS,
    ),
    "bias_add": Role(convgrad.bias_add, (SRC, (4,)), {}, SRC),
    "bias_add_backward": Role(convgrad.bias_add_backward, (DST,), {}, (6,)),
}

roles = pytest.mark.parametrize("role", ROLES.values(), ids=ROLES)
SIZES = {name: dtype for name, dtype in DTYPES.items() if name != "f8_e5m2"}  # as f8_e4m3, where bits do not matter
formats = pytest.mark.parametrize("dtype", SIZES.values(), ids=SIZES)


def same(got: Array, expected: Array) -> bool:
    """Tell whether two arrays have one shape, one type and the same bits."""
    return got.shape == expected.shape and got.dtype == expected.dtype and got.tobytes() == expected.tobytes()


# -- layouts in memory -------------------------------------------------------------------------------------------------


def _room(array: Array, extents: tuple[int, ...]) -> Array:
    """Return memory full of a value that would show in any result."""
    return np.full(extents, np.nan, array.dtype)


def _filled(view: Array, array: Array) -> Array:
    view[...] = array
    return view


def fortran(array: Array) -> Array:
    return array.copy(order="F")


def negative(array: Array) -> Array:
    flip = (slice(None, None, -1),) * array.ndim
    return array[flip].copy()[flip]


def offset(array: Array) -> Array:
    room = _room(array, tuple(n + 3 for n in array.shape))
    return _filled(room[tuple(slice(1, n + 1) for n in array.shape)], array)


def every_second(array: Array) -> Array:
    room = _room(array, tuple(2 * n for n in array.shape))
    return _filled(room[(slice(None, None, 2),) * array.ndim], array)


def every_second_backwards(array: Array) -> Array:
    room = _room(array, tuple(3 * n for n in array.shape))
    return _filled(room[(slice(None, None, -3),) * array.ndim], array)


def unaligned(array: Array) -> Array:
    room = np.zeros(array.nbytes + 1, np.uint8)
    view = room[1:].view(array.dtype).reshape(array.shape)
    assert not view.flags.aligned or array.itemsize == 1
    return _filled(view, array)


def axes_rolled(array: Array) -> Array:
    return np.moveaxis(array, 0, -1).copy().transpose(array.ndim - 1, *range(array.ndim - 1))


def record_field(array: Array) -> Array:
    """A field of packed records: a stride that is no multiple of the item size."""
    records = np.zeros(array.shape, [("pad", np.uint8), ("value", array.dtype), ("more", np.uint16)])
    return _filled(records["value"], array)


def constant(array: Array) -> Array:
    """Stride 0 along every axis."""
    return np.broadcast_to(array.ravel()[:1].reshape((1,) * array.ndim), array.shape)


def repeated(array: Array) -> Array:
    """Stride 0 along the first axis."""
    return np.broadcast_to(array[:1], array.shape)


def read_only(array: Array) -> Array:
    copy = array.copy()
    copy.flags.writeable = False
    return copy


WRITABLE = {
    f.__name__: f for f in (fortran, negative, offset, every_second, every_second_backwards, axes_rolled, record_field)
}
LAYOUTS = WRITABLE | {f.__name__: f for f in (unaligned, constant, repeated, read_only)}


def memory(array: Array) -> Array:
    """Return the array that owns a view's memory."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


class Tensor:
    """An array of another library: DLPack and nothing else."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()
