"""``gradcheck``: right gradients pass, wrong ones raise, without a tolerance."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import convgrad
from convgrad.testing import gradcheck

rng = np.random.default_rng(0)
A, B, X = rng.standard_normal((6, 7)), rng.standard_normal((7, 3)), rng.standard_normal((8, 16))


def product_gradients(diff: Any, a: Any, b: Any) -> list[Any]:
    return [diff @ b.T, a.T @ diff]


def normalized(x: Any) -> Any:
    return (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5)


def normalized_gradient(diff: Any, x: Any) -> list[Any]:
    y = normalized(x)
    return [(diff - diff.mean(0) - y * (diff * y).mean(0)) / np.sqrt(x.var(0) + 1e-5)]


def relu(x: Any) -> Any:
    return np.maximum(x, 0)


RIGHT: dict[str, Any] = {
    "product": (np.matmul, [A, B], product_gradients),
    "large and small numbers": (np.matmul, [A * 1e30, B * 1e-20], product_gradients),
    "large offset": (np.matmul, [A + 1e6, B], product_gradients),
    "exp": (np.exp, [3 * A], lambda diff, x: [diff * np.exp(x)]),
    "steep": (lambda x: np.tanh(10 * x), [X], lambda diff, x: [10 * diff * (1 - np.tanh(10 * x) ** 2)]),
    "batch norm": (normalized, [X], normalized_gradient),
    "kinks": (relu, [X], lambda diff, x: [diff * (x > 0)]),
    "loss": (lambda x: (x**2).mean(), [X], lambda diff, x: [2 * diff * x / x.size]),
    "zeros": (np.sin, [np.zeros(3)], lambda diff, x: [diff * np.cos(x)]),
    "sums of f32": (lambda a, b: a.astype("f") @ b.astype("f"), [A, B], product_gradients),
}


@pytest.mark.every(3)
@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("seed", range(5))
def test_right_gradients(name: str, seed: int) -> None:
    function, operands, gradients = RIGHT[name]
    errors = gradcheck(function, operands, gradients, seed=seed)
    assert len(errors) == len(operands)
    assert all(0 <= error < (1e-3 if "f32" in name else 1e-8) for error in errors)


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("factor", [1 + 1e-7, 2, 0])
def test_wrong_factors(name: str, factor: float) -> None:
    """Of any size that is larger than the error of the check."""
    function, operands, gradients = RIGHT[name]
    factor = 1 + 1e-2 if "f32" in name and factor not in (0, 2) else factor
    match = rf"gradient 0 gives a derivative of .*, which is {factor:.6g} times" if factor in (0, 2) else "gradient 0"
    with pytest.raises(AssertionError, match=rf"^WRONG: {match}"):
        gradcheck(function, operands, lambda diff, *x: [factor * one for one in gradients(diff, *x)])


def test_one_wrong_element_of_the_second_gradient() -> None:
    def wrong(diff: Any, a: Any, b: Any) -> list[Any]:
        first, second = product_gradients(diff, a, b)
        second[3, 1] *= 1.001
        return [first, second]

    with pytest.raises(AssertionError, match=r"^WRONG: gradient 1 gives"):
        gradcheck(np.matmul, [A, B], wrong)


def test_operators_of_convgrad() -> None:
    src, weights = rng.standard_normal((2, 8, 8, 4)), rng.standard_normal((3, 2, 2, 6))
    layer: dict[str, Any] = {"strides": 2, "dilations": (1, 3), "auto_pad": "same_upper", "groups": 2}

    def gradients(diff: Any, src: Any, weights: Any, **other: Any) -> list[Any]:
        found = convgrad.convolution_backward(src, diff, weights, needs=("src", "weights"), **layer | other)
        return [found.src, found.weights]

    def function(*operands: Any) -> Any:
        return convgrad.convolution(*operands, **layer)

    assert max(gradcheck(function, [src, weights], gradients)) < 1e-11
    with pytest.raises(AssertionError, match="WRONG: gradient 0"):
        gradcheck(function, [src, weights], lambda *given: gradients(*given, auto_pad="same_lower"))


def test_pytorch_layer() -> None:
    torch = pytest.importorskip("torch")

    def gradients(diff: Any, *operands: Any, factor: float = 1) -> list[Any]:
        operands = tuple(one.requires_grad_() for one in operands)
        return [factor * one for one in torch.autograd.grad(function(*operands), operands, diff)]

    def function(src: Any, weights: Any) -> Any:
        return torch.nn.functional.gelu(torch.nn.functional.conv2d(src, weights, padding=1))

    operands = [torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3, requires_grad=True)]
    assert max(gradcheck(function, operands, gradients)) < 1e-8
    with pytest.raises(AssertionError, match=r"which is 0\.5 times the right one"):
        gradcheck(function, operands, lambda *given: gradients(*given, factor=0.5))


def test_gradients_that_are_left_out() -> None:
    first, second = gradcheck(np.matmul, [A, B], lambda diff, a, b: [None, a.T @ diff])
    assert np.isnan(first)
    assert second < 1e-11


@pytest.mark.every(5)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("offset", [0.0, 1.0, 1e3, 1e9])
@pytest.mark.parametrize("count", [1, 5, 50])
def test_rounding_hides_changes(dtype: Any, offset: float, count: int) -> None:
    """If rounding hides all changes at small steps, right gradients are not wrong, and zeros not right."""
    for seed in range(5):
        x = np.random.default_rng(seed).standard_normal(count)
        for factor in (1, 0):
            said = ""
            try:
                with np.errstate(over="ignore", invalid="ignore"):
                    gradcheck(
                        lambda x: (offset + np.sin(x)).astype(dtype),
                        [x],
                        lambda diff, x, factor=factor: [factor * diff.astype(float) * np.cos(x)],
                        seed=seed,
                    )
            except AssertionError as error:
                said = str(error)
            if factor:
                assert not said.startswith("WRONG") or "not finite" in said
            else:
                assert said


@pytest.mark.parametrize("factor", [1.0, 1 + 1e-6, 0.0])
@pytest.mark.parametrize(("of_operand", "of_result"), [(1e-200, 1.0), (1e200, 1.0), (1.0, 1e200), (1.0, 1e-200)])
def test_numbers_whose_squares_are_not_f64(of_operand: float, of_result: float, factor: float) -> None:
    def gradients(diff: np.ndarray, x: np.ndarray) -> list[np.ndarray]:
        return [factor * diff * of_result * np.cos(x / of_operand) / of_operand]

    with nullcontext() if factor == 1 else pytest.raises(AssertionError, match=r"^WRONG"):
        assert gradcheck(lambda x: of_result * np.sin(x / of_operand), [of_operand * X], gradients)[0] < 1e-10


@pytest.mark.parametrize("factor", [1.0, 1.4])
def test_functions_that_return_the_same_memory_again(factor: float) -> None:
    x, result, gradient = np.arange(1.0, 4.0), np.empty(3), np.empty(3)

    def gradients(diff: np.ndarray, x: np.ndarray) -> list[np.ndarray]:
        return [np.multiply(factor * diff, np.cos(x), out=gradient)]

    with nullcontext() if factor == 1 else pytest.raises(AssertionError, match=r"1\.4 times the right one"):
        assert gradcheck(lambda x: np.sin(x, out=result), [x], gradients)[0] < 1e-10


def test_a_kink_at_the_operands() -> None:
    """Derivatives of a side, or between the sides, pass; others are wrong. A derivative of 0 cannot be told apart."""
    for slope in (0.5, 1):
        gradcheck(relu, [np.zeros(1)], lambda diff, x, slope=slope: [slope * diff])
    with pytest.raises(AssertionError, match="WRONG"):
        gradcheck(relu, [np.zeros(1)], lambda diff, x: [3 * diff])


def test_random_functions_are_undecided() -> None:
    noise = np.random.default_rng(0)
    with pytest.raises(AssertionError, match=r"^UNDECIDED: gradient 0 .* must be smooth and deterministic"):
        gradcheck(lambda x: x * noise.random(x.shape), [X], lambda diff, x: [diff])


@pytest.mark.parametrize(
    ("gradient", "words"),
    [
        (lambda diff, x: [diff[:4]], r"gradient 0 must be of shape \(8, 16\); got \(4, 16\)"),
        (lambda diff, x: [diff * np.nan], "gradient 0, or the result near the operands, is not finite"),
        (lambda diff, x: [diff, diff], "2 gradients were returned for 1 operands"),
    ],
)
def test_what_is_no_gradient(gradient: Any, words: str) -> None:
    with pytest.raises(AssertionError, match=rf"^WRONG: {words}"):
        gradcheck(np.positive, [X], gradient)


def test_integers_are_refused() -> None:
    with pytest.raises(convgrad.InvalidDataTypeError, match="operand 0 must be an array of"):
        gradcheck(np.positive, [np.arange(3)], lambda diff, x: [diff])
