"""The numbers, extents and pads that oneDNN's own graph tests state, in every name, layout, rank and type."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import convgrad
from convgrad import ConvgradError, InvalidAttributeError, InvalidOpError, InvalidShapeError
from convgrad.formats import FORMATS
from convgrad.functional.call import prepare
from convgrad.spec.operators import find

Array = np.ndarray


def laid_out(array: Array, layout: str) -> Array:
    """Move a canonical array (N, C, X... or two channel axes and X...) into ``layout``."""
    if layout == "NXC":
        return np.moveaxis(array, 1, -1)
    return np.moveaxis(array, (0, 1), (-1, -2)) if layout in ("XIO", "XOI") else array


def layouts(operator: str) -> Iterator[dict[str, str]]:
    """All choices of data and weights layout an operator has, by its own attribute names."""
    weights = find(operator).attribute("weights_format")
    for data in ("NCX", "NXC"):
        for choice in weights.choices if weights else ("",):
            yield {"data_format": data} | ({weights.name: choice} if weights else {})


def layout_of(kind: str, formats: dict[str, str]) -> str:
    data, *weights = formats.values()
    return {"data": data, "weights": weights[0] if weights else "", "vector": ""}[kind]


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
    """A call on canonical 2-D operands, each a (kind, array); kind ``shape`` stands for the shape of such weights."""

    id: str
    operators: tuple[str, ...]
    operands: tuple[tuple[str, Array], ...]
    result: str
    expected: Array
    groups: int = 1


def vector(*values: float) -> tuple[str, Array]:
    return "vector", np.array(values)


VALUES = (
    Value("Convolution", ("Convolution", "Convolution-1"), (("data", SRC), ("weights", WEIGHTS)), "data", DST),
    Value(
        "Convolution, bias 2",
        ("Convolution", "Convolution-1"),
        (("data", SRC), ("weights", WEIGHTS), vector(2)),
        "data",
        DST + 2,
    ),
    Value(
        "ConvolutionBackwardData",
        ("ConvolutionBackwardData", "ConvolutionBackpropData-1"),
        (("data", DELTA), ("weights", WEIGHTS), ("data shape", SRC)),
        "data",
        DIFF_SRC,
    ),
    Value(
        "ConvolutionBackwardData, shape inferred",
        ("ConvolutionBackwardData", "ConvolutionBackpropData-1"),
        (("data", DELTA), ("weights", WEIGHTS)),
        "data",
        DIFF_SRC,
    ),
    Value(
        "ConvolutionBackwardWeights",
        ("ConvolutionBackwardWeights", "ConvolutionBackpropWeights-1", "ConvolutionBackpropFilters-1"),
        (("data", SRC), ("data", DELTA), ("weights shape", WEIGHTS)),
        "weights",
        DIFF_WEIGHTS,
    ),
    Value(
        "ConvolutionBackpropFilters of 0.7",
        ("ConvolutionBackpropFilters-1",),
        (("data", SRC), ("weights shape", WEIGHTS), ("data", DELTA)),
        "weights",
        DIFF_WEIGHTS,
    ),
    Value("ConvTranspose", ("ConvTranspose", "ConvTranspose-1"), (("data", DST), ("weights", WEIGHTS)), "data", UP),
    Value(
        "ConvTranspose, bias 2",
        ("ConvTranspose", "ConvTranspose-1"),
        (("data", DST), ("weights", WEIGHTS), vector(2)),
        "data",
        UP + 2,
    ),
    Value(
        "ConvTransposeBackwardData",
        ("ConvTransposeBackwardData", "ConvTransposeBackpropData-1"),
        (("data", SRC), ("weights", WEIGHTS)),
        "data",
        DST,
    ),
    Value(
        "ConvTransposeBackwardWeights",
        ("ConvTransposeBackwardWeights", "ConvTransposeBackpropFilters-1"),
        (("data", DELTA), ("data", SRC), ("weights shape", WEIGHTS)),
        "weights",
        DIFF_WEIGHTS,
    ),
    Value(
        "ConvtransposeWithGroups",
        ("ConvTranspose", "ConvTranspose-1"),
        (("data", np.arange(1.0, 5).reshape(1, 4, 1, 1)), ("weights", GROUPED)),
        "data",
        np.array([3.0, 0, 3, 0, 7, 0, 7, 0]).reshape(1, 8, 1, 1),
        groups=2,
    ),
    Value(
        "GroupConvolution",
        ("Convolution", "Convolution-1"),
        (("data", np.ones((8, 32, 16, 16))), ("weights", np.ones((32, 8, 1, 1)))),
        "data",
        np.full((8, 32, 16, 16), 8.0),
        groups=4,
    ),
    Value(
        "BiasAdd",
        ("BiasAdd", "BiasAdd-1"),
        (("data", COUNT), vector(1, 2)),
        "data",
        COUNT + np.array([1, 2]).reshape(2, 1, 1),
    ),
    Value(
        "BiasAddBackward", ("BiasAddBackward", "BiasAddBackprop-1"), (("data", DELTA),), "vector", np.array([6.0])
    ),
)  # fmt: skip


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


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("embedding", EMBEDDINGS)
@pytest.mark.parametrize("value", VALUES, ids=lambda v: v.id)
def test_values(value: Value, embedding: str, fmt: str) -> None:
    dtype = FORMATS[fmt].dtype
    width = max(a.shape[-1] for kind, a in (*value.operands, (value.result, value.expected)) if kind != "vector")

    def embedded(kind: str, array: Array) -> Array:
        return array if kind == "vector" else EMBEDDINGS[embedding](array, width)

    operands = [(kind, embedded(kind.removesuffix(" shape"), array).astype(dtype)) for kind, array in value.operands]
    expected = embedded(value.result, value.expected)
    stated = embedded(value.result, np.ones_like(value.expected)) == 1  # 1-D has results between the rows
    for operator in value.operators:
        for formats in layouts(operator):
            arrays: list[Array] = []
            for kind, array in operands:
                moved = laid_out(array, layout_of(kind.removesuffix(" shape"), formats))
                arrays.append(np.array(moved.shape, np.int32) if kind.endswith("shape") else moved)
            axes = [1] * (expected.ndim - 2)
            convolves = "Bias" not in operator
            options = {"strides": axes, "dilations": axes, "groups": value.groups} if convolves else {}
            got = convgrad.run(operator, *arrays, **options, **formats)
            layout = layout_of(value.result, formats)
            assert got.dtype == dtype
            assert got.shape == laid_out(expected, layout).shape
            where = laid_out(stated, layout)
            assert np.array_equal(got[where], laid_out(expected, layout)[where]), (operator, formats)


FUNCTIONS = {
    "Convolution": convgrad.convolution,
    "ConvolutionBackwardData": convgrad.convolution_backward_data,
    "ConvolutionBackwardWeights": convgrad.convolution_backward_weights,
    "ConvTranspose": convgrad.conv_transpose,
    "ConvTransposeBackwardData": convgrad.conv_transpose_backward_data,
    "ConvTransposeBackwardWeights": convgrad.conv_transpose_backward_weights,
    "BiasAdd": convgrad.bias_add,
    "BiasAddBackward": convgrad.bias_add_backward,
    "ConvolutionBackpropWeights-1": convgrad.convolution_backprop_weights,
    "ConvolutionBackpropFilters-1": convgrad.convolution_backprop_filters,
    "ConvolutionBackpropData-1": convgrad.convolution_backprop_data,
}


@pytest.mark.parametrize("value", [v for v in VALUES if "0.7" not in v.id], ids=lambda v: v.id)
def test_values_of_the_functions_with_their_defaults(value: Value) -> None:
    for operator in value.operators:
        if operator not in FUNCTIONS:
            continue
        formats = next(f for f in layouts(operator) if f["data_format"] == "NXC" and f.get("weights_format") != "OIX")
        formats = {n: {"OIX": "XIO", "IOX": "XOI"}.get(f, f) for n, f in formats.items()}
        arrays: list[Any] = []
        for kind, array in value.operands:
            moved = laid_out(array.astype(np.float32), layout_of(kind.removesuffix(" shape"), formats))
            arrays.append(moved.shape if kind.endswith("shape") else moved)
        expected = laid_out(value.expected, layout_of(value.result, formats))
        options: dict[str, Any] = {"groups": value.groups} if value.groups > 1 else {}
        out = np.full(expected.shape, np.nan, np.float32)
        assert FUNCTIONS[operator](*arrays, out=out, **options) is out
        assert np.array_equal(out, expected), operator


# -- one axis: extents, pads, remainders -------------------------------------------------------------------------------


class Extents(NamedTuple):
    """One axis of a forward: from ``src`` to ``dst`` (the operator's own), with the pads that must be resolved."""

    src: int
    kernel: int
    options: dict[str, Any]
    dst: int
    pads: tuple[int, int]
    transposed: bool = False

    def __str__(self) -> str:
        options = " ".join(f"{name} {value}" for name, value in self.options.items())
        return f"{'transposed ' * self.transposed}{self.src} kernel {self.kernel} {options} to {self.dst}"


UPPER, LOWER, VALID = ({"auto_pad": a} for a in ("same_upper", "same_lower", "valid"))
S2, S3, S4, D2 = {"strides": 2}, {"strides": 3}, {"strides": 4}, {"dilations": 2}


def begin_end(begin: int, end: int) -> dict[str, int]:
    return {"pads_begin": begin, "pads_end": end}


EXTENTS = (
    Extents(6, 4, UPPER, 6, (1, 2)),
    Extents(6, 4, LOWER, 6, (2, 1)),
    Extents(6, 4, VALID, 3, (0, 0)),
    Extents(6, 4, begin_end(1, 2), 6, (1, 2)),
    Extents(6, 4, UPPER | begin_end(5, 5), 6, (1, 2)),
    Extents(6, 4, LOWER | begin_end(5, 5), 6, (2, 1)),
    Extents(6, 4, VALID | begin_end(1, 2), 3, (0, 0)),
    Extents(5, 1, S3 | UPPER, 2, (0, 0)),
    Extents(5, 1, S3 | LOWER, 2, (0, 0)),
    Extents(100, 7, D2 | UPPER, 100, (6, 6)),
    Extents(100, 7, D2 | LOWER, 100, (6, 6)),
    Extents(100, 7, D2 | VALID, 88, (0, 0)),
    Extents(100, 7, D2, 88, (0, 0)),
    Extents(100, 1, D2 | UPPER, 100, (0, 0)),
    Extents(16, 4, D2 | VALID, 10, (0, 0)),
    Extents(28, 1, S2, 14, (0, 0)),
    Extents(28, 1, S2 | UPPER, 14, (0, 0)),
    Extents(28, 1, S2 | LOWER, 14, (0, 0)),
    Extents(28, 1, S2 | VALID, 14, (0, 0)),
    Extents(28, 2, S2, 14, (0, 0)),
    Extents(300, 7, S2 | UPPER, 150, (2, 3)),
    Extents(300, 7, S2 | LOWER, 150, (3, 2)),
    Extents(224, 7, S2 | begin_end(3, 2), 112, (3, 2)),
    Extents(224, 3, S2 | VALID, 111, (0, 0)),
    Extents(224, 4, S2 | VALID, 111, (0, 0)),
    Extents(112, 3, S2 | begin_end(1, 0), 56, (1, 0)),
    Extents(224, 3, {}, 222, (0, 0)),
    Extents(132, 3, {}, 130, (0, 0)),
    Extents(5, 3, begin_end(1, 1), 5, (1, 1)),
    Extents(227, 11, S4 | VALID, 55, (0, 0)),
    Extents(6, 4, UPPER, 6, (1, 2), transposed=True),
    Extents(6, 4, LOWER, 6, (2, 1), transposed=True),
    Extents(6, 4, VALID, 9, (0, 0), transposed=True),
    Extents(6, 4, begin_end(1, 2), 6, (1, 2), transposed=True),
    Extents(3, 1, S2 | UPPER, 5, (0, 0), transposed=True),
    Extents(3, 1, S2 | LOWER, 5, (0, 0), transposed=True),
    Extents(5, 3, UPPER, 5, (1, 1), transposed=True),
    Extents(10, 4, D2 | begin_end(1, 2), 13, (1, 2), transposed=True),
    Extents(10, 4, D2 | UPPER, 10, (3, 3), transposed=True),
    Extents(10, 4, D2 | LOWER, 10, (3, 3), transposed=True),
    Extents(10, 4, D2 | VALID, 16, (0, 0), transposed=True),
    Extents(28, 3, S2 | begin_end(0, 41), 16, (0, 41), transposed=True),
    Extents(28, 3, S2 | begin_end(0, 41) | {"output_padding": 1}, 17, (0, 41), transposed=True),
    Extents(28, 3, S2 | UPPER, 56, (0, 1), transposed=True),
    Extents(28, 3, S2 | LOWER, 56, (1, 0), transposed=True),
    Extents(28, 3, S2 | VALID, 57, (0, 0), transposed=True),
    Extents(111, 3, S2 | VALID | {"output_padding": 1}, 224, (0, 0), transposed=True),
    Extents(55, 11, S4 | VALID, 227, (0, 0), transposed=True),
    Extents(13, 3, begin_end(1, 1), 13, (1, 1), transposed=True),
)
FAMILIES = {
    False: ("Convolution", "ConvolutionBackwardData", "ConvolutionBackwardWeights"),
    True: ("ConvTranspose", "ConvTransposeBackwardData", "ConvTransposeBackwardWeights"),
}


def check_family(
    transposed: bool,
    shapes: dict[str, tuple[int, ...]],
    attributes: dict[str, Any],
    pads: tuple[tuple[int, int], ...] | None,
) -> None:
    """Infer each of src, weights and dst from the other two, and compare the pads resolved on the way."""
    for operator, found in zip(FAMILIES[transposed], ("dst", "src", "weights"), strict=True):
        given = [shape for tensor, shape in shapes.items() if tensor != found]
        if found == "weights" or (found == "src" and not transposed):
            given.append(shapes[found])
        assert convgrad.infer_shapes(operator, *given, **attributes) == shapes[found], operator
        if pads is not None:
            operands = [np.broadcast_to(np.float32(0), shape) for shape in given[:2]]
            axes = prepare(operator, (*operands, *given[2:]), attributes).problem.geometry.axes
            assert tuple((a.pad_begin, a.pad_end) for a in axes) == pads, operator


def per_axis(options: dict[str, Any], axes: int) -> dict[str, Any]:
    required = {"strides": 1, "dilations": 1}
    return {name: [v] * axes if isinstance(v, int) else v for name, v in (required | options).items()}


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("extents", EXTENTS, ids=str)
def test_extents_and_pads(extents: Extents, axes: int) -> None:
    channels = (2, 3)  # weights are (O, I, X) or, transposed, (I, O, X)
    src, dst = channels if extents.transposed else channels[::-1]
    shapes = {
        "src": (2, src, *[extents.src] * axes),
        "dst": (2, dst, *[extents.dst] * axes),
        "weights": (*channels, *[extents.kernel] * axes),
    }
    order = ("src", "weights", "dst")
    for formats in layouts(FAMILIES[extents.transposed][0]):
        moved = {
            t: laid_out(np.broadcast_to(0, s), layout_of("weights" if t == "weights" else "data", formats)).shape
            for t, s in shapes.items()
        }
        attributes = per_axis(extents.options, axes) | formats
        for found in order:  # the operands' order: src before weights before diff_dst, but diff_dst first in a gradient
            given = {t: moved[t] for t in (("src", "dst", "weights") if found != "dst" else order)}
            assert set(given) == set(order)
        check_family(
            extents.transposed, {t: moved[t] for t in ("src", "dst", "weights")}, attributes, (extents.pads,) * axes
        )
