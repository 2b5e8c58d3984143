"""The numbers, extents, pads and shapes that oneDNN's own graph tests state, in every name, layout, rank and type."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest

import convgrad
from convgrad.formats import FORMATS
from convgrad.functional.call import prepare
from convgrad.spec.operators import find
from tests.support.hard_cases import OPERATORS, Array, Shape, laid_out
from tests.support.tiers import tiers


def layouts(operator: str) -> Iterator[dict[str, str]]:
    """Yield all choices of data and weights layout an operator has, by its own attribute names."""
    attribute = find(operator).attribute("weights_format")
    for data_format in ("NCX", "NXC"):
        for choice in attribute.choices if attribute else ("",):
            yield {"data_format": data_format} | ({attribute.name: choice} if attribute else {})


# -- values ------------------------------------------------------------------------------------------------------------


def layout_of(kind: str, formats: dict[str, str]) -> str:
    choices = {"data": formats["data_format"], "weights": list(formats.values())[-1], "vector": ""}
    return choices[kind.removesuffix(" shape")]


def arguments(operands: list[tuple[str, Array]], formats: dict[str, str]) -> Iterator[Array]:
    """Lay operands out; a shape operand becomes an integer array."""
    for kind, array in operands:
        moved = laid_out(array, layout_of(kind, formats))
        yield np.array(moved.shape, np.int32) if kind.endswith("shape") else moved


CONV = ("Convolution", "Convolution-1")
CONV_DATA = ("ConvolutionBackwardData", "ConvolutionBackpropData-1")
CONV_WEIGHTS = ("ConvolutionBackwardWeights", "ConvolutionBackpropWeights-1", "ConvolutionBackpropFilters-1")
UP_CONV = ("ConvTranspose", "ConvTranspose-1")
UP_DATA = ("ConvTransposeBackwardData", "ConvTransposeBackpropData-1")
UP_WEIGHTS = ("ConvTransposeBackwardWeights", "ConvTransposeBackpropFilters-1")


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


@tiers("case", CASES, every=46)
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


# -- one axis: extents, pads, remainders -------------------------------------------------------------------------------

UPPER, LOWER, VALID = ({"auto_pad": a} for a in ("same_upper", "same_lower", "valid"))
S2, S3, S4, D2 = {"strides": 2}, {"strides": 3}, {"strides": 4}, {"dilations": 2}
G2, G4, G64 = ({"groups": g} for g in (2, 4, 64))


def begin_end(begin: int, end: int) -> dict[str, int]:
    return {"pads_begin": begin, "pads_end": end}


P1, IGNORED, SHORT, OP1 = begin_end(1, 1), begin_end(1, 2), S2 | begin_end(0, 41), {"output_padding": 1}


def strict(options: Mapping[str, Any], axes: int) -> dict[str, Any]:
    """Spell options as ``run`` wants them: lists, strides and dilations given."""
    spread = {n: [v] * axes if isinstance(v, int) and n != "groups" else v for n, v in options.items()}
    return {"strides": [1] * axes, "dilations": [1] * axes} | spread


def shape_in(shape: Shape, layout: str) -> Shape:
    return laid_out(np.broadcast_to(0, shape), layout).shape


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
    Extents(28, 1, S2 | UPPER, 14, (0, 0)),
    Extents(28, 1, S2 | LOWER, 14, (0, 0)),
    Extents(28, 1, S2 | VALID, 14, (0, 0)),
    Extents(300, 7, S2 | UPPER, 150, (2, 3)),
    Extents(300, 7, S2 | LOWER, 150, (3, 2)),
    Extents(224, 4, S2 | VALID, 111, (0, 0)),
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
    Extents(28, 3, S2 | UPPER, 56, (0, 1), transposed=True),
    Extents(28, 3, S2 | LOWER, 56, (1, 0), transposed=True),
)


def check_family(
    transposed: bool, shapes: dict[str, Shape], attributes: dict[str, Any], pads: tuple[tuple[int, int], ...] | None
) -> None:
    """Infer each of src, dst, weights from the other two, and compare the pads resolved on the way."""
    for operator, found in zip(OPERATORS[transposed], ("dst", "src", "weights"), strict=True):
        given = [shape for tensor, shape in shapes.items() if tensor != found]
        if found == "weights" or (found == "src" and not transposed):
            given.append(shapes[found])
        assert convgrad.infer_shapes(operator, *given, **attributes) == shapes[found], operator
        operands = [np.broadcast_to(np.float32(0), shape) for shape in given[:2]]
        axes = prepare(operator, (*operands, *given[2:]), attributes).problem.geometry.axes
        assert pads is None or tuple((a.pad_begin, a.pad_end) for a in axes) == pads, operator


def shapes_of(case: Extents, axes: int, formats: dict[str, str]) -> dict[str, Shape]:
    """Return the shapes of src, dst, weights with this axis ``axes`` times, 2 and 3 channels."""
    src, dst = (2, 3) if case.transposed else (3, 2)
    data, weights = formats.values()
    return {
        "src": shape_in((2, src, *[case.src] * axes), data),
        "dst": shape_in((2, dst, *[case.dst] * axes), data),
        "weights": shape_in((2, 3, *[case.kernel] * axes), weights),
    }


@pytest.mark.every(4)
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("case", EXTENTS, ids=str)
def test_extents_and_pads(case: Extents, axes: int) -> None:
    for formats in layouts(OPERATORS[case.transposed][0]):
        attributes = strict(case.options, axes) | formats
        check_family(case.transposed, shapes_of(case, axes, formats), attributes, (case.pads,) * axes)


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


def family_224(formats: str, groups: int, axes: int) -> Family:
    """Return 224 to 111 with 32 and 16 channels, or, transposed, 111 to 224 with 16 and 32."""
    data, weights = formats.split()
    large, small = (shape_in((1, c, *[e] * axes), data) for c, e in ((32, 224), (16, 111)))
    kernel = shape_in((16, 32 // groups, *[3] * axes), weights)
    id_, options = f"224 and 111, {formats} {axes}-D g{groups}", S2 | VALID | {"groups": groups}
    if weights in ("XOI", "IOX"):
        return Family(id_, small, kernel, large, formats, options | OP1)
    return Family(id_, large, kernel, small, formats, options)


def family_5(axes: int, dst_channels: int) -> Family:
    src, dst = ((2, channels, *[5] * axes) for channels in (16, dst_channels))
    return Family(f"{axes}-D 16x{dst_channels} g4", src, (dst_channels, 4, *[3] * axes), dst, "NCX OIX", P1 | G4)


def family_4(formats: str, axes: int, channels: int) -> Family:
    """Return 2 to 4 with one source channel, transposed; in 3-D with an axis of one position."""
    data, weights = formats.split()
    small, large = (shape_in((1, c, *(1, e, e)[-axes:]), data) for c, e in ((1, 2), (channels, 4)))
    kernel = shape_in((1, channels, *(1, 3, 3)[-axes:]), weights)
    return Family(f"2 to 4, {formats} {axes}-D, {channels} channels", small, kernel, large, formats)


FAMILY_TABLE = (
    Family("ConvolutionBackwardDataFp32", (8, 3, 224, 224), (16, 3, 3, 3), (8, 16, 222, 222), "NCX OIX"),
    Family("FiltersAnyLayout g2", (2, 4, 2), (4, 2, 3), (2, 4, 2), "NCX OIX", P1 | G2),
    Family("NXC, dilations 2, valid", (1, 100, 100, 160), (7, 1, 160, 192), (1, 88, 100, 192), "NXC XIO", D2 | VALID),
    Family("NXC, dilations 2, same", (1, 100, 100, 160), (7, 1, 160, 192), (1, 100, 100, 192), "NXC XIO", D2 | UPPER),
    Family("weights 4x4 from 224", (1, 3, 224, 224), (4, 4, 3, 16), (1, 16, 111, 111), "NCX XIO", S2 | VALID | IGNORED),
    Family("conv_2d", (2, 32, 28, 28), (128, 32, 2, 2), (2, 128, 14, 14), "NCX OIX", S2),
    Family("conv_3d", (1, 3, 116, 132, 132), (32, 3, 3, 3, 3), (1, 32, 114, 130, 130), "NCX OIX"),
    Family("conv_bwd 2d", (1, 32, 28, 28), (128, 32, 1, 1), (1, 128, 14, 14), "NCX OIX", S2),
    Family("depthwise", (2, 64, 112, 112), (64, 1, 3, 3), (2, 64, 56, 56), "NCX OIX", S2 | begin_end(1, 0) | G64),
    Family("depthwise x8", (1, 300, 300, 3), (7, 7, 1, 24), (1, 150, 150, 24), "NXC XIO", S2 | UPPER | {"groups": 3}),
    Family("resnet stem", (2, 3, 224, 224), (64, 3, 7, 7), (2, 64, 112, 112), "NCX OIX", S2 | begin_end(3, 2)),
    Family("resnext", (1, 2048, 14, 14), (2048, 64, 3, 3), (1, 2048, 14, 14), "NCX OIX", P1 | {"groups": 32}),
    *(family_5(axes, channels) for axes in (1, 2, 3) for channels in (16, 20)),
    *(
        family_224(f"{data} {weights}", groups, axes)
        for data in ("NCX", "NXC")
        for weights in ("OIX", "XIO", "IOX", "XOI")
        for groups in (1, 2, 4)
        for axes in (2, 3)
    ),
    Family("ConvtransposeFp32", (8, 3, 222, 222), (3, 16, 3, 3), (8, 16, 224, 224), "NCX IOX"),
    *(
        family_4(f"{data} {weights}", axes, channels)
        for data, weights, axes, channels in product(("NCX", "NXC"), ("IOX", "XOI"), (2, 3), (1, 2, 6))
    ),
    Family("227 by 4", (256, 96, 55, 55), (96, 3, 11, 11), (256, 3, 227, 227), "NCX IOX", S4),
    Family("deconv", (1, 32, 28, 28), (32, 128, 3, 3), (1, 128, 16, 16), "NCX IOX", SHORT),
    Family("deconv, valid", (1, 32, 28, 28), (32, 128, 3, 3), (1, 128, 57, 57), "NCX IOX", SHORT | VALID),
    Family("deconv, op 1", (1, 32, 28, 28), (32, 128, 3, 3), (1, 128, 17, 17), "NCX IOX", SHORT | OP1),
)  # fmt: skip


@pytest.mark.every(2)
@pytest.mark.parametrize("family", FAMILY_TABLE, ids=lambda f: f.id)
def test_shapes(family: Family) -> None:
    data_format, weights_format = family.formats.split()
    attributes = strict(family.options, len(family.src) - 2)
    attributes |= {"data_format": data_format, "weights_format": weights_format}
    shapes = {"src": family.src, "dst": family.dst, "weights": family.weights}
    check_family(family.transposed, shapes, attributes, None)
