"""What the tests on oneDNN's numbers and shapes share: names of operators, layouts, and attributes, spelt briefly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from convgrad.spec.operators import find

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


CONV = ("Convolution", "Convolution-1")
CONV_DATA = ("ConvolutionBackwardData", "ConvolutionBackpropData-1")
CONV_WEIGHTS = ("ConvolutionBackwardWeights", "ConvolutionBackpropWeights-1", "ConvolutionBackpropFilters-1")
UP_CONV = ("ConvTranspose", "ConvTranspose-1")
UP_DATA = ("ConvTransposeBackwardData", "ConvTransposeBackpropData-1")
UP_WEIGHTS = ("ConvTransposeBackwardWeights", "ConvTransposeBackpropFilters-1")


UPPER, LOWER, VALID = ({"auto_pad": a} for a in ("same_upper", "same_lower", "valid"))
S2, S3, S4, D2 = {"strides": 2}, {"strides": 3}, {"strides": 4}, {"dilations": 2}


def begin_end(begin: int, end: int) -> dict[str, int]:
    return {"pads_begin": begin, "pads_end": end}


FAMILIES = {False: (CONV[0], CONV_DATA[0], CONV_WEIGHTS[0]), True: (UP_CONV[0], UP_DATA[0], UP_WEIGHTS[0])}


def strict(options: Mapping[str, Any], axes: int) -> dict[str, Any]:
    """Spell options as ``run`` wants them: lists, strides and dilations given."""
    spread = {n: [v] * axes if isinstance(v, int) and n != "groups" else v for n, v in options.items()}
    return {"strides": [1] * axes, "dilations": [1] * axes} | spread


def shape_in(shape: Shape, layout: str) -> Shape:
    return laid_out(np.broadcast_to(0, shape), layout).shape


P1, IGNORED = begin_end(1, 1), begin_end(1, 2)
G2, G4, G64 = ({"groups": g} for g in (2, 4, 64))
BY_2, D2_VALID = S2 | VALID, D2 | VALID


def named_formats(formats: str) -> dict[str, str]:
    return dict(zip(("data_format", "weights_format"), formats.split(), strict=False))
