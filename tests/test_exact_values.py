"""The numbers, extents and pads that oneDNN's own graph tests state, in every name, layout, rank and type."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest

import convgrad
from convgrad import ConvgradError, InvalidAttributeError, InvalidOpError, InvalidShapeError
from convgrad.formats import FORMATS
from convgrad.functional.call import prepare
from convgrad.spec.operators import find
from helpers import FUNCTIONS

Array = np.ndarray
Shape = tuple[int, ...]


def laid_out(array: Array, layout: str) -> Array:
    """Move a canonical array (N, C, X... or two channel axes and X...) into ``layout``."""
    if layout == "NXC":
        return np.moveaxis(array, 1, -1)
    return np.moveaxis(array, (0, 1), (-1, -2)) if layout in ("XIO", "XOI") else array


def layouts(operator: str) -> Iterator[dict[str, str]]:
    """Yield all choices of data and weights layout an operator has, by its own attribute names."""
    attribute = find(operator).attribute("weights_format")
    for data_format in ("NCX", "NXC"):
        for choice in attribute.choices if attribute else ("",):
            yield {"data_format": data_format} | ({attribute.name: choice} if attribute else {})


def layout_of(kind: str, formats: dict[str, str]) -> str:
    choices = {"data": formats["data_format"], "weights": list(formats.values())[-1], "vector": ""}
    return choices[kind.removesuffix(" shape")]


def arguments(operands: list[tuple[str, Array]], formats: dict[str, str]) -> Iterator[Array]:
    """Lay operands out; a shape operand becomes an integer array."""
    for kind, array in operands:
        moved = laid_out(array, layout_of(kind, formats))
        yield np.array(moved.shape, np.int32) if kind.endswith("shape") else moved


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


CONV = ("Convolution", "Convolution-1")
CONV_DATA = ("ConvolutionBackwardData", "ConvolutionBackpropData-1")
CONV_WEIGHTS = ("ConvolutionBackwardWeights", "ConvolutionBackpropWeights-1", "ConvolutionBackpropFilters-1")
UP_CONV = ("ConvTranspose", "ConvTranspose-1")
UP_DATA = ("ConvTransposeBackwardData", "ConvTransposeBackpropData-1")
UP_WEIGHTS = ("ConvTransposeBackwardWeights", "ConvTransposeBackpropFilters-1")
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


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("embedding", EMBEDDINGS)
@pytest.mark.parametrize("value", VALUES, ids=lambda v: v.id)
def test_values(value: Value, embedding: str, fmt: str) -> None:
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
FAMILIES = {False: (CONV[0], CONV_DATA[0], CONV_WEIGHTS[0]), True: (UP_CONV[0], UP_DATA[0], UP_WEIGHTS[0])}


def strict(options: Mapping[str, Any], axes: int) -> dict[str, Any]:
    """Spell options as ``run`` wants them: lists, strides and dilations given."""
    spread = {n: [v] * axes if isinstance(v, int) and n != "groups" else v for n, v in options.items()}
    return {"strides": [1] * axes, "dilations": [1] * axes} | spread


def check_family(
    transposed: bool, shapes: dict[str, Shape], attributes: dict[str, Any], pads: tuple[tuple[int, int], ...] | None
) -> None:
    """Infer each of src, dst, weights from the other two, and compare the pads resolved on the way."""
    for operator, found in zip(FAMILIES[transposed], ("dst", "src", "weights"), strict=True):
        given = [shape for tensor, shape in shapes.items() if tensor != found]
        if found == "weights" or (found == "src" and not transposed):
            given.append(shapes[found])
        assert convgrad.infer_shapes(operator, *given, **attributes) == shapes[found], operator
        operands = [np.broadcast_to(np.float32(0), shape) for shape in given[:2]]
        axes = prepare(operator, (*operands, *given[2:]), attributes).problem.geometry.axes
        assert pads is None or tuple((a.pad_begin, a.pad_end) for a in axes) == pads, operator


def shape_in(shape: Shape, layout: str) -> Shape:
    return laid_out(np.broadcast_to(0, shape), layout).shape


def shapes_of(case: Extents, axes: int, formats: dict[str, str]) -> dict[str, Shape]:
    """Return the shapes of src, dst, weights with this axis ``axes`` times, 2 and 3 channels."""
    src, dst = (2, 3) if case.transposed else (3, 2)
    data, weights = formats.values()
    return {
        "src": shape_in((2, src, *[case.src] * axes), data),
        "dst": shape_in((2, dst, *[case.dst] * axes), data),
        "weights": shape_in((2, 3, *[case.kernel] * axes), weights),
    }


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("case", EXTENTS, ids=str)
def test_extents_and_pads(case: Extents, axes: int) -> None:
    for formats in layouts(FAMILIES[case.transposed][0]):
        attributes = strict(case.options, axes) | formats
        check_family(case.transposed, shapes_of(case, axes, formats), attributes, (case.pads,) * axes)


@pytest.mark.parametrize("case", [e for e in EXTENTS if not e.transposed], ids=str)
def test_a_data_gradient_infers_the_same_extent(case: Extents) -> None:
    """By output_padding = the remainder r, or by stride 1, or by auto_pad same where s divides the extent."""
    formats = {"data_format": "NXC", "weights_format": "XIO"}
    shapes = shapes_of(case, 1, formats)
    options = strict(case.options, 1) | formats
    (stride,), (dilation,) = options["strides"], options["dilations"]
    effective = dilation * (case.kernel - 1) + 1
    remainder = (case.src + sum(case.pads) - effective) % stride
    ways: list[dict[str, Any]] = []
    if options.get("auto_pad", "").startswith("same"):
        ways += [{}] * (effective >= stride and case.src % stride == 0)
    else:
        ways += [{"output_padding": [remainder]}] + [{}] * (stride == 1)
    for way in ways:
        inferred = convgrad.infer_shapes(FAMILIES[False][1], shapes["dst"], shapes["weights"], **options, **way)
        assert inferred == shapes["src"]


@pytest.mark.parametrize(("extent", "stride", "expected"), [(5, 3, [1, 0, 0, 1, 0]), (28, 2, [1, 0] * 14)])
def test_remainder_rows_get_no_gradient_and_give_none(extent: int, stride: int, expected: list[int]) -> None:
    diff_dst = np.ones((1, -(-extent // stride), 1), np.float32)
    weights = np.ones((1, 1, 1), np.float32)
    out = np.full((1, extent, 1), np.nan, np.float32)
    convgrad.convolution_backward_data(diff_dst, weights, out.shape, strides=stride, out=out)
    assert out.ravel().tolist() == expected
    src = np.where(np.array(expected, bool), np.float32(1), np.float32(np.nan)).reshape(out.shape)
    diff_weights = convgrad.convolution_backward_weights(src, diff_dst, weights.shape, strides=stride)
    assert diff_weights.ravel().tolist() == [sum(expected)]


# -- whole shapes ------------------------------------------------------------------------------------------------------


class Family(NamedTuple):
    """A forward's three shapes as the tests state them; the two gradients follow."""

    id: str
    src: Shape
    weights: Shape
    dst: Shape
    formats: str
    options: Mapping[str, Any] = MappingProxyType({})

    @property
    def transposed(self) -> bool:
        return self.formats.endswith(("XOI", "IOX"))


P1, IGNORED = begin_end(1, 1), begin_end(1, 2)
G2, G4, G64 = ({"groups": g} for g in (2, 4, 64))
BY_2, D2_VALID = S2 | VALID, D2 | VALID
SHORT, OP1 = S2 | begin_end(0, 41), {"output_padding": 1}


def family_224(formats: str, groups: int, axes: int) -> Family:
    """Return 224 to 111 with 32 and 16 channels, or, transposed, 111 to 224 with 16 and 32."""
    data, weights = formats.split()
    large, small = (shape_in((1, c, *[e] * axes), data) for c, e in ((32, 224), (16, 111)))
    kernel = shape_in((16, 32 // groups, *[3] * axes), weights)
    id_, options = f"224 and 111, {formats} {axes}-D g{groups}", BY_2 | {"groups": groups}
    if weights in ("XOI", "IOX"):
        return Family(id_, small, kernel, large, formats, options | OP1)
    return Family(id_, large, kernel, small, formats, options)


def family_5(axes: int, dst_channels: int) -> Family:
    src, dst = ((2, channels, *[5] * axes) for channels in (16, dst_channels))
    return Family(f"{axes}-D 16x{dst_channels} g4", src, (dst_channels, 4, *[3] * axes), dst, "NCX OIX", P1 | G4)


FAMILY_TABLE = (
    Family("ConvolutionBackwardDataFp32", (8, 3, 224, 224), (16, 3, 3, 3), (8, 16, 222, 222), "NCX OIX"),
    Family("ConvolutionBackwardFilterFp32", (1, 224, 224, 64), (3, 3, 64, 64), (1, 222, 222, 64), "NXC XIO"),
    Family("FiltersAnyLayout g2", (2, 4, 2), (4, 2, 3), (2, 4, 2), "NCX OIX", P1 | G2),
    Family("NXC, dilations 2, valid", (1, 100, 100, 160), (7, 1, 160, 192), (1, 88, 100, 192), "NXC XIO", D2 | VALID),
    Family("NXC, dilations 2, same", (1, 100, 100, 160), (7, 1, 160, 192), (1, 100, 100, 192), "NXC XIO", D2 | UPPER),
    Family("weights 4x4 from 224", (1, 3, 224, 224), (4, 4, 3, 16), (1, 16, 111, 111), "NCX XIO", BY_2 | IGNORED),
    Family("conv_2d", (2, 32, 28, 28), (128, 32, 2, 2), (2, 128, 14, 14), "NCX OIX", S2),
    Family("conv_3d", (1, 3, 116, 132, 132), (32, 3, 3, 3, 3), (1, 32, 114, 130, 130), "NCX OIX"),
    Family("conv_bwd 2d", (1, 32, 28, 28), (128, 32, 1, 1), (1, 128, 14, 14), "NCX OIX", S2),
    Family("conv_bwd 2d XIO", (1, 32, 28, 28), (1, 1, 32, 128), (1, 128, 14, 14), "NCX XIO", S2),
    Family("conv_bwd 2d NXC", (1, 28, 28, 32), (128, 32, 1, 1), (1, 14, 14, 128), "NXC OIX", S2),
    Family("depthwise", (2, 64, 112, 112), (64, 1, 3, 3), (2, 64, 56, 56), "NCX OIX", S2 | begin_end(1, 0) | G64),
    Family("depthwise x8", (1, 300, 300, 3), (7, 7, 1, 24), (1, 150, 150, 24), "NXC XIO", S2 | UPPER | {"groups": 3}),
    Family("resnet stem", (2, 3, 224, 224), (64, 3, 7, 7), (2, 64, 112, 112), "NCX OIX", S2 | begin_end(3, 2)),
    Family("resnext", (1, 2048, 14, 14), (2048, 64, 3, 3), (1, 2048, 14, 14), "NCX OIX", P1 | {"groups": 32}),
    Family("1x1, 50 images", (50, 64, 56, 56), (64, 64, 1, 1), (50, 64, 56, 56), "NCX OIX"),
    *(family_5(axes, channels) for axes in (1, 2, 3) for channels in (16, 20)),
    *(
        family_224(f"{data} {weights}", groups, axes)
        for data in ("NCX", "NXC")
        for weights in ("OIX", "XIO", "IOX", "XOI")
        for groups in (1, 2, 4)
        for axes in (2, 3)
    ),
    Family("ConvtransposeFp32", (8, 3, 222, 222), (3, 16, 3, 3), (8, 16, 224, 224), "NCX IOX"),
    Family("BackwardData NCX IOX", (1, 1, 2, 2), (1, 1, 3, 3), (1, 1, 4, 4), "NCX IOX"),
    Family("BackwardData NCX IOX, 6 channels", (1, 1, 2, 2), (1, 6, 3, 3), (1, 6, 4, 4), "NCX IOX"),
    Family("BackwardData NCX IOX 3-D", (1, 1, 1, 2, 2), (1, 1, 1, 3, 3), (1, 1, 1, 4, 4), "NCX IOX"),
    Family("BackwardData NCX XOI", (1, 1, 2, 2), (3, 3, 1, 1), (1, 1, 4, 4), "NCX XOI"),
    Family("BackwardData NCX XOI 3-D", (1, 1, 1, 2, 2), (1, 3, 3, 1, 1), (1, 1, 1, 4, 4), "NCX XOI"),
    Family("BackwardData NCX XOI 3-D, 2 channels", (1, 1, 1, 2, 2), (1, 3, 3, 2, 1), (1, 2, 1, 4, 4), "NCX XOI"),
    Family("BackwardData NXC XOI", (1, 1, 1, 1), (3, 4, 1, 1), (1, 3, 4, 1), "NXC XOI"),
    Family("BackwardData NXC XOI, 2 channels", (1, 1, 1, 1), (3, 4, 2, 1), (1, 3, 4, 2), "NXC XOI"),
    Family("BackwardData NXC XOI 3-D", (1, 1, 1, 1, 1), (1, 3, 4, 1, 1), (1, 1, 3, 4, 1), "NXC XOI"),
    Family("BackwardData NXC IOX", (1, 2, 2, 1), (1, 1, 3, 3), (1, 4, 4, 1), "NXC IOX"),
    Family("BackwardData NXC IOX, 2 channels", (1, 2, 2, 1), (1, 2, 3, 3), (1, 4, 4, 2), "NXC IOX"),
    Family("BackwardData NXC IOX 3-D", (1, 1, 2, 2, 1), (1, 1, 1, 3, 3), (1, 1, 4, 4, 1), "NXC IOX"),
    Family("BackwardWeights NCX IOX, 2 channels", (1, 1, 2, 2), (1, 2, 3, 3), (1, 2, 4, 4), "NCX IOX"),
    Family("BackwardWeights NXC XOI", (1, 2, 2, 1), (3, 3, 1, 1), (1, 4, 4, 1), "NXC XOI"),
    Family("BackwardWeights NXC XOI 3-D", (1, 1, 2, 2, 1), (1, 3, 3, 1, 1), (1, 1, 4, 4, 1), "NXC XOI"),
    Family("BackwardWeights NXC XOI 3-D, 2 channels", (1, 1, 2, 2, 1), (1, 3, 3, 2, 1), (1, 1, 4, 4, 2), "NXC XOI"),
    Family("transposed FiltersAnyLayout g2", (2, 4, 2), (4, 2, 3), (2, 4, 2), "NCX IOX", P1 | G2),
    Family("227 by 4", (256, 96, 55, 55), (96, 3, 11, 11), (256, 3, 227, 227), "NCX IOX", S4),
    Family("13 g2", (256, 256, 13, 13), (256, 192, 3, 3), (256, 384, 13, 13), "NCX IOX", P1 | G2),
    Family("deconv", (1, 32, 28, 28), (32, 128, 3, 3), (1, 128, 16, 16), "NCX IOX", SHORT),
    Family("deconv XOI", (1, 32, 28, 28), (3, 3, 128, 32), (1, 128, 16, 16), "NCX XOI", SHORT),
    Family("deconv NXC", (1, 28, 28, 32), (32, 128, 3, 3), (1, 16, 16, 128), "NXC IOX", SHORT),
    Family("deconv, same_upper", (1, 32, 28, 28), (32, 128, 3, 3), (1, 128, 56, 56), "NCX IOX", SHORT | UPPER),
    Family("deconv, same_lower", (1, 32, 28, 28), (32, 128, 3, 3), (1, 128, 56, 56), "NCX IOX", SHORT | LOWER),
    Family("deconv, valid", (1, 32, 28, 28), (32, 128, 3, 3), (1, 128, 57, 57), "NCX IOX", SHORT | VALID),
    Family("deconv, op 1", (1, 32, 28, 28), (32, 128, 3, 3), (1, 128, 17, 17), "NCX IOX", SHORT | OP1),
    Family("17 channels", (2, 17, 5, 5), (17, 16, 3, 3), (2, 16, 5, 5), "NCX IOX", P1),
    Family("depthwise deconv", (2, 16, 5, 5), (16, 1, 3, 3), (2, 16, 5, 5), "NCX IOX", P1 | {"groups": 16}),
    Family("deconv g4", (2, 16, 5, 5), (16, 4, 3, 3), (2, 16, 5, 5), "NCX IOX", P1 | G4),
    Family("deconv 1x1", (2, 16, 5, 5), (16, 16, 1, 1), (2, 16, 5, 5), "NCX IOX"),
)  # fmt: skip


@pytest.mark.parametrize("family", FAMILY_TABLE, ids=lambda f: f.id)
def test_shapes(family: Family) -> None:
    data_format, weights_format = family.formats.split()
    attributes = strict(family.options, len(family.src) - 2)
    attributes |= {"data_format": data_format, "weights_format": weights_format}
    shapes = {"src": family.src, "dst": family.dst, "weights": family.weights}
    check_family(family.transposed, shapes, attributes, None)


BIAS_TABLE = (
    ("BiasAdd", ((1, 128, 32, 32), (128,)), "NCX", (1, 128, 32, 32)),
    ("BiasAdd", ((1, 3, 224, 224), (224,)), "NXC", (1, 3, 224, 224)),
    ("BiasAdd", ((16, 1024), (1024,)), "NCX", (16, 1024)),
    ("BiasAddBackward", ((3, 64, 64, 16),), "NXC", (16,)),
    ("BiasAddBackward", ((3, 16, 64, 64),), "NCX", (16,)),
    ("BiasAddBackward", ((2, 16, 5),), "NCX", (16,)),
    ("BiasAddBackprop-1", ((1, 128, 32, 32),), "NCX", (128,)),
)


@pytest.mark.parametrize(("operator", "shapes", "data_format", "expected"), BIAS_TABLE)
def test_bias_shapes(operator: str, shapes: tuple[Shape, ...], data_format: str, expected: Shape) -> None:
    assert convgrad.infer_shapes(operator, *shapes, data_format=data_format) == expected


# -- what oneDNN accepts unvalidated, or refuses -----------------------------------------------------------------------


class Refused(NamedTuple):
    """A call that must be refused, by a rule whose id the message carries."""

    id: str
    operator: str
    formats: str
    shapes: tuple[Shape, ...]
    options: dict[str, Any]
    rule: str


ERRORS: dict[str, type[ConvgradError]] = {"A": InvalidAttributeError, "A6": InvalidShapeError}
ERRORS |= {"G": InvalidShapeError, "O": InvalidOpError}

FORWARD, DATA, BACK = FAMILIES[False]
FORWARD_UP, DATA_UP, BACK_UP = FAMILIES[True]
SMALL, SMALL_WEIGHTS, SMALL_DST, SMALL_UP = (1, 4, 8, 8), (4, 4, 3, 3), (1, 4, 6, 6), (1, 4, 10, 10)
LEGAL: dict[str, tuple[str, tuple[Shape, ...]]] = {
    FORWARD: ("NCX OIX", (SMALL, SMALL_WEIGHTS)),
    DATA: ("NCX OIX", (SMALL_DST, SMALL_WEIGHTS, SMALL)),
    BACK: ("NCX OIX", (SMALL, SMALL_DST, SMALL_WEIGHTS)),
    FORWARD_UP: ("NCX IOX", (SMALL, SMALL_WEIGHTS)),
    DATA_UP: ("NCX IOX", (SMALL_UP, SMALL_WEIGHTS)),
    BACK_UP: ("NCX IOX", (SMALL, SMALL_UP, SMALL_WEIGHTS)),
}
MEANINGLESS = (4, 4, 1, 1)
OP3 = {"output_padding": 3}


def refused_452(data: str, weights: str, groups: int) -> Refused:
    """Return what oneDNN takes as the 452 of 224 by output_padding 3, stride 2: a forward of 452 has 225."""
    shapes = shape_in((1, 16, 224, 224), data), shape_in((16, 32 // groups, 3, 3), weights)
    id_, options = f"dst_shape 452 from 224, {data} {weights} g{groups}", BY_2 | OP3 | {"groups": groups}
    return Refused(id_, DATA, f"{data} {weights}", (*shapes, shape_in((1, 32, 452, 452), data)), options, "G6")


def of_the_six(what: str, options: dict[str, Any], rule: str) -> list[Refused]:
    """Refuse an otherwise legal call of all six operators for these options."""
    return [Refused(f"{name}: {what}", name, *legal, options, rule) for name, legal in LEGAL.items()]


def of_formats(names: tuple[str, ...], *weights: str) -> list[Refused]:
    """Refuse weights formats of the other family."""
    return [Refused(f"{n} with {w}", n, f"NCX {w}", LEGAL[n][1], {}, "A5") for n in names for w in weights]


REFUSED = (
    *(refused_452(d, w, g) for d in ("NCX", "NXC") for w in ("OIX", "XIO") for g in (1, 2, 4)),
    Refused("output_padding 3, stride 2", DATA, "NCX OIX", ((1, 16, 224, 224), (16, 32, 3, 3)), BY_2 | OP3, "A9"),
    Refused("no dst_shape, stride 2", DATA, "NCX OIX", ((1, 128, 14, 14), (128, 32, 1, 1)), S2, "A8"),
    Refused("no weights_shape", BACK, "NCX OIX", ((2, 4, 2), (2, 4, 2)), P1 | G2, "A7"),
    Refused("no weights_shape, transposed", BACK_UP, "NCX IOX", ((2, 4, 2), (2, 4, 2)), P1 | G2, "A7"),
    *(
        Refused(f"4x4x1x1, {op} {extents}", op, formats, ((1, 1, *a), (1, 1, *b), MEANINGLESS), options, "G4")
        for op, formats, flip in ((BACK, "NCX OIX", 1), (BACK_UP, "NCX IOX", -1))
        for extents, options in (
            ((16, 10), D2_VALID), ((6, 6), begin_end(1, 2)), ((6, 6), UPPER), ((6, 6), LOWER), ((6, 3), VALID)
        )
        for a, b in [[(e, e) for e in extents[::flip]]]
    ),
    Refused("kernel 1", BACK, "NCX OIX", ((1, 1, 16), (1, 1, 10), (1, 1, 1)), D2_VALID, "G6"),
    Refused("kernel 1, transposed", BACK_UP, "NCX IOX", ((1, 1, 10), (1, 1, 16), (1, 1, 1)), D2_VALID, "G7"),
    Refused("(32, 16) as IOX", FORWARD_UP, "NCX IOX", ((1, 16, 111, 111), (32, 16, 3, 3)), BY_2, "G4"),
    Refused("(32 / 4, 16) as IOX", FORWARD_UP, "NCX IOX", ((1, 16, 111, 111), (8, 16, 3, 3)), BY_2 | G4, "G4"),
    Refused("(192, 256) as IOX", DATA_UP, "NCX IOX", ((256, 384, 13, 13), (192, 256, 3, 3)), P1 | G2, "G4"),
    *of_formats(FAMILIES[True], "OIX", "XIO"),
    *of_formats(FAMILIES[False], "IOX", "XOI"),
    *of_the_six("pads_begin -1", begin_end(-1, 0), "A4"),
    *of_the_six("pads_end -1", begin_end(0, -1), "A4"),
    *of_the_six("stride 0", {"strides": 0}, "A4"),
    *of_the_six("dilation 0", {"dilations": 0}, "A4"),
    *of_the_six("groups 0", {"groups": 0}, "A4"),
    *of_the_six("one stride", {"strides": [1]}, "A6"),
    *of_the_six("three dilations", {"dilations": [1, 1, 1]}, "A6"),
    *of_the_six("one pad under same", UPPER | {"pads_end": [1]}, "A6"),
    *of_the_six("data_format NHWC", {"data_format": "NHWC"}, "A5"),
    *of_the_six("auto_pad SAME", {"auto_pad": "SAME"}, "A5"),
    *of_the_six("auto_pad False", {"auto_pad": False}, "A2"),
    *of_the_six("no strides", {"strides": None}, "A3"),
    *of_the_six("a foreign attribute", {"alpha": 1}, "A1"),
    *(Refused(f"{n}: four operands", n, f, (*s[:2], *[SMALL] * 2), {}, "O2") for n, (f, s) in LEGAL.items()),
    Refused("three operands of two", DATA_UP, "NCX IOX", (*LEGAL[DATA_UP][1], SMALL), {}, "O2"),
    Refused("channels 4 and 3", FORWARD, "NCX OIX", (SMALL, (4, 3, 3, 3)), {}, "G4"),
    Refused("ic 0", FORWARD, "NCX OIX", ((1, 0, 8, 8), (4, 0, 3, 3)), {}, "G5"),
    Refused("oc 0", FORWARD, "NCX OIX", (SMALL, (0, 4, 3, 3)), {}, "G5"),
    Refused("kh 0", FORWARD, "NCX OIX", (SMALL, (4, 4, 0, 3)), {}, "G5"),
    Refused("ic -4", FORWARD, "NCX OIX", ((1, -4, 8, 8), (4, -4, 3, 3)), {}, "G9"),
    Refused("mb -1", FORWARD, "NCX OIX", ((-1, 4, 8, 8), (4, 4, 3, 3)), {}, "G9"),
    Refused("kernel beyond the padded input", FORWARD, "NCX OIX", ((1, 1, 1), (1, 1, 2)), S2, "G8"),
    Refused("bias of 224 in NCX", "BiasAdd", "NCX", ((1, 3, 224, 224), (224,)), {}, "G11"),
)  # fmt: skip


def named_formats(formats: str) -> dict[str, str]:
    return dict(zip(("data_format", "weights_format"), formats.split(), strict=False))


@pytest.mark.parametrize("case", REFUSED, ids=lambda c: c.id)
def test_refused(case: Refused) -> None:
    convolves = "Bias" not in case.operator
    options = strict(case.options, len(case.shapes[0]) - 2) if convolves else case.options
    error = ERRORS.get(case.rule) or ERRORS[case.rule[0]]
    with pytest.raises(error, match=rf"\[{case.rule}\]$"):
        convgrad.infer_shapes(case.operator, *case.shapes, **named_formats(case.formats) | options)


@pytest.mark.parametrize("name", LEGAL)
def test_what_the_six_are_refused_for_is_all_that_is_wrong(name: str) -> None:
    formats, shapes = LEGAL[name]
    convgrad.infer_shapes(name, *shapes, **strict({}, 2), **named_formats(formats))
