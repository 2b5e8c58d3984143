"""Names of other libraries on docs/names.md: calls with them and calls with convgrad's names have the same bits.

The operands are small integers, of which every right implementation computes the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import notation
from tests.support.places import DOCS

RNG = np.random.default_rng(0)
NCX: dict[str, Any] = {"data_format": "NCX", "weights_format": "OIX"}
PAGE = (DOCS / "names.md").read_text(encoding="utf-8")


def integers(*shape: int) -> Any:
    return RNG.integers(-4, 5, shape).astype(np.float32)


def on_page(*names: str) -> bool:
    """Return whether the page has all these names."""
    return all(name in PAGE for name in names)


def test_names_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    assert on_page("functional.conv2d", "nn.grad.conv2d_input", "nn.grad.conv2d_weight", "aten.convolution_backward")
    image, weight, bias = (torch.from_numpy(integers(*shape)) for shape in ((2, 4, 9, 8), (6, 2, 3, 3), (6,)))
    theirs = functional.conv2d(image, weight, bias, stride=2, padding=1, dilation=2, groups=2)
    layer: dict[str, Any] = {"strides": 2, "pads_begin": 1, "pads_end": 1, "dilations": 2, "groups": 2}
    assert torch.equal(convgrad.convolution(image, weight, bias, **layer, **NCX), theirs)

    gradient = torch.from_numpy(integers(*theirs.shape))
    words = {"stride": 2, "padding": 1, "dilation": 2, "groups": 2}
    theirs = torch.nn.grad.conv2d_input(image.shape, weight, gradient, **words)
    assert torch.equal(convgrad.convolution_backward_data(gradient, weight, image.shape, **layer, **NCX), theirs)
    theirs = torch.nn.grad.conv2d_weight(image, weight.shape, gradient, **words)
    assert torch.equal(convgrad.convolution_backward_weights(image, gradient, weight.shape, **layer, **NCX), theirs)

    arguments = ([6], [2, 2], [1, 1], [2, 2], False, [0, 0], 2, [True, False, True])
    theirs = torch.ops.aten.convolution_backward(gradient, image, weight, *arguments)
    ours = convgrad.convolution_backward(image, gradient, weight, needs=("src", "bias"), **layer, **NCX)
    assert torch.equal(ours.src, theirs[0])
    assert ours.weights is None
    assert torch.equal(ours.bias, theirs[2])


def test_names_of_pytorch_for_transposed_and_same() -> None:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    assert on_page("functional.conv_transpose2d", '`padding="same"`')
    image, up = torch.from_numpy(integers(2, 4, 9, 8)), torch.from_numpy(integers(4, 3, 3, 3))
    theirs = functional.conv_transpose2d(image, up, stride=2, padding=1, output_padding=1, groups=2)
    layer: dict[str, Any] = {"strides": 2, "pads_begin": 1, "pads_end": 1, "output_padding": 1, "groups": 2}
    layer |= {"data_format": "NCX", "weights_format": "IOX"}
    assert torch.equal(convgrad.conv_transpose(image, up, **layer), theirs)

    row, taps = torch.from_numpy(integers(2, 3, 11)), torch.from_numpy(integers(5, 3, 5))
    theirs = functional.conv1d(row, taps, padding="same")
    assert torch.equal(convgrad.convolution(row, taps, auto_pad="same_upper", **NCX), theirs)


@pytest.mark.long
def test_names_of_jax() -> None:
    jax = pytest.importorskip("jax")
    assert on_page("conv_general_dilated", "transpose_kernel=True", "transpose_kernel=False", "jax.vjp")
    lhs, rhs = integers(2, 9, 8, 4), integers(3, 3, 2, 6)

    def theirs(lhs: Any, rhs: Any) -> Any:
        words = {"dimension_numbers": ("NHWC", "HWIO", "NHWC"), "feature_group_count": 2}
        return jax.lax.conv_general_dilated(lhs, rhs, (2, 2), "SAME", rhs_dilation=(1, 1), **words)

    layer: dict[str, Any] = {"strides": 2, "auto_pad": "same_upper", "groups": 2}
    result, pullback = jax.vjp(theirs, lhs, rhs)
    assert np.array_equal(convgrad.convolution(lhs, rhs, **layer), result)
    cotangent = integers(*result.shape)
    of_lhs, of_rhs = pullback(cotangent)
    assert np.array_equal(convgrad.convolution_backward_data(cotangent, rhs, lhs.shape, **layer), of_lhs)
    assert np.array_equal(convgrad.convolution_backward_weights(lhs, cotangent, rhs.shape, **layer), of_rhs)

    up = integers(3, 3, 5, 4)  # height, width, out, in
    for stride, more in ((2, 0), (4, 1)):  # 4 is above the kernel's extent of 3
        for padding, auto_pad in (("SAME", "same_upper"), ("VALID", "valid")):
            large = jax.lax.conv_transpose(lhs, up, (stride, stride), padding, transpose_kernel=True)
            ours = convgrad.conv_transpose(lhs, up, strides=stride, auto_pad=auto_pad, output_padding=more)
            assert np.array_equal(ours, large)
    plain = jax.lax.conv_transpose(lhs, up.swapaxes(-1, -2), (2, 2), "SAME")
    flipped = np.flip(up, (0, 1))
    assert np.array_equal(convgrad.conv_transpose(lhs, flipped, strides=2, auto_pad="same_upper"), plain)


def tf_conv2d(image: Any, filters: Any, strides: Any, top_left: Any, bottom_right: Any) -> Any:
    """Return the sum in the documentation of tf.nn.conv2d, for an input padded with zeros."""
    pads = [(0, 0), *zip(top_left, bottom_right, strict=True), (0, 0)]
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(image, pads), filters.shape[:2], axis=(1, 2))
    return np.einsum("nijchw,hwco->nijo", windows[:, :: strides[0], :: strides[1]], filters)


def test_names_of_tensorflow() -> None:
    """TensorFlow itself is not installed, so its documentation is followed."""
    assert on_page("tf.nn.conv2d(", "conv2d_backprop_filter", "conv2d_backprop_input", "[[0, 0], [top, bottom]")
    image, filters = integers(2, 8, 8, 4), integers(3, 4, 4, 6)
    theirs = tf_conv2d(image, filters, (2, 3), (0, 1), (1, 1))  # SAME: pads of 1 for the height, of 2 for the width
    assert np.array_equal(convgrad.convolution(image, filters, strides=(2, 3), auto_pad="same_upper"), theirs)
    theirs = tf_conv2d(image, filters, (2, 3), (0, 2), (1, 0))  # [[0, 0], [0, 1], [2, 0], [0, 0]]
    explicit: dict[str, Any] = {"strides": (2, 3), "pads_begin": (0, 2), "pads_end": (1, 0)}
    assert np.array_equal(convgrad.convolution(image, filters, **explicit), theirs)

    gradient = integers(*theirs.shape)  # the gradients of sum(conv2d(image, filters) * gradient) are linear in each
    of_filter = convgrad.convolution_backward_weights(image, gradient, filters.shape, **explicit)
    of_image = convgrad.convolution_backward_data(gradient, filters, image.shape, **explicit)
    assert (theirs * gradient).sum() == (filters * of_filter).sum() == (image * of_image).sum()


def test_names_of_tensorflow_for_transposed_and_depthwise() -> None:
    assert on_page("tf.nn.conv2d_transpose", "tf.nn.depthwise_conv2d", "groups=C")
    small, up = integers(2, 5, 4, 4), integers(3, 3, 6, 4)  # filters: height, width, out, in
    by_shape = convgrad.convolution_backward_data(small, up, (2, 10, 8, 6), strides=2, auto_pad="same_upper")
    assert np.array_equal(by_shape, convgrad.conv_transpose(small, up, strides=2, auto_pad="same_upper"))

    # The example of the documentation of depthwise_conv2d, and what it prints.
    x = np.array([[1, 2], [3, 4], [5, 6]], np.float32).reshape(1, 3, 2, 1)
    kernel = np.array([[1, 2], [3, 4]], np.float32).reshape(2, 1, 1, 2)  # (H, W, C, M)
    height, width, channels, multiplier = kernel.shape
    ours = convgrad.convolution(x, kernel.reshape(height, width, 1, channels * multiplier), groups=channels)
    assert ours.tolist() == [[[[10, 14], [14, 20]], [[18, 26], [22, 32]]]]


def test_names_of_onednn() -> None:
    assert on_page("`dilates`, `dh`, `dw`, where 0 means no gaps")
    src, diff_dst, shape = integers(2, 9, 8, 4), integers(2, 4, 4, 6), [3, 3, 4, 6]
    pads: dict[str, Any] = {"pads_begin": [0, 1], "pads_end": [0, 1]}
    strict: dict[str, Any] = {"strides": [2, 2], "dilations": [1, 1], **pads}
    ours = convgrad.convolution_backward_weights(src, diff_dst, (3, 3, 4, 6), strides=2, **pads)
    new = convgrad.run("ConvolutionBackwardWeights", src, diff_dst, weights_shape=shape, **strict)
    old = convgrad.run("ConvolutionBackpropFilters-1", src, diff_dst, filter_shape=shape, **strict)
    assert np.array_equal(new, ours)
    assert np.array_equal(old, ours)
    problem: Any = notation.problem("FWD_D f32 NXC g2mb2ic4iw9oc6ow4kw3sw2pw1dw1")
    assert problem.geometry.axes[0].dilation == 2
