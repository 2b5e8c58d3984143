"""Random layers for parametrized tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import notation
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


def test_choices() -> None:
    made = layers(8, types=["f16"], data_formats=["NCX"], axes=[2])
    assert {(one.src.dtype.name, one.attributes["data_format"], one.src.ndim) for one in made} == {
        ("float16", "NCX", 4)
    }
