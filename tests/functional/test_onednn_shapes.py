"""The extents, pads and shapes that oneDNN's own graph tests state, in every name, layout and rank."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest

import convgrad
from convgrad.functional.call import prepare
from tests.functional.onednn_helpers import (
    BY_2,
    D2,
    FAMILIES,
    G2,
    G4,
    G64,
    IGNORED,
    LOWER,
    P1,
    S2,
    S3,
    S4,
    UPPER,
    VALID,
    Shape,
    begin_end,
    layouts,
    shape_in,
    strict,
)

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
