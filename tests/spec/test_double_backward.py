"""Each row of docs/double_backward.md, as it stands there, is the derivative by its definition, on integers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad.spec.operators import OPERATORS, Operator
from tests.spec.derivative_rows import CURRENT, LAYER, PAGE, ROWS, Call, calls, names_of
from tests.support.helpers import assert_same_bits
from tests.support.tiers import tiers

DIRECTIONS = 5  # single elements of an input, beside one direction of all of them


# -- the page ----------------------------------------------------------------------------------------------------------


def test_every_input_has_its_row() -> None:
    assert list(ROWS) == [(op.name, port.name) for op in CURRENT for port in op.operands if not port.is_shape]


def test_the_layer_is_what_the_page_says() -> None:
    words = re.search(r"`layer` stands for (.*?)\.", PAGE, re.DOTALL)
    assert words is not None
    assert tuple(re.findall(r"`(\w+)`", words[1])) == LAYER


def test_the_example_runs() -> None:
    """And is what the rows say."""
    (text,) = re.findall(r"^```python\n(import.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    found: dict[str, Any] = {}
    exec(text, found)
    layer = {"strides": 2, "auto_pad": "same_upper"}
    src, weights, v = found["src"], found["weights"], found["v"]
    diff_src = convgrad.convolution_backward_data(v, weights, src.shape, **layer)
    assert_same_bits(found["diff_src"], diff_src, "diff_src")
    by_weights = convgrad.convolution_backward_weights(diff_src, v, weights.shape, **layer)
    assert_same_bits(found["by_weights"], by_weights, "by weights")
    assert_same_bits(found["by_v"], convgrad.convolution(diff_src, weights, **layer), "by v")


# -- the rows ----------------------------------------------------------------------------------------------------------


def assert_derivative(call: Call, at: int, rng: np.random.Generator) -> bool:
    """Assert <v, f(x + u) - f(x)> = <derivative, u> for some elements u, and one u of all; tell if it is not all 0."""
    before, x = call(), call.operands[at]
    v = rng.integers(-3, 4, before.shape)
    found = call.derivative(names_of(call.op)[at], v.astype(np.float32))
    assert found.shape == x.shape
    elements = (np.arange(x.size).reshape(x.shape) == element for element in rng.permutation(x.size)[:DIRECTIONS])
    for u in (rng.integers(-3, 4, x.shape), *elements):
        assert np.vdot(v, call((at, x + u)) - before) == np.vdot(found, u), (call.op.name, at, call.attributes)
    return bool(np.any(found))


def assert_rows(op: Operator, seeds: range) -> None:
    """Assert an operator's rows, in all of its calls; a third of the derivatives by each input is not 0, and more."""
    some: dict[str, list[bool]] = {port.name: [] for port in op.operands if not port.is_shape}
    for seed in seeds:
        for call in calls(op, seed):
            rng = np.random.default_rng(seed)
            for at, port in enumerate(op.operands[: len(call.operands)]):
                if not port.is_shape:
                    some[port.name].append(assert_derivative(call, at, rng))
    assert all(3 * sum(each) >= len(each) > 0 for each in some.values()), some


@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(100, 140), marks=pytest.mark.long)])
@tiers("op", OPERATORS, every=5)
def test_each_row_is_the_derivative(op: Operator, seeds: range) -> None:
    assert_rows(op, seeds)


def test_a_weight_gradient_has_a_rest_that_its_data_gradient_cannot_know() -> None:
    """Why the rows pass it on: a rest of a stride and more is another position."""
    layer = {"strides": [1], "dilations": [3]}
    src, diff_dst = (np.ones((1, extent, 1), np.float32) for extent in (3, 10))
    v = convgrad.run("ConvTransposeBackwardWeights", src, diff_dst, weights_shape=[3, 1, 1], **layer)
    guessed = convgrad.run("ConvTransposeBackwardData", diff_dst, v, **layer)
    known = convgrad.run("ConvTransposeBackwardData", diff_dst, v, output_padding=[1], **layer)
    assert (guessed.shape, known.shape) == ((1, 4, 1), src.shape)
