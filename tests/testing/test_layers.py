"""Random layers for parametrized tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import InvalidAttributeError, notation
from convgrad.testing import layers


@pytest.mark.parametrize("transposed", [False, True])
def test_layers_are_legal_and_varied(transposed: bool) -> None:
    made = layers(60, seed=3, types=["f32", "bf16"], transposed=transposed)
    operator = "ConvTranspose" if transposed else "Convolution"
    seen: dict[str, set[Any]] = {}
    for one in made:
        shape = convgrad.infer_shapes(operator, one.src.shape, one.weights.shape, **one.attributes)
        assert shape == one.diff_dst.shape
        assert notation.problem(one.name).output_shape == one.weights.shape
        assert str(one) == one.name
        for name, value in {**one.attributes, "type": one.src.dtype.name, "axes": one.src.ndim - 2}.items():
            seen.setdefault(name, set()).add(str(value))
    assert {name for name, values in seen.items() if len(values) < 2} == set()
    assert seen["axes"] == {"1", "2", "3"}
    assert seen["type"] == {"float32", "bfloat16"}
    assert len({one.name for one in made}) == len(made)


def test_arguments_determine_layers() -> None:
    first, again, longer, other = layers(2), layers(2), layers(3), layers(2, seed=1)
    for one, two, three in zip(first, again, longer, strict=False):
        assert one.name == two.name == three.name
        assert np.array_equal(one.src, two.src)
        assert np.array_equal(one.diff_dst, three.diff_dst)
    assert [one.name for one in first] != [one.name for one in other]


CHOICES: dict[str, tuple[Any, Any]] = {  # values, and how a layer shows them
    "types": (["f16", "f64"], lambda one, line: line.format.name),
    "data_formats": (["NCX"], lambda one, line: line.data_format),
    "weights_formats": (["OIX", "XIO"], lambda one, line: line.weights_format),
    "axes": ([1, 3], lambda one, line: len(line.descriptor.axes)),
    "groups": ([4, 5], lambda one, line: line.descriptor.groups),
    "images": ([1, 7], lambda one, line: line.descriptor.batch),
    "channels": ([1, 6], lambda one, line: line.descriptor.in_channels // line.descriptor.groups),
    "extents": ([1, 11], lambda one, line: line.descriptor.axes[0].output),
    "kernels": ([2, 7], lambda one, line: line.descriptor.axes[0].kernel),
    "strides": ([1, 4], lambda one, line: line.descriptor.axes[0].stride),
    "dilations": ([3, 5], lambda one, line: line.descriptor.axes[0].dilation),
}


@pytest.mark.parametrize("name", CHOICES)
def test_each_argument_chooses(name: str) -> None:
    values, shown = CHOICES[name]
    chosen: dict[str, Any] = {name: values}
    made = layers(30, **chosen)
    assert {shown(one, notation.read(one.name)) for one in made} == set(values)
    for one in made:
        shape = convgrad.infer_shapes("Convolution", one.src.shape, one.weights.shape, **one.attributes)
        assert shape == one.diff_dst.shape


@pytest.mark.parametrize("name", CHOICES)
def test_wrong_choices_are_refused(name: str) -> None:
    for wrong in ([], [0], ["f31"], "f32", [2.5]):
        chosen: dict[str, Any] = {name: wrong}
        if name != "weights_formats" or wrong:
            with pytest.raises(InvalidAttributeError, match=f"layers: {name} must"):
                layers(1, **chosen)


def test_layers_of_one_position_are_legal() -> None:
    for transposed in (False, True):
        for one in layers(60, extents=[1], kernels=[1, 2, 4], transposed=transposed):
            assert notation.problem(one.name).output_shape == one.weights.shape


def test_choices() -> None:
    made = layers(8, types=["f16"], data_formats=["NCX"], axes=[2])
    assert {(one.src.dtype.name, one.attributes["data_format"], one.src.ndim) for one in made} == {
        ("float16", "NCX", 4)
    }
