"""`assert_same_bits` and `assert_batch_invariant`: which results they compare, and what they say of a difference."""

from __future__ import annotations

import os
import re
import threading
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad.engines.settings import asked_of_us
from convgrad.errors import InvalidAttributeError, InvalidDataTypeError
from convgrad.testing import Configuration, assert_batch_invariant, assert_same_bits


def gradient(scale: float = 1.0) -> dict[str, Any]:
    x = np.arange(2 * 6 * 6 * 3, dtype=np.float32).reshape(2, 6, 6, 3)
    return {"dw": [convgrad.convolution_backward_weights(x, x * np.float32(scale), (1, 1, 3, 3))]}


def settings() -> Any:
    names = "ATEN_CPU_CAPABILITY", "CONVGRAD_MAX_ISA"
    return np.frombuffer("".join(os.environ.get(name, "-") for name in names).encode(), np.uint8)


def scalar(x: float) -> Any:
    return np.float32(x)


def fails() -> Any:
    raise TypeError("of the function itself")


def process() -> Any:
    return np.array([os.getpid()])


def test_ours_are_equal_in_all_configurations() -> None:
    both = Configuration(max_isa="avx2"), Configuration(capability="avx2", threads=1), Configuration(threads=2)
    assert_same_bits(gradient, both, scale=2.0)


def test_the_first_element_and_both_values_are_named() -> None:
    def function(at: int) -> Any:
        x = np.zeros((2, 3), np.float32)
        x[at, 1:] = np.float32(1 + at)
        return {"loss": np.float32(1), "layers": [np.ones(2), x]}

    configurations = Configuration(arguments={"at": 0}), Configuration(arguments={"at": 1})
    message = (
        "result['layers'][1] differs in 4 of 6 elements, first at (0, 1): "
        "0x3f800000 (1.0) with at=0; 0x00000000 (0.0) with at=1"
    )
    with pytest.raises(AssertionError, match=re.escape(message)):
        assert_same_bits(function, configurations)


@pytest.mark.parametrize(
    ("one", "other"),
    [(0.0, -0.0), (np.nan, -np.nan)],
    ids=["zeros", "nan"],
)
def test_equal_numbers_with_different_bits_differ(one: float, other: float) -> None:
    configurations = Configuration(arguments={"x": one}), Configuration(arguments={"x": other})
    with pytest.raises(AssertionError, match=r"differs in 1 of 1 elements, first at \(\)"):
        assert_same_bits(scalar, configurations)


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ((np.ones(2), np.ones(3)), r"result differs in its type or shape: float64 \(2,\) with at=0, float64 \(3,\)"),
        ((np.ones(2), np.ones(2, np.float32)), "result differs in its type or shape"),
        (({"a": np.ones(2)}, {"b": np.ones(2)}), "the results have different names"),
        ((np.ones(0), np.ones((0, 2))), "result differs in its type or shape"),
    ],
)
def test_other_shapes_types_and_names(results: Any, message: str) -> None:
    configurations = [Configuration(arguments={"at": at}) for at in (0, 1)]
    with pytest.raises(AssertionError, match=message):
        assert_same_bits(lambda at: results[at], configurations)


def test_threads_are_set_and_restored() -> None:
    seen = []

    def function() -> Any:
        seen.append(asked_of_us())
        return np.ones(1)

    before = asked_of_us()
    assert_same_bits(function)
    assert seen == [1, 2, 3]
    assert asked_of_us() == before


def test_variables_need_a_new_process() -> None:
    name = "ATEN_CPU_CAPABILITY"
    with pytest.raises(AssertionError, match=r"with capability=avx2; .* with capability=zero"):
        assert_same_bits(settings, [Configuration(capability="avx2"), Configuration(capability="zero")])
    assert name not in os.environ
    with pytest.raises(AssertionError, match=r"with no settings; .* with new_process=True"):
        assert_same_bits(process, [Configuration(), Configuration(new_process=True)])


def test_a_local_function_cannot_run_in_a_new_process() -> None:
    with pytest.raises(InvalidDataTypeError, match="function must be importable, and its arguments picklable"):
        assert_same_bits(lambda: np.ones(1), [Configuration(), Configuration(new_process=True)])


def test_an_error_of_the_function_is_raised() -> None:
    with pytest.raises(TypeError, match="of the function itself"):
        assert_same_bits(fails, [Configuration(new_process=True)] * 2)


@pytest.mark.parametrize("result", [1.0, "text", None, [np.ones(1), threading.Lock()], [], {}, ({}, [()])])
def test_results_are_arrays(result: Any) -> None:
    with pytest.raises(InvalidDataTypeError, match="must be an array or nested arrays; got"):
        assert_same_bits(lambda: result)
    with pytest.raises(InvalidDataTypeError, match="must be an array or nested arrays; got"):
        assert_batch_invariant(lambda x: result, [np.ones((6, 2))], [[1]])


@pytest.mark.parametrize("shape", [(0,), (0, 2), (2, 0, 3)])
def test_results_without_elements(shape: tuple[int, ...]) -> None:
    assert_same_bits(lambda: np.ones(shape, np.float32))


def test_two_configurations_are_needed() -> None:
    with pytest.raises(InvalidAttributeError, match="configurations must have two or more entries; got 1"):
        assert_same_bits(gradient, [Configuration()])


def test_batch_invariance() -> None:
    x, w = np.random.default_rng(0).standard_normal((6, 5, 5, 3), np.float32), np.ones((3, 3, 3, 4), np.float32)

    def layer(x: Any) -> Any:
        return convgrad.convolution(x, w), convgrad.convolution_backward_data(convgrad.convolution(x, w), w, x.shape)

    assert_batch_invariant(layer, [x], [[1], [2, 3], [1, 2, 3, 4, 5]])
    message = r"result differs in \d+ of 6 elements, first at \(\d,\): .* with the batch of 6; .* with parts cut at 2"
    with pytest.raises(AssertionError, match=message):
        assert_batch_invariant(lambda x: x.sum((1, 2, 3)) - x.mean(), [x], [[2]])


def test_results_for_the_whole_batch_vary() -> None:
    with pytest.raises(
        AssertionError, match=r"type or shape: float64 \(\) with the batch of 6, float64 \(2,\) with parts"
    ):
        assert_batch_invariant(lambda x: x.sum(), [np.ones((6, 2))], [[1]])


def test_a_batch_needs_a_cut() -> None:
    with pytest.raises(InvalidAttributeError, match="cuts must have one or more entries; got none"):
        assert_batch_invariant(lambda x: x, [np.ones((6, 2))], [])


@pytest.mark.parametrize("cut", [[0], [6], [3, 3], [4, 2], [-1]])
def test_cuts_are_inside_the_batch(cut: list[int]) -> None:
    with pytest.raises(InvalidAttributeError, match="cuts must be positions inside a batch of 6, in increasing order"):
        assert_batch_invariant(lambda x: x, [np.ones((6, 2))], [cut])


def test_tensors_of_pytorch_with_gradients() -> None:
    torch = pytest.importorskip("torch")

    def function(form: Any) -> Any:
        x = torch.ones(2, 3, 4, 5).to(memory_format=form).requires_grad_()
        y = x * 3
        y.sum().backward()
        return y, x.grad, y.detach().bfloat16()

    formats = torch.contiguous_format, torch.channels_last
    assert_same_bits(function, [Configuration(threads=1, arguments={"form": form}) for form in formats])
