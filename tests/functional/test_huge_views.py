"""Extents beyond 2^31 elements, strides beyond 2^32 bytes: views that take no memory, against small equal problems."""

from __future__ import annotations

import mmap
import sys
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import bias_add_backward, conv_transpose_backward_weights, convolution_backward_weights, explain
from convgrad.formats import FORMATS
from convgrad.verify import exact
from tests.support.engine_helpers import Array
from tests.support.helpers import assert_same_bits
from tests.support.tiers import tiers

GIB = 1 << 30
SPARSE_BYTES = 160 * GIB  # of addresses; pages are there once touched
NO_RESERVE = 0x4000  # MAP_NORESERVE of Linux
TYPES = ("f32", "bf16", "f16")

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="maps addresses as Linux does")


class Sparse:
    """Addresses by the gigabyte, of which few pages are touched; arrays of any strides are placed there."""

    def __init__(self) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE
        self.map = mmap.mmap(-1, SPARSE_BYTES, flags=flags)

    def place(self, values: Array, strides: tuple[int, ...]) -> Array:
        """Return the values with these strides in bytes, negative ones too."""
        first = -sum((n - 1) * s for n, s in zip(values.shape, strides, strict=True) if s < 0)
        placed: Array = np.ndarray(values.shape, values.dtype, self.map, first, strides)
        placed[...] = values
        return placed

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return an array as it comes, all zeros, however large."""
        array: Array = np.ndarray(shape, dtype, self.map)
        return array


@pytest.fixture
def sparse() -> Sparse:
    try:
        return Sparse()
    except OSError:
        pytest.skip(f"no {SPARSE_BYTES // GIB} GiB of addresses to be had")


def integers(shape: tuple[int, ...], kind: str, seed: int = 0) -> Array:
    return np.random.default_rng([81, seed]).integers(-3, 4, shape).astype(FORMATS[kind].dtype)


# -- extents -----------------------------------------------------------------------------------------------------------

EXTENTS = {  # positions of src on each axis, strides; kernel 1
    "one axis": ((2**31 + 5,), (2**24,)),
    "one axis of 2^33": ((2**33 + 1,), (2**25,)),
    "two axes": ((2**16 + 1, 2**17 + 3), (2**12, 2**13)),
    "three axes": ((2**11 + 1, 2**11, 2**12), (2**8, 2**8, 2**9)),
}


@pytest.mark.every(5)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
@pytest.mark.parametrize("name", EXTENTS)
def test_huge_extents(name: str, data_format: str, kind: str, sparse: Sparse) -> None:
    """Sampled far apart by the stride, from memory where the positions sampled hold numbers."""
    extents, strides = EXTENTS[name]
    channels = 2
    shape = (1, *extents, channels) if data_format == "NXC" else (1, channels, *extents)
    src = sparse.zeros(shape, FORMATS[kind].dtype)
    every = tuple(slice(None, None, s) for s in strides)
    sampled = (slice(None), *every) if data_format == "NXC" else (slice(None), slice(None), *every)
    src[sampled] = integers(src[sampled].shape, kind)
    small = src[sampled].copy()
    positions = small.shape[1:-1] if data_format == "NXC" else small.shape[2:]
    dst = integers((1, *positions, 5) if data_format == "NXC" else (1, 5, *positions), kind, 1)
    weights = (*[1] * len(extents), channels, 5)
    got = convolution_backward_weights(src, dst, weights, strides=strides, data_format=data_format)
    expected = convolution_backward_weights(small, dst, weights, data_format=data_format)
    assert np.count_nonzero(expected)
    assert_same_bits(got, expected, name)


def test_depthwise_and_transposed(sparse: Sparse) -> None:
    """The larger tensor of the transposed operator is diff_dst; in the depthwise layer each channel is a group."""
    large, stride = sparse.zeros((1, 2**31 + 1, 3), np.float32), 2**26
    large[:, ::stride] = integers((1, 33, 3), "f32")
    small, other = large[:, ::stride].copy(), integers((1, 33, 3), "f32", 1)
    got = convolution_backward_weights(large, other, (1, 1, 3), groups=3, strides=stride)
    assert_same_bits(got, convolution_backward_weights(small, other, (1, 1, 3), groups=3), "depthwise")
    turned = conv_transpose_backward_weights(other, large, (1, 3, 3), strides=stride)
    assert_same_bits(turned, conv_transpose_backward_weights(other, small, (1, 3, 3)), "transposed")


def test_pads_and_dilations_beyond_32_bits(sparse: Sparse) -> None:
    """Three taps 2^33 apart: the middle one meets what there is, the others only padding."""
    far = 2**33
    src, dst = integers((2, 7, 4), "f32"), integers((2, 7, 6), "f32", 1)
    got = convolution_backward_weights(src, dst, (3, 4, 6), dilations=far, pads_begin=far, pads_end=far)
    middle = convolution_backward_weights(src, dst, (1, 4, 6))
    assert_same_bits(got[1:2], middle, "middle")
    assert not got[[0, 2]].any()


# -- strides in bytes --------------------------------------------------------------------------------------------------

FAR = 3 * GIB + 4  # bytes; more than 2^31, and with a few of them more than 2^32
LAYERS: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "dense": ((3, 4, 4, 5), (3, 4, 4, 6), (3, 3, 5, 6), {"auto_pad": "same_upper"}),
    "1x1": ((3, 4, 4, 5), (3, 4, 4, 6), (1, 1, 5, 6), {}),
    "1x1 strided": ((3, 7, 7, 5), (3, 4, 4, 6), (1, 1, 5, 6), {"strides": 2}),
    "depthwise": ((3, 4, 4, 5), (3, 4, 4, 5), (3, 3, 1, 5), {"auto_pad": "same_upper", "groups": 5}),
    "groups": ((3, 4, 4, 6), (3, 4, 4, 4), (3, 3, 3, 4), {"auto_pad": "same_upper", "groups": 2}),
    "patches": ((3, 8, 8, 3), (3, 4, 4, 6), (2, 2, 3, 6), {"strides": 2}),
}


def far_strides(values: Array, axis: int, backwards: bool) -> tuple[int, ...]:
    """Return row-major strides but for one axis, whose steps are gigabytes where they fit the addresses."""
    steps = [int(np.prod(values.shape[a + 1 :], dtype=int)) * values.itemsize for a in range(values.ndim)]
    far = min(FAR, SPARSE_BYTES // values.shape[axis] // 64 * 64)
    steps[axis] = -far if backwards else far
    return tuple(steps)


@tiers("backwards, name", [False, True], list(LAYERS), every=10)
def test_huge_strides_in_bytes(name: str, backwards: bool, sparse: Sparse) -> None:
    """Each axis of each operand and of the result in turn, forwards and backwards, in every type."""
    src_shape, dst_shape, weights, rest = LAYERS[name]
    for number, kind in enumerate(TYPES):
        arrays = [integers(src_shape, kind, number), integers(dst_shape, kind, number + 3)]
        expected = convolution_backward_weights(*arrays, weights, **rest)
        assert np.count_nonzero(expected)
        for which, values in enumerate((*arrays, expected)):
            for axis in (a for a in range(values.ndim) if values.shape[a] > 1):
                placed = sparse.place(values, far_strides(values, axis, backwards))
                if which == 2:
                    old = integers(weights, kind, 9)
                    placed[...] = old
                    got = convolution_backward_weights(*arrays, weights, out=placed, accumulate=True, **rest)
                    assert got is placed
                    plain = convolution_backward_weights(*arrays, weights, out=old, accumulate=True, **rest)
                    assert_same_bits(np.ascontiguousarray(got), plain, (kind, which, axis))
                else:
                    given = [placed if which == at else a for at, a in enumerate(arrays)]
                    got = convolution_backward_weights(*given, weights, **rest)
                    assert_same_bits(got, expected, (kind, which, axis))


def test_bias_gradient_of_huge_strides(sparse: Sparse) -> None:
    values = integers((3, 4, 4, 6), "f32")
    expected = bias_add_backward(values)
    for axis in range(4):
        for backwards in (False, True):
            placed = sparse.place(values, far_strides(values, axis, backwards))
            assert_same_bits(bias_add_backward(placed), expected, axis)


# -- what takes as much as it seems ------------------------------------------------------------------------------------


def test_scratch_of_two_positions_far_apart() -> None:
    """Two positions under two taps are four meetings, wherever they lie."""
    layer = {"strides": [2**24], "dilations": [2**23], "weights_shape": [2, 8, 8], "data_format": "NXC"}
    one = explain("ConvolutionBackwardWeights", (1, 2**25, 8), (1, 2, 8), operand_type="f16", threads=1, **layer)
    assert one.scratch_bytes < 1 << 20


@pytest.mark.long
def test_two_to_the_31_elements_summed() -> None:
    """All of 2^31 elements, in one channel of ones: pytorch#43476 came out all zeros."""
    src, dst = (np.broadcast_to(np.float32(1), (1, 512, 512, 256, c)) for c in (32, 1))
    got = convolution_backward_weights(src, dst, (1, 1, 1, 32, 1))
    assert (got == 2.0**26).all()


@pytest.mark.parametrize("kernel", [2, 3, 5, 9])
@pytest.mark.parametrize("extent", [1, 7])
@pytest.mark.parametrize("dilation", [2**62, 2**63 - 1])
def test_taps_beyond_64_bits_meet_nothing(dilation: int, extent: int, kernel: int) -> None:
    """Under auto_pad they are as far from the first one as their number: only the middle one may meet anything."""
    layer = {"strides": [1], "dilations": [dilation], "auto_pad": "same_upper", "weights_shape": [kernel, 2, 3]}
    src = np.arange(2 * extent, dtype=np.float32).reshape(1, extent, 2)
    diff_dst = np.ones((1, extent, 3), np.float32)
    got = convgrad.run("ConvolutionBackwardWeights", src, diff_dst, **layer)
    assert np.array_equal(got, exact("ConvolutionBackwardWeights", src, diff_dst, **layer))
    assert np.count_nonzero(got.any(axis=(1, 2))) == kernel % 2
