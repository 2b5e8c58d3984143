"""Hard cases beyond 2^31 elements or positions: right, through views on little memory."""

from __future__ import annotations

import numpy as np
import pytest

import convgrad
from convgrad import ConvgradError
from convgrad.formats import FORMATS
from tests.support.hard_cases import (
    FAR,
    Array,
    Row,
    Shape,
    answer,
    assert_same,
    axes_of,
    integers,
    plain,
    solve,
    threads_too,
    up,
)
from tests.support.tiers import tiers

pytestmark = pytest.mark.timeout(60)  # a call that never returns is one of the cases


# Through views on little memory, with strides so long that few positions are read. Left out, for they cannot be asked
# without the memory or the time: a data gradient of 2^31 elements (its result is real memory), mlx#3138 (its boundary
# is the 2^32 products of an unfolded input, at any stride), and the stride-1 originals of the rows below.

BIG = (
    plain("pytorch#43476", (1, 32, 512, 512, 256), (1, 32, 1, 1, 1), (4, 4, 4), s=[128, 128, 64]),
    plain("pytorch#84488", (1, 28, 514, 514, 256), (12, 28, 1, 1, 1), (8, 8, 6), s=[73, 73, 51]),
    plain("pytorch#152816", (1, 2, 32800, 32800), (2, 1, 3, 3), (8, 8), s=4100, p=1, g=2),
    plain("pytorch#80020", (50000, 8, 1, 3840), (16, 1, 1, 1), (1, 4), s=[1, 960], g=8),
    plain("pytorch#128947 4", (1, 256, 4, 1090, 1922), (64, 256, 3, 3, 3), (2, 6, 7), s=[1, 200, 300]),
    plain("pytorch#128947 5", (1, 256, 5, 1090, 1922), (64, 256, 3, 3, 3), (3, 6, 7), s=[1, 200, 300]),
    plain("2^32 in two axes", (2, 1, 2**16, 2**16), (3, 1, 2, 2), (8, 8), s=2**13, pb=1, d=5),
)


def overlapping(shape: Shape, fmt: str = "f32") -> Array:
    """Return x[i, j, ...] = base[i + j + ...]: an array of any size on the sum of its extents."""
    base = np.random.default_rng(1).integers(-3, 4, sum(shape)).astype(FORMATS[fmt].dtype)
    return np.lib.stride_tricks.as_strided(base, shape, base.strides * len(shape), writeable=False)


def windows(src: Array, row: Row) -> tuple[Row, Array]:
    """Return the row with the windows of src laid side by side, which a stride of the kernel's extent reads alike."""
    index, exists, axes = [], np.ones((1, 1), bool), axes_of(row)
    for axis in axes:
        i = np.add.outer(np.arange(axis.dst) * axis.stride - axis.pad_begin, np.arange(axis.kernel) * axis.dilation)
        index.append(np.where((i >= 0) & (i < axis.src), i, 0).ravel())
        exists = np.multiply.outer(exists, ((i >= 0) & (i < axis.src)).ravel())
    gathered = src[np.ix_(*map(np.arange, src.shape[:2]), *index)] * exists
    kernel, groups = list(row.weights[2:]), row.attributes["groups"]
    apart = {"strides": kernel, "dilations": [1] * len(kernel), "groups": groups}
    return row._replace(src=gathered.shape, attributes=apart), gathered


@threads_too
@tiers("row", BIG, every=7)
def test_big_sources(row: Row, threads: int | None) -> None:
    src = overlapping(row.src)
    small, gathered = windows(src, row)
    tensors = integers(small, "f32")
    for role in ("dst", "weights"):
        expected = answer(small, role, tensors | {"src": gathered})
        for layout in ("NCX", "NXC"):
            got = solve(row, role, tensors | {"src": src}, layout, threads=threads)
            assert_same(got, expected, role, layout)


@threads_too
@pytest.mark.parametrize("extent", [2**31 + 64, 2**32 + 64])
def test_burn_4445_wider_than_an_index(extent: int, threads: int | None) -> None:
    one = plain("", (1, 1, 3, extent), (2, 1, 3, 3), (3, 17), s=[1, extent // 16 - 4], p=[1, 0])
    src = np.broadcast_to(np.array([1, 2, 4], np.float32)[:, None], one.src)
    small, gathered = windows(src, one)
    tensors = integers(small, "f32")
    for role in ("dst", "weights"):
        got = solve(one, role, tensors | {"src": src}, threads=threads)
        assert_same(got, answer(small, role, tensors | {"src": gathered}), role)


def test_pytorch_147362_result_beyond_memory() -> None:
    """2^55 + 3 positions are a shape, but no memory."""
    one = up("", (1, 1, 2), (1, 1, 3), (FAR + 3,), s=FAR)
    formats = {"data_format": "NCX", "weights_format": "IOX"}
    assert (
        convgrad.infer_shapes("ConvTranspose", one.src, one.weights, **one.attributes, **formats) == one.shapes["dst"]
    )
    with pytest.raises((ConvgradError, MemoryError)):
        solve(one, "dst", {t: np.ones(one.shapes[t], np.float32) for t in ("src", "weights")})


def test_diff_dst_wider_than_an_index() -> None:
    """Most of 2^31 destination positions see only padding; every source position meets all three taps."""
    one = plain("", (1, 1, 6), (1, 1, 3), (2**31 + 11,), pb=2**31 + 2, pe=5)
    diff_dst = np.broadcast_to(np.float32(2), one.shapes["dst"])
    weights = np.array([1, 10, 100], np.float32).reshape(one.weights)
    assert solve(one, "src", {"dst": diff_dst, "weights": weights}).ravel().tolist() == [222.0] * 6


@threads_too
def test_mlx_3327(threads: int | None) -> None:
    """2^19 + 2 images of 64x64 in f16, more than 2^31 elements, read with stride 21 (the transposed gradients)."""
    images = 2**19 + 2
    one = up("", (images, 1, 4, 4), (1, 1, 1, 1), (64, 64), s=21)
    diff_dst = overlapping(one.shapes["dst"], "f16")
    weights = np.full(one.weights, 2, np.float16)
    assert np.array_equal(solve(one, "src", {"dst": diff_dst, "weights": weights}), 2 * diff_dst[..., ::21, ::21])
    chosen = np.zeros((images, 1, 1, 1), np.float16)
    chosen[[5, 4096, 2**18 + 1, images - 1]] = 1
    expected = diff_dst[[5, 4096, 2**18 + 1, images - 1]][..., ::21, ::21].sum(dtype=np.float64)
    src = np.broadcast_to(chosen, one.src)
    assert solve(one, "weights", {"src": src, "dst": diff_dst}, dtype="f32", threads=threads).item() == expected
