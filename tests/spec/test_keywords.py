"""Keywords of other libraries: refused in words of ours, by functions whose signatures do not have them."""

from __future__ import annotations

import importlib
import inspect
import re
import time
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import InvalidAttributeError
from convgrad.spec.check import check_names
from convgrad.spec.foreign import TAUGHT
from convgrad.spec.operators import OPERATORS, Operator, find

SRC, WEIGHTS = np.ones((2, 9, 8, 3), np.float32), np.ones((3, 3, 3, 4), np.float32)
FUNCTIONS = [n for n in convgrad.__all__ if hasattr(getattr(convgrad, n), "operator")]
CALLED = [name for name in FUNCTIONS if not name.startswith("weighted")]  # weighted sums need scales


def given(name: str) -> list[Any]:
    """Return arrays for a function's required operands: of any shape, as keywords are looked at first."""
    parameters = inspect.signature(getattr(convgrad, name)).parameters.values()
    return [SRC for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD and one.default is one.empty]


def refusal(name: str, **keywords: Any) -> str:
    with pytest.raises(InvalidAttributeError, match=r"\[A1\]$") as caught:
        getattr(convgrad, name)(*given(name), **({"max_norm": 1.0} if name.startswith("clipped") else {}), **keywords)
    return str(caught.value)


def test_every_function_of_keywords_of_its_own_refuses_others() -> None:
    assert len(CALLED) == len(FUNCTIONS) - 2 == 16
    for name in FUNCTIONS:
        function: FunctionType = getattr(convgrad, name)
        assert all(one.kind is not one.VAR_KEYWORD for one in inspect.signature(function).parameters.values())
        if name in CALLED:
            words = refusal(name, colour=1)
            assert "unknown attribute 'colour'. It has " in words
            if "strides" in inspect.signature(function).parameters:
                assert "Did you mean strides=[2, 2]?" in refusal(name, stride=2)


def test_what_is_no_parameter_is_no_attribute_either() -> None:
    """Or a keyword that the signature does not have would be taken."""
    by_name = {op.name.lower(): op for op in OPERATORS}
    for name in FUNCTIONS:
        op = by_name.get(name.replace("_", "")) or by_name.get(name.replace("_", "") + "-1")
        if op:
            assert {one.name for one in op.attributes} <= {*inspect.signature(getattr(convgrad, name)).parameters}, name


HINTS: list[tuple[str, Any, str]] = [
    ("stride", (1, 2), "Did you mean strides=[1, 2]?"),
    ("window_strides", (1, 1), "Did you mean strides=[1, 1]?"),
    ("dilation", 2, "Did you mean dilations=[2, 2]?"),
    ("rhs_dilation", (2, 1), "Did you mean dilations=[2, 1]?"),
    ("group", 3, "Did you mean groups=3?"),
    ("feature_group_count", 3, "Did you mean groups=3?"),
    ("group", "1", "Did you mean groups, a positive integer?"),
    ("group", 2.0, "Did you mean groups, a positive integer?"),
    ("group", [1], "Did you mean groups, a positive integer?"),
    ("group", 0, "Did you mean groups, a positive integer?"),
    ("stride", np.int64(2), "Did you mean strides=[2, 2]?"),
    ("stride", np.array(2), "Did you mean strides=[2, 2]?"),
    ("stride", -1, "Did you mean strides, one positive integer per spatial axis?"),
    ("dilation", (0, 1), "Did you mean dilations, one positive integer per spatial axis?"),
    ("stride", 1 << 63, "Did you mean strides, one positive integer per spatial axis?"),
    ("nonlinearity", "relu", "It has strides, pads_begin"),
    ("Strides", 2, "Did you mean strides?"),
    ("padding", -1, "Pads are pads_begin and pads_end"),
    ("padding", [0, 0, 0, -1], "Pads are pads_begin and pads_end"),
    ("padding", [(0, -1), (0, 0)], "Pads are pads_begin and pads_end"),
    ("padding", b"same", "Pads are pads_begin and pads_end"),
    ("padding", (1, 2), "Did you mean pads_begin=[1, 2], pads_end=[1, 2]?"),
    ("padding", [(0, 1), (2, 3)], "Did you mean pads_begin=[0, 2], pads_end=[1, 3]?"),
    ("padding", "valid", "Did you mean auto_pad='valid'?"),
    ("padding", "full", "Pads are pads_begin and pads_end"),
    ("pads", [0, 2, 1, 3], "Did you mean pads_begin=[0, 2], pads_end=[1, 3]?"),
    ("pad", 1, "pads_begin=[1, 1]"),
    ("kernel_shape", [3, 3], "The shape of the weights determines the kernel"),
    ("weight", np.zeros(3), "The operands are src, weights, bias, in this order"),
    ("in_channels", 3, "The shapes of the arrays determine the channels"),
    ("padding_mode", "reflect", "Padding is zeros here"),
    ("batch_group_count", 2, "only groups of channels"),
    ("out_dtype", "f32", "Did you mean dtype?"),
    ("num_threads", 2, "Did you mean threads?"),
]


@pytest.mark.parametrize(("name", "value", "words"), HINTS)
def test_other_libraries_names_are_taught(name: str, value: Any, words: str) -> None:
    assert words in refusal("convolution", **{name: value})


@pytest.mark.parametrize("value", [2, [], (), [2, 2], [(0, 1)], np.int64(1)])
@pytest.mark.parametrize("name", ["stride", "dilation", "padding", "pads", "lhs_dilation"])
def test_a_hint_without_a_number_of_axes_has_no_empty_list(name: str, value: Any) -> None:
    """Attributes of a graph are checked before its shapes are known."""
    for operator in ("Convolution", "ConvTranspose"):
        with pytest.raises(InvalidAttributeError) as caught:
            check_names(find(operator), {name: value})
        assert "[]" not in str(caught.value)


def test_bias_operators_are_taught_what_they_have() -> None:
    assert ". Did you mean threads?" in refusal("bias_add", num_threads=2)
    assert refusal("bias_add", layout="NHWC").endswith("'NXC' (channels last) or 'NCX' [A1]")
    assert "The operands are src, bias, in this order" in refusal("bias_add", input=0)
    assert "unknown attribute 'stride'. It has data_format" in refusal("bias_add", stride=2)


def test_an_error_names_the_first_of_many_unknown_attributes() -> None:
    """A graph file may have a million of them, and the hint for each takes a while."""
    attributes = {f"stride{number}": 1 for number in range(100_000)}
    started = time.perf_counter()
    with pytest.raises(InvalidAttributeError) as caught:
        convgrad.run("BiasAdd", np.ones((1, 2), np.float32), np.ones(2, np.float32), **attributes)
    assert str(caught.value).count("unknown attribute") == 8
    assert time.perf_counter() - started < 5


def test_what_a_hint_writes_is_taken() -> None:
    for name, value, words in HINTS:
        if "Did you mean" in words and "=" in words and "groups" not in words:
            attributes = eval(f"dict({words.removeprefix('Did you mean ').removesuffix('?')})")
            assert convgrad.convolution(SRC, WEIGHTS, **attributes).ndim == 4, (name, value)


def test_the_kernel_of_a_weight_gradient_is_in_its_shape() -> None:
    assert "part of weights_shape" in refusal("convolution_backward_weights", kernel_size=3)


SHAPES = {
    "weights": ("weights_shape", "weight_shape", "filter_shape"),
    "src": ("dst_shape", "output_shape", "input_shape"),
}


@pytest.mark.parametrize("op", [op for op in OPERATORS if op.attribute("strides")], ids=lambda op: op.name)
def test_a_shape_is_taught_by_names_of_its_own_tensor(op: Operator) -> None:
    """The shape of the kernel is not that of the weights, and neither is that of the data."""
    shape = next((port for port in op.operands if port.is_shape), None)
    for tensor, names in SHAPES.items():
        for name in names:
            if op.attribute("weights_shape" if tensor == "weights" else "dst_shape") is None:
                with pytest.raises(InvalidAttributeError) as caught:
                    check_names(op, {name: (1, 1, 1)}, 1)
                asks = shape is not None and shape.tensor == tensor
                assert ("Pass " in str(caught.value)) == asks, caught.value
                assert "Did you mean" not in str(caught.value)
    with pytest.raises(InvalidAttributeError, match="kernel"):
        check_names(op, {"kernel_shape": (1,)}, 1)


@pytest.mark.parametrize("name", CALLED)
def test_a_hint_names_what_the_function_has(name: str) -> None:
    parameters = {*inspect.signature(getattr(convgrad, name)).parameters}
    for foreign in {*TAUGHT} - parameters:
        words = refusal(name, **{foreign: 1})
        for meant in re.findall(r"(?:Did you mean|Use) (\w+)[=?,]", words):
            assert meant in parameters or "have a type of their own" in refusal(name, **{meant: 1}), words
        assert "transpose" not in name or "Use a transposed" not in words


def test_no_name_is_taught_that_is_an_attribute_of_every_operator() -> None:
    everywhere = set.intersection(*({a.name for a in op.attributes} for op in OPERATORS if op.attribute("strides")))
    assert not everywhere & {*TAUGHT}
    assert "output_padding" in {a.name for a in find("ConvTranspose").attributes}


@pytest.mark.parametrize("library", ["jax", "dask"])
def test_the_functions_of_other_arrays_teach_as_ours_do(library: str) -> None:
    pytest.importorskip(library)
    module = importlib.import_module(f"convgrad.{library}")
    functions = [name for name in CALLED if hasattr(module, name)]
    assert len(functions) == 8
    for name in functions:
        parameters = inspect.signature(getattr(module, name)).parameters
        assert [*parameters] == [n for n in inspect.signature(getattr(convgrad, name)).parameters if n in parameters]
        with pytest.raises(InvalidAttributeError, match=r"unknown attribute 'colour'\. It has"):
            getattr(module, name)(*given(name), colour=1)
