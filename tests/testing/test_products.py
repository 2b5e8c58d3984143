"""Assertions about matrix products and linear layers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from convgrad import InvalidShapeError
from convgrad.testing import (
    assert_linear,
    assert_linear_data_gradient,
    assert_linear_weight_gradient,
    assert_matrix_product,
)

rng = np.random.default_rng(0)
A, B = rng.standard_normal((2, 3, 16, 32), np.float32), rng.standard_normal((3, 32, 8), np.float32)
SRC, WEIGHTS = rng.standard_normal((6, 5, 32), np.float32), rng.standard_normal((12, 32), np.float32)
BIAS, DIFF_DST = rng.standard_normal(12, np.float32), rng.standard_normal((6, 5, 12), np.float32)
TYPES = [np.float32, np.float16, ml_dtypes.bfloat16, np.float64]


@pytest.mark.every(2)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("batch", ["none", "a", "both"])
def test_products(batch: str, dtype: Any) -> None:
    a, b = {"none": (A[0, 0], B[0]), "a": (A, B[1]), "both": (A, B)}[batch]
    a, b = a.astype(dtype), b.astype(dtype)
    wide = np.float64 if dtype == np.float64 else np.float32
    for order in (1, -1):
        result = (a.astype(wide)[..., ::order] @ b.astype(wide)[..., ::order, :]).astype(dtype)
        assert assert_matrix_product(result, a, b).elements == result.size
    wrong = result.copy()
    wrong[..., 3, 5] += dtype(0.5)
    with pytest.raises(AssertionError, match=r"^WRONG: .*\n.*\n.*channel.*position 3(.*\n)*.*a position is a row"):
        assert_matrix_product(wrong, a, b)


def test_place_of_a_wrong_element() -> None:
    """The index is that of the array, also in a batch."""
    wrong = A @ B
    wrong[1, 2, 3, 4] += 1
    with pytest.raises(AssertionError, match=r"worst     element \(1, 2, 3, 4\): .*\n  note .* g\*8 \+ a column of"):
        assert_matrix_product(wrong, A, B)


def test_blocks_of_k_overwrite() -> None:
    lost = np.zeros((2, 3, 16, 8), np.float32)
    for first in (0, 16):
        lost[...] = A[..., first : first + 16] @ B[:, first : first + 16]  # = instead of +=
    with pytest.raises(AssertionError, match=r"overwritten instead of summed \(only the second half counts\)"):
        assert_matrix_product(lost, A, B)
    assert_matrix_product(A[..., :16] @ B[:, :16] + lost, A, B)


def test_keywords_of_products() -> None:
    old = np.ones((2, 3, 16, 8), np.float32)
    assert_matrix_product(A @ B + old, A, B, old=old)
    assert_matrix_product(A @ B, A, B, old=None, height=None)
    with pytest.raises(AssertionError, match="old contents not added"):
        assert_matrix_product(A @ B, A, B, old=old)
    rounded = (A @ B).astype(ml_dtypes.bfloat16).astype(np.float32)
    with pytest.raises(AssertionError, match="result rounded to bf16"):
        assert_matrix_product(rounded, A, B)
    assert_matrix_product(rounded, A, B, accumulation="bf16")


def test_empty_products() -> None:
    verdict = assert_matrix_product(np.zeros((0, 2, 4), np.float32), np.ones((0, 2, 3), np.float32), B[0, :3, :4])
    assert verdict.elements == 0


@pytest.mark.parametrize("shapes", [((2, 3), (4, 5)), ((3,), (3, 2)), ((2, 2, 3), (3, 3, 4))])
def test_shapes_that_do_not_fit(shapes: tuple[Any, Any]) -> None:
    with pytest.raises(
        InvalidShapeError,
        match=r"a and b must (be \(\.\.\., M, K\) and \(\.\.\., K, N\)|have leading axes that broadcast)",
    ):
        assert_matrix_product(np.ones((2, 2)), *map(np.ones, shapes))


@pytest.mark.parametrize("axes", [1, 2, 4])
def test_linear_layers(axes: int) -> None:
    """With any number of axes between the first and the last."""
    shape = {1: (30,), 2: (6, 5), 4: (2, 3, 1, 5)}[axes]
    src, diff = SRC.reshape(*shape, 32), DIFF_DST.reshape(*shape, 12)
    result, data = src @ WEIGHTS.T + BIAS, diff @ WEIGHTS
    gradient = diff.reshape(-1, 12).T @ src.reshape(-1, 32)
    assert_linear(result, src, WEIGHTS, BIAS)
    assert_linear_data_gradient(data, diff, WEIGHTS)
    assert_linear_weight_gradient(gradient, src, diff)
    with pytest.raises(AssertionError, match="bias missing"):
        assert_linear(result - BIAS, src, WEIGHTS, BIAS)
    with pytest.raises(AssertionError, match="WRONG"):
        assert_linear_data_gradient(diff @ np.roll(WEIGHTS, 1, 1), diff, WEIGHTS)
    gradient[7, 9] += 1
    with pytest.raises(AssertionError, match=r"element \(7, 9\)"):
        assert_linear_weight_gradient(gradient, src, diff)
    with pytest.raises(AssertionError, match=r"must be of shape \(12, 32\); got \(32, 12\)"):
        assert_linear_weight_gradient(gradient.T, src, diff)


def test_lost_image_of_a_linear_layer() -> None:
    lost = np.einsum("nsi,nso->oi", SRC[:-1], DIFF_DST[:-1])
    with pytest.raises(AssertionError, match="last image missing"):
        assert_linear_weight_gradient(lost, SRC, DIFF_DST)


def test_pytorch_linear() -> None:
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(32, 12)
    src = torch.randn(6, 5, 32, requires_grad=True)
    dst = layer(src)
    diff_dst = torch.randn_like(dst)
    dst.backward(diff_dst)
    assert_linear(dst, src, layer.weight, layer.bias)
    assert_linear_weight_gradient(layer.weight.grad, src, diff_dst)
    assert_linear_data_gradient(src.grad, diff_dst, layer.weight)
    assert_matrix_product(src @ layer.weight.T, src, layer.weight.T)
    with pytest.raises(AssertionError, match="mean instead of sum"):
        assert_linear_weight_gradient(layer.weight.grad / 6, src, diff_dst)
