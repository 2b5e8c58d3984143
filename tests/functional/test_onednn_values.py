"""The numbers that oneDNN's own graph tests state, in every name, layout, rank and type."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest

import convgrad
from convgrad.formats import FORMATS
from tests.functional.onednn_helpers import (
    CONV,
    CONV_DATA,
    CONV_WEIGHTS,
    UP_CONV,
    UP_DATA,
    UP_WEIGHTS,
    Array,
    arguments,
    laid_out,
    layout_of,
    layouts,
)
from tests.support.helpers import FUNCTIONS
from tests.support.tiers import tiers

# -- values ------------------------------------------------------------------------------------------------------------


def plane(rows: str) -> Array:
    return np.array([[float(v) for v in row.split()] for row in rows.split("/")])[None, None]


SRC = plane("-3 -1.5 2 .5 / -.5 -1 1 1.5 / 2 2.5 -1 0 / 3 -2 -1 4")
WEIGHTS = plane("1 0 1 / 0 1 0 / 1 0 1")
DELTA = plane("0 1 / 2 3")
DST = plane("-1 2.5 / 5 1.5")
DIFF_SRC = plane("0 1 0 1 / 2 3 3 3 / 0 3 3 1 / 2 3 2 3")
DIFF_WEIGHTS = plane("-5.5 3 7 / 10.5 3 -.5 / 2.5 -8 10")
UP = plane("-1 2.5 -1 2.5 / 5 .5 7.5 1.5 / -1 7.5 .5 2.5 / 5 1.5 5 1.5")
COUNT = np.arange(18.0).reshape(1, 2, 3, 3)
GROUPED = np.array([1.0, 0, 1, 0] * 4).reshape(4, 4, 1, 1)


class Value(NamedTuple):
    """A call on canonical 2-D operands, each (kind, array), and its result; "... shape" passes the array's shape."""

    id: str
    operators: tuple[str, ...]
    operands: tuple[tuple[str, Array], ...]
    result: tuple[str, Array]
    groups: int = 1


def data(array: Array) -> tuple[str, Array]:
    return "data", array


def weights(array: Array) -> tuple[str, Array]:
    return "weights", array


def vector(*values: float) -> tuple[str, Array]:
    return "vector", np.array(values)


SRC_SHAPE, WEIGHTS_SHAPE = ("data shape", SRC), ("weights shape", WEIGHTS)
FOUR, EIGHT = np.arange(1.0, 5).reshape(1, 4, 1, 1), np.array([3.0, 0, 3, 0, 7, 0, 7, 0]).reshape(1, 8, 1, 1)
ONES, ONES_WEIGHTS, EIGHTS = np.ones((8, 32, 16, 16)), np.ones((32, 8, 1, 1)), np.full((8, 32, 16, 16), 8.0)

VALUES = (
    Value("Convolution", CONV, (data(SRC), weights(WEIGHTS)), data(DST)),
    Value("Convolution, bias 2", CONV, (data(SRC), weights(WEIGHTS), vector(2)), data(DST + 2)),
    Value("GroupConvolution", CONV, (data(ONES), weights(ONES_WEIGHTS)), data(EIGHTS), groups=4),
    Value("ConvolutionBackwardData", CONV_DATA, (data(DELTA), weights(WEIGHTS), SRC_SHAPE), data(DIFF_SRC)),
    Value("ConvolutionBackwardData, inferred", CONV_DATA, (data(DELTA), weights(WEIGHTS)), data(DIFF_SRC)),
    Value("ConvBwdBiasaddBwd", CONV_WEIGHTS, (data(SRC), data(DELTA), WEIGHTS_SHAPE), weights(DIFF_WEIGHTS)),
    Value("operands of 0.7", CONV_WEIGHTS[2:], (data(SRC), WEIGHTS_SHAPE, data(DELTA)), weights(DIFF_WEIGHTS)),
    Value("ConvTranspose", UP_CONV, (data(DST), weights(WEIGHTS)), data(UP)),
    Value("ConvTranspose, bias 2", UP_CONV, (data(DST), weights(WEIGHTS), vector(2)), data(UP + 2)),
    Value("ConvtransposeWithGroups", UP_CONV, (data(FOUR), weights(GROUPED)), data(EIGHT), groups=2),
    Value("ConvTransposeBackwardData", UP_DATA, (data(SRC), weights(WEIGHTS)), data(DST)),
    Value("ConvTransposeBackwardWeights", UP_WEIGHTS, (data(DELTA), data(SRC), WEIGHTS_SHAPE), weights(DIFF_WEIGHTS)),
    Value("BiasAdd", ("BiasAdd", "BiasAdd-1"), (data(COUNT), vector(1, 2)), data(COUNT + np.array([[[1]], [[2]]]))),
    Value("BiasAddBackward", ("BiasAddBackward", "BiasAddBackprop-1"), (data(DELTA),), vector(6)),
)


def unit_axes(*where: int) -> Callable[[Array, int], Array]:
    return lambda array, width: np.expand_dims(array, where)


def side_by_side(array: Array, width: int) -> Array:
    """Lay the rows of planes behind each other, each ``width`` long, which makes a 1-D problem of a 2-D one."""
    height, own = array.shape[2:]
    padded = np.zeros((*array.shape[:2], height, width), array.dtype)
    padded[..., :own] = array
    return padded.reshape(*array.shape[:2], -1)[..., : (height - 1) * width + own]


EMBEDDINGS: dict[str, Callable[[Array, int], Array]] = {
    "1-D": side_by_side,
    "2-D": unit_axes(),
    "3-D, depth 1": unit_axes(2),
    "3-D, height 1": unit_axes(3),
    "3-D, width 1": unit_axes(4),
    "4-D": unit_axes(2, 5),
}


def holds(fmt: str, value: Value) -> bool:
    """Whether a format has the numbers of all operands: f8 lacks some that are larger than 8."""
    return all((array.astype(FORMATS[fmt].dtype) == array).all() for _, array in value.operands)


CASES = [case for case in product(VALUES, EMBEDDINGS, FORMATS) if holds(case[2], case[0])]


@tiers("case", CASES, every=7)
def test_values(case: tuple[Value, str, str]) -> None:
    value, embedding, fmt = case
    dtype = FORMATS[fmt].dtype
    kind, expected = value.result
    width = max(array.shape[-1] for k, array in (*value.operands, value.result) if k != "vector")

    def embedded(array: Array) -> Array:
        return EMBEDDINGS[embedding](array, width).astype(dtype) if array.ndim > 1 else array.astype(dtype)

    operands = [(k, embedded(array)) for k, array in value.operands]
    stated, expected = embedded(np.ones_like(expected)) == 1, embedded(expected)  # 1-D has results between the rows
    axes = [1] * (operands[0][1].ndim - 2)
    for operator in value.operators:
        options = {} if "Bias" in operator else {"strides": axes, "dilations": axes, "groups": value.groups}
        for formats in layouts(operator):
            got = convgrad.run(operator, *arguments(operands, formats), **options, **formats)
            where, wanted = (laid_out(a, layout_of(kind, formats)) for a in (stated, expected))
            assert (got.dtype, got.shape) == (dtype, wanted.shape)
            assert np.array_equal(got[where], wanted[where]), (operator, formats)


@pytest.mark.parametrize("value", [v for v in VALUES if "0.7" not in v.id], ids=lambda v: v.id)
def test_values_of_the_functions_with_their_defaults(value: Value) -> None:
    operands = [(kind, array.astype(np.float32)) for kind, array in value.operands]
    options: dict[str, Any] = {"groups": value.groups} if value.groups > 1 else {}
    for operator in value.operators:
        if operator in FUNCTIONS:
            formats = next(f for f in layouts(operator) if f["data_format"] == "NXC")  # the first choice is the default
            expected = laid_out(value.result[1], layout_of(value.result[0], formats))
            out = np.full(expected.shape, np.nan, np.float32)
            assert FUNCTIONS[operator](*arguments(operands, formats), out=out, **options) is out
            assert np.array_equal(out, expected), operator
