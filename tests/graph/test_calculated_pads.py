"""Graphs whose pads are calculated, and written as the pads of current kinds, as oneDNN calculates them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from convgrad import ConvgradError, run
from convgrad.graph import Graph, LogicalTensor, Op, from_json, to_json
from convgrad.spec.geometry import convolution_pad_total, effective_kernel, forward_extent
from tests.support.helpers import assert_same_bits

DATA, FILTERS, WEIGHTS = "ConvolutionBackpropData", "ConvolutionBackpropFilters", "ConvolutionBackpropWeights"
SHAPES = {"src": (1, 6, 1), "dst": (1, 3, 1), "weights": (3, 1, 1)}
TENSORS = {DATA: ("dst", "weights", "src"), FILTERS: ("src", "dst", "weights"), WEIGHTS: ("src", "dst", "weights")}
LAYERS: list[dict[str, Any]] = [
    {},
    {"pads_begin": []},
    {"pads_end": [2]},
    {"auto_pad": "same_upper"},
    {"auto_pad": "SAME_LOWER"},
    {"auto_pad": "valid"},
    {"pads_begin": [0], "pads_end": [1]},
]
CALLS = [
    *((kind, {"strides": [s], "dilations": [1], **layer}, 6) for kind, s, layer in product(TENSORS, (1, 2, 3), LAYERS)),
    *(
        (DATA, {"strides": [2], "dilations": [1], "auto_pad": auto_pad, "output_padding": [op]}, extent)
        for auto_pad, op, extent in product(("SAME_UPPER", "same_lower"), (0, 1), (4, 5, 6, 7))
    ),
]


def graph_of(kind: str, layer: dict[str, Any], extent: int, known: bool = True) -> Graph:
    """Return a graph of one op. If not ``known``, neither the extents of its output nor an attribute has its shape."""
    shapes = SHAPES | {"src": (1, extent, 1)}
    first, second, made = TENSORS[kind]
    inputs = (LogicalTensor(0, "f32", shapes[first] if known else None), LogicalTensor(1, "f32", shapes[second]))
    graph = Graph([Op(7, kind, inputs, (LogicalTensor(2, "f32", shapes[made] if known else None),), layer)])
    graph.finalize()
    return graph


def arrays_of(kind: str, extent: int) -> list[Any]:
    shapes = SHAPES | {"src": (1, extent, 1)}
    return [np.arange(1, 1 + np.prod(shapes[one]), dtype=np.float32).reshape(shapes[one]) for one in TENSORS[kind][:2]]


def legal() -> Iterator[tuple[str, dict[str, Any], int]]:
    for kind, layer, extent in CALLS:
        try:
            graph_of(kind, layer, extent)
        except ConvgradError:
            continue
        yield kind, layer, extent


@pytest.mark.filterwarnings("ignore:.*output_padding:UserWarning")
def test_a_graph_and_its_file_have_the_calculated_pads() -> None:
    calls = list(legal())
    assert len(calls) > 40
    for kind, layer, extent in calls:
        given = arrays_of(kind, extent)
        shape = SHAPES["weights"] if kind != DATA else (1, extent, 1)
        expected = run(f"{kind}-1", *given, shape, **layer)
        graph = graph_of(kind, layer, extent)
        written = to_json(graph)
        again = from_json(written)
        assert again.ops[0].kind.startswith("ConvolutionBackward")
        assert len(again.ops[0].attributes["pads_begin"]) == 1
        assert to_json(again) == written
        for one in (graph, again):
            made = one.run(dict(enumerate(given))).results[2]
            assert_same_bits(made, expected, f"{kind} {layer} {extent}")


def test_a_file_keeps_the_older_kind_of_pads_that_are_not_known() -> None:
    """The current kind ignores output_padding. Other calculated pads are 0 wherever the current kinds accept a call."""
    for kind, layer, _ in CALLS:
        if layer["strides"] == [1] and kind == DATA and not layer.keys() & {"auto_pad"}:
            continue  # the extents are known without a shape
        graph = graph_of(kind, layer, 6, known=False)
        auto_pad = str(layer.get("auto_pad", "none")).lower()
        keeps = auto_pad.startswith("same") and layer.get("output_padding") == [1]
        written = to_json(graph)
        entry = json.loads(written)["graph"][0]
        assert (entry["kind"] == kind) == keeps, (kind, layer)
        assert to_json(from_json(written)) == written


def test_the_words_of_a_refusal_name_the_older_op() -> None:
    with pytest.raises(
        ConvgradError, match=r"ConvolutionBackpropData-1: .* legal extents: 7, 8, or fewer with larger pads"
    ):
        graph_of(DATA, {"strides": [2], "dilations": [1]}, 9)


@pytest.mark.parametrize(
    "kind", ["ConvTransposeBackwardData", "ConvTransposeBackwardWeights", "ConvTransposeBackpropData"]
)
@pytest.mark.parametrize("auto_pad", ["none", "same_upper", "same_lower", "valid"])
def test_transposed_gradients_are_written_as_onednn_reads_them(kind: str, auto_pad: str) -> None:
    """oneDNN calculates their pads from the extents of diff_dst, and has no output_padding for them."""
    for stride, kernel, dilation, op in product((1, 2, 3), (1, 3), (1, 2), (None, 0, 1, 2)):
        layer: dict[str, Any] = {"strides": [stride], "dilations": [dilation], "auto_pad": auto_pad}
        if op is not None:
            layer["output_padding"] = [op]
        weights, small = (kernel, 1, 1), np.ones((1, 4, 1), np.float32)
        try:
            large = run("ConvTranspose", small, np.ones(weights, np.float32), **layer)
        except ConvgradError:
            continue  # no such output_padding
        operands = (small, large) if kind.endswith("Weights") else (large, np.ones(weights, np.float32))
        shape = {"weights_shape": weights} if kind.endswith("Weights") else {}
        inputs = tuple(LogicalTensor(n, "f32", operand.shape) for n, operand in enumerate(operands))
        graph = Graph([Op(0, kind, inputs, (LogicalTensor(2, "f32"),), layer | shape)])
        graph.finalize()
        written = to_json(graph)
        again = from_json(written)
        assert to_json(again) == written
        given = dict(enumerate(operands))
        assert_same_bits(again.run(given).results[2], graph.run(given).results[2], str(layer))
        attributes = {name: entry["value"] for name, entry in json.loads(written)["graph"][0]["attrs"].items()}
        if op is not None and op >= stride:
            continue  # oneDNN cannot express such a layer
        assert "output_padding" not in attributes
        effective, extent = effective_kernel(kernel, dilation), large.shape[1]
        pads = sum(attributes["pads_begin"] + attributes["pads_end"])
        if attributes["auto_pad"].startswith("SAME"):
            pads = convolution_pad_total(extent, effective, stride)
        assert forward_extent(extent, effective, stride, pads) == small.shape[1], layer
