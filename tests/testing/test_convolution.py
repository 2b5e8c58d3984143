"""Assertions about convolutions: right results of several orders pass, and bugs raise errors that name them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import convgrad
from convgrad.testing import (
    Layer,
    assert_bias_gradient,
    assert_convolution,
    assert_data_gradient,
    assert_weight_gradient,
    layers,
)
from convgrad.verify.testing.convolution import DEFAULTS

rng = np.random.default_rng(0)
SRC = rng.standard_normal((4, 12, 12, 8), np.float32)
WEIGHTS = rng.standard_normal((3, 3, 8, 16), np.float32)
DIFF_DST = rng.standard_normal((4, 12, 11, 16), np.float32)
PADS: dict[str, Any] = {"pads_begin": (1, 0), "pads_end": (1, 1)}  # the columns have a pad at the end only


def forward(src: Any = SRC, weights: Any = WEIGHTS, **pads: Any) -> Any:
    return convgrad.convolution(src, weights, **(PADS | pads))


def weight_gradient(src: Any = SRC, diff_dst: Any = DIFF_DST, **pads: Any) -> Any:
    return convgrad.convolution_backward_weights(src, diff_dst, WEIGHTS.shape, **(PADS | pads))


def data_gradient(diff_dst: Any = DIFF_DST, weights: Any = WEIGHTS, **pads: Any) -> Any:
    return convgrad.convolution_backward_data(diff_dst, weights, SRC.shape, **(PADS | pads))


def without_first_tap() -> Any:
    weights = WEIGHTS.copy()
    weights[0, 0] = 0
    return weights


OTHER_PADS: dict[str, Any] = {"pads_begin": (1, 1), "pads_end": (1, 0)}
WRONG = {
    "one tap missing": (assert_convolution, lambda: forward(weights=without_first_tap()), SRC, WEIGHTS),
    "kernel flipped": (assert_data_gradient, lambda: data_gradient(weights=WEIGHTS[::-1, ::-1]), DIFF_DST, WEIGHTS),
    "last image missing": (assert_weight_gradient, lambda: weight_gradient(SRC[:-1], DIFF_DST[:-1]), SRC, DIFF_DST),
    "overwritten instead of summed": (
        assert_weight_gradient,
        lambda: weight_gradient(SRC[2:], DIFF_DST[2:]),
        SRC,
        DIFF_DST,
    ),
    "odd pad on the wrong side": (assert_convolution, lambda: forward(**OTHER_PADS), SRC, WEIGHTS),
    "odd pad on the wrong side (of src)": (
        assert_weight_gradient,
        lambda: weight_gradient(**OTHER_PADS),
        SRC,
        DIFF_DST,
    ),
    "operands rounded to bf16": (
        assert_weight_gradient,
        lambda: weight_gradient(*(x.astype(ml_dtypes.bfloat16).astype(np.float32) for x in (SRC, DIFF_DST))),
        SRC,
        DIFF_DST,
    ),
}


@pytest.mark.every(3)
@pytest.mark.parametrize("layer", layers(6, types=["f32", "bf16", "f16"], axes=[1, 2]), ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_right_results_pass(layer: Layer, transposed: bool) -> None:
    """In all types and layouts; the same layer is the transposed one of its exchanged data."""
    kwargs = dict(layer.attributes)
    src, weights, diff_dst = layer.src, layer.weights, layer.diff_dst
    if transposed:
        src, diff_dst = diff_dst, src
        kwargs["weights_format"] = kwargs["weights_format"].replace("OIX", "IOX").replace("XIO", "XOI")
        functions = (convgrad.conv_transpose_backward_weights, convgrad.conv_transpose_backward_data)
        data = functions[1](diff_dst, weights, **kwargs)
    else:
        functions = (convgrad.convolution_backward_weights, convgrad.convolution_backward_data)
        dst = convgrad.convolution(src, weights, **kwargs)
        assert assert_convolution(dst, src, weights, **kwargs).elements == dst.size
        data = functions[1](diff_dst, weights, src.shape, **kwargs)
    gradient = functions[0](src, diff_dst, weights.shape, **kwargs)
    kwargs["transposed"] = transposed
    assert assert_weight_gradient(gradient, src, diff_dst, **kwargs).ok
    assert assert_data_gradient(data, diff_dst, weights, src.shape, **kwargs).ok
    with pytest.raises(AssertionError, match=r"^WRONG: \d"):
        assert_weight_gradient(gradient * gradient.dtype.type(1.125), src, diff_dst, **kwargs)
    with pytest.raises(AssertionError, match=r"^WRONG: \d"):
        assert_data_gradient(data * data.dtype.type(1.125), diff_dst, weights, **kwargs)


def test_transposed_forward() -> None:
    call: dict[str, Any] = {"strides": 2, "pads_begin": 1, "pads_end": 1, "output_padding": 1}
    dst = convgrad.conv_transpose(SRC, WEIGHTS.swapaxes(2, 3), **call)
    call["transposed"] = True
    assert_convolution(dst, SRC, WEIGHTS.swapaxes(2, 3), **call)
    dropped = dst.copy()
    dropped[:, -1] = dropped[:, :, -1] = 0
    with pytest.raises(AssertionError, match="output_padding dropped"):
        assert_convolution(dropped, SRC, WEIGHTS.swapaxes(2, 3), **call)


@pytest.mark.parametrize("order", ["images reversed", "by parts"])
def test_other_orders_pass(order: str) -> None:
    if order == "images reversed":
        result = weight_gradient(SRC[::-1], DIFF_DST[::-1])
    else:
        result = weight_gradient(SRC[:1], DIFF_DST[:1]) + weight_gradient(SRC[1:], DIFF_DST[1:])
    assert not np.array_equal(result, weight_gradient())
    assert_weight_gradient(result, SRC, DIFF_DST, WEIGHTS.shape, **PADS)


@pytest.mark.every(2)
@pytest.mark.parametrize("name", WRONG)
def test_wrong_results_are_named(name: str) -> None:
    assertion, wrong, *operands = WRONG[name]
    with pytest.raises(AssertionError, match=rf"^(WRONG|DEGRADED): .*\n  cause     .*{name.partition(' (')[0]}"):
        assertion(wrong(), *operands, **PADS)


def summed_in_bf16(src: Any, diff_dst: Any) -> Any:
    """Return a weight gradient whose sums are kept in bf16 between the rows of diff_dst."""
    result = np.zeros(WEIGHTS.shape, ml_dtypes.bfloat16)
    for n, row in np.ndindex(*diff_dst.shape[:2]):
        only = np.where(np.arange(diff_dst.shape[1])[:, None, None] == row, diff_dst[n], 0)
        result = result + weight_gradient(src[n : n + 1], only[None])
    return result


def test_sums_in_bf16() -> None:
    """They are wrong unless declared."""
    src, diff_dst = SRC.astype(ml_dtypes.bfloat16), DIFF_DST.astype(ml_dtypes.bfloat16)
    result = summed_in_bf16(src, diff_dst)
    with pytest.raises(AssertionError, match="sums accumulated in bf16"):
        assert_weight_gradient(result, src, diff_dst, **PADS)
    assert_weight_gradient(result, src, diff_dst, accumulation="bf16", **PADS)
    with pytest.raises(AssertionError, match=r"^(DEGRADED|UNDECIDED|WRONG)"):
        assert_weight_gradient(0 * result, src, diff_dst, accumulation="bf16", **PADS)
    one, diff_one = src[:1], diff_dst[:1]
    result = summed_in_bf16(one, diff_one)
    with pytest.raises(AssertionError, match=r"^WRONG"):
        assert_weight_gradient(result, one, diff_one, **PADS)
    assert_weight_gradient(result, one, diff_one, accumulation="bf16", height=14, **PADS)


def test_weights_in_another_layout() -> None:
    square = convgrad.convolution_backward_weights(SRC, DIFF_DST[..., :8], (3, 3, 8, 8), **PADS)
    with pytest.raises(AssertionError, match="wrong layout"):
        assert_weight_gradient(square.swapaxes(2, 3), SRC, DIFF_DST[..., :8], **PADS)
    with pytest.raises(AssertionError, match=r"^WRONG: .*.* got f32 3x3x16x8"):
        assert_weight_gradient(weight_gradient().swapaxes(2, 3), SRC, DIFF_DST, WEIGHTS.shape, **PADS)


def test_another_shape_of_src() -> None:
    """Both shapes fit a stride of 2; the layer's is the one that counts."""
    diff_dst = DIFF_DST[:, ::2, ::2]
    result = convgrad.convolution_backward_data(diff_dst, WEIGHTS, (4, 13, 13, 8), strides=2)
    assert_data_gradient(result, diff_dst, WEIGHTS, strides=2)
    with pytest.raises(AssertionError, match=r"^WRONG: result must be of shape \(4, 14, 13, 8\); got \(4, 13, 13, 8\)"):
        assert_data_gradient(result, diff_dst, WEIGHTS, (4, 14, 13, 8), strides=2)
    with pytest.raises(AssertionError, match=r"^WRONG: "):
        assert_data_gradient(result.astype(int), diff_dst, WEIGHTS, (4, 13, 13, 8), strides=2)


def test_old_and_bias() -> None:
    bias, old = WEIGHTS[0, 0, 0], forward(weights=WEIGHTS * 2)
    result = convgrad.convolution(SRC, WEIGHTS, bias, out=old.copy(), accumulate=True, **PADS)
    assert_convolution(result, SRC, WEIGHTS, bias, old=old, **PADS)
    with pytest.raises(AssertionError, match="bias missing"):
        assert_convolution(forward(), SRC, WEIGHTS, bias, **PADS)
    with pytest.raises(AssertionError, match="old contents"):
        assert_convolution(forward(), SRC, WEIGHTS, old=old, **PADS)


def test_bias_gradient() -> None:
    assert_bias_gradient(DIFF_DST.sum((0, 1, 2)), DIFF_DST)
    assert_bias_gradient(DIFF_DST.sum((0, 2, 3)), DIFF_DST, data_format="NCX")
    with pytest.raises(AssertionError, match="last image missing"):
        assert_bias_gradient(DIFF_DST[:-1].sum((0, 1, 2)), DIFF_DST)


def test_pytorch_tensors() -> None:
    torch = pytest.importorskip("torch")
    layer = torch.nn.Conv2d(6, 8, 3, stride=2, padding=1, groups=2)
    src = torch.randn(3, 6, 9, 10, requires_grad=True)
    dst = layer(src)
    diff_dst = torch.randn_like(dst)
    dst.backward(diff_dst)
    call: dict[str, Any] = {"strides": 2, "pads_begin": 1, "pads_end": 1, "groups": 2}
    call |= {"data_format": "NCX", "weights_format": "OIX"}
    assert_convolution(dst, src, layer.weight, layer.bias, **call)
    assert_weight_gradient(layer.weight.grad, src, diff_dst, layer.weight.shape, **call)
    assert_data_gradient(src.grad, diff_dst, layer.weight, src.shape, **call)
    assert_bias_gradient(layer.bias.grad, diff_dst, data_format="NCX")
    assert_weight_gradient(layer.weight.grad.bfloat16(), src, diff_dst, **call)  # judged by the result's own type
    with pytest.raises(AssertionError, match="sign"):
        assert_data_gradient(-src.grad, diff_dst, layer.weight, **call)


def test_wrong_calls_are_not_verdicts() -> None:
    with pytest.raises(convgrad.InvalidAttributeError, match="strides"):
        assert_convolution(forward(), SRC, WEIGHTS, stride=2)  # type: ignore[call-arg]
    with pytest.raises(convgrad.InvalidAttributeError, match="accumulation must be one of"):
        assert_convolution(forward(), SRC, WEIGHTS, accumulation="f31", **PADS)


def test_pytest_shows_the_message_at_the_caller(tmp_path: Path) -> None:
    text = """
import numpy as np
from convgrad.testing import assert_matrix_product, assert_convolution

def test_product():
    assert_matrix_product(np.ones((2, 2)), np.eye(2), np.eye(2))

def test_convolution():
    assert_convolution(np.ones((1, 2, 1)), np.eye(2)[None, :, :1], np.ones((1, 1, 1)))
"""
    (tmp_path / "test_mine.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    quick = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # others' plugins take longer to load than the test
    said = subprocess.run(command, cwd=tmp_path, env=quick, capture_output=True, text=True, check=False).stdout
    assert said.count("\nE       AssertionError: WRONG: ") == 2
    assert "src/convgrad" not in said.replace("\\", "/").replace("site-packages/", "src/")


@pytest.mark.parametrize("transposed", [False, True])
def test_documented_defaults_change_nothing(transposed: bool) -> None:
    """The defaults that the signatures show can be passed, together, and give the verdict of a call without them."""
    [layer] = layers(1, types=["f32"], axes=[1], strides=[1], dilations=[1], groups=[1], data_formats=["NXC"],
                     transposed=transposed)  # fmt: skip
    pads = {name: layer.attributes[name] for name in ("pads_begin", "pads_end")}
    keywords = {"transposed": transposed, **pads}
    names = ("ConvTranspose", "conv_transpose") if transposed else ("Convolution", "convolution")
    dst = getattr(convgrad, names[1])(layer.src, layer.weights, **pads)
    diff_src = convgrad.run(
        f"{names[0]}BackwardData", layer.diff_dst, layer.weights, *([] if transposed else [layer.src.shape]),
        strides=[1], dilations=[1], **pads,
    )  # fmt: skip
    diff_weights = getattr(convgrad, f"{names[1]}_backward_weights")(
        layer.src, layer.diff_dst, layer.weights.shape, **pads
    )
    for assertion, given in (
        (assert_convolution, (dst, layer.src, layer.weights)),
        (assert_data_gradient, (diff_src, layer.diff_dst, layer.weights)),
        (assert_weight_gradient, (diff_weights, layer.src, layer.diff_dst)),
    ):
        assert assertion(*given, **(DEFAULTS | keywords)) == assertion(*given, **keywords)
