"""Graphs bit for bit: what oneDNN's harness varies against the oracle; names, attributes, files against ``run``."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import GraphError
from convgrad.formats import FORMATS
from convgrad.graph import Execution, Graph, LogicalTensor, Op, from_json, read, to_json
from convgrad.graph.model import operator_of
from convgrad.spec.operators import OPERATORS, Operator, find
from convgrad.verify.exact import exact
from convgrad.verify.fill import fill
from tests.graph.ops import graph_of, integers, lt
from tests.support.graph_documents import assert_round_trip
from tests.support.helpers import assert_same_bits, operands_of, random_case
from tests.support.places import GRAPHS, SHARED_CASES
from tests.support.roles import LAYOUTS, Array
from tests.support.tiers import tiers

Shape = tuple[int, ...]
CONV, TRANSPOSE = "ConvolutionBackwardWeights", "ConvTransposeBackwardWeights"


@dataclass(frozen=True)
class Row:
    """A weight gradient: shapes of src, diff_dst and weights, what differs from plain NCX, the order in memory."""

    kind: str
    src: Shape
    dst: Shape
    weights: Shape
    more: dict[str, Any] = field(default_factory=dict)
    memory: str = ""  # physical order of the logical axes a, b, c ...

    def graph(self, dtype: str) -> Graph:
        axes = len(self.src) - 2
        attributes: dict[str, Any] = {"strides": [1] * axes, "dilations": [1] * axes, "data_format": "NCX"}
        attributes |= {"pads_begin": [0] * axes, "pads_end": [0] * axes, "weights_shape": list(self.weights)}
        attributes |= {"weights_format": "OIX" if self.kind == CONV else "IOX"} | self.more
        shapes = enumerate((self.src, self.dst, self.weights))
        src, dst, weights = (LogicalTensor(i, dtype, s, strides_of(s, self.memory)) for i, s in shapes)
        return graph_of(Op(0, self.kind, (src, dst), (weights,), attributes, "gradient"))


def strides_of(shape: Shape, memory: str) -> Shape | None:
    """Return the strides in elements of a shape whose axes lie in memory in this order."""
    if not memory:
        return None
    strides, step = [0] * len(shape), 1
    for letter in reversed(memory):
        strides["abcde".index(letter)] = step
        step *= shape["abcde".index(letter)]
    return tuple(strides)


def pads(axes: int, **more: Any) -> dict[str, Any]:
    return {"pads_begin": [1] * axes, "pads_end": [1] * axes} | more


S2 = {"strides": [2, 2]}
PLAIN = ((1, 32, 28, 28), (1, 128, 14, 14), (128, 32, 1, 1))
UP = {"strides": [2, 2], "pads_end": [41, 41]}
UP_SRC, UP_DST, UP_WEIGHTS = (1, 32, 28, 28), (1, 128, 16, 16), (32, 128, 3, 3)

ROWS = {
    "plain": Row(CONV, *PLAIN, S2),
    "same_upper": Row(CONV, *PLAIN, S2 | {"auto_pad": "SAME_UPPER"}),
    "same_lower": Row(CONV, *PLAIN, S2 | {"auto_pad": "SAME_LOWER"}),
    "valid": Row(CONV, *PLAIN, S2 | {"auto_pad": "VALID"}),
    "XIO": Row(CONV, *PLAIN[:2], (1, 1, 32, 128), S2 | {"weights_format": "XIO"}),
    "NXC": Row(CONV, (1, 28, 28, 32), (1, 14, 14, 128), PLAIN[2], S2 | {"data_format": "NXC"}),
    "3-D groups": Row(CONV, (2, 16, 5, 5, 5), (2, 16, 5, 5, 5), (16, 4, 3, 3, 3), pads(3, groups=4)),
    "3-D groups 20": Row(CONV, (2, 16, 5, 5, 5), (2, 20, 5, 5, 5), (20, 4, 3, 3, 3), pads(3, groups=4)),
    "2-D groups": Row(CONV, (2, 16, 5, 5), (2, 16, 5, 5), (16, 4, 3, 3), pads(2, groups=4)),
    "2-D groups 20": Row(CONV, (2, 16, 5, 5), (2, 20, 5, 5), (20, 4, 3, 3), pads(2, groups=4)),
    "1-D groups": Row(CONV, (2, 16, 5), (2, 16, 5), (16, 4, 3), pads(1, groups=4)),
    "1-D groups 20": Row(CONV, (2, 16, 5), (2, 20, 5), (20, 4, 3), pads(1, groups=4)),
    "channels last": Row(CONV, (1, 3, 8, 10, 9), (1, 32, 6, 8, 7), (32, 3, 3, 3, 3), memory="acdeb"),
    "channels last 2-D": Row(CONV, *PLAIN, S2, memory="acdb"),
    "transposed": Row(TRANSPOSE, UP_SRC, UP_DST, UP_WEIGHTS, UP),
    "transposed XOI": Row(TRANSPOSE, UP_SRC, UP_DST, (3, 3, 128, 32), UP | {"weights_format": "XOI"}),
    "transposed same_upper": Row(TRANSPOSE, UP_SRC, (1, 128, 56, 56), UP_WEIGHTS, UP | {"auto_pad": "SAME_UPPER"}),
    "transposed same_lower": Row(TRANSPOSE, UP_SRC, (1, 128, 56, 56), UP_WEIGHTS, UP | {"auto_pad": "SAME_LOWER"}),
    "transposed valid": Row(TRANSPOSE, UP_SRC, (1, 128, 57, 57), UP_WEIGHTS, UP | {"auto_pad": "VALID"}),
    "transposed NXC": Row(TRANSPOSE, (1, 28, 28, 32), (1, 16, 16, 128), UP_WEIGHTS, UP | {"data_format": "NXC"}),
}
LARGE = {
    "3-D large channels last": Row(
        CONV, (1, 3, 116, 132, 132), (1, 32, 114, 130, 130), (32, 3, 3, 3, 3), memory="acdeb"
    ),
    "1x1 large batch": Row(CONV, (50, 64, 56, 56), (50, 64, 56, 56), (64, 64, 1, 1)),
}


def in_memory(array: np.ndarray, tensor: LogicalTensor) -> np.ndarray:
    """Return a copy whose elements lie as the tensor is described."""
    assert tensor.strides is not None
    order = sorted(range(array.ndim), key=lambda axis: (-tensor.strides[axis], axis))
    return array.transpose(order).copy().transpose(np.argsort(order))


def assert_exact(graph: Graph, seed: int) -> None:
    """Assert that a graph of one op on integers gives the oracle's bits, and again once written and read back."""
    (op,) = graph.ops
    inputs = [graph.tensors[tensor.id] for tensor in op.inputs]
    made = fill(graph.inference.resolved[op.id].problem, [t.shape for t in inputs], "integers", seed)
    given = {t.id: in_memory(array, t) for t, array in zip(inputs, made, strict=True)}
    for tensor, array in zip(inputs, given.values(), strict=True):
        assert tuple(s // array.itemsize for s in array.strides) == tensor.strides
    output = graph.tensors[op.outputs[0].id]
    expected = exact(op.kind, *made, **op.attributes)
    for one in (graph, from_json(to_json(graph))):
        outcome = one.run(given)
        (result,) = outcome.results.values()
        assert outcome.skipped == {}
        assert result.dtype == FORMATS[output.dtype].dtype
        assert tuple(s // result.itemsize for s in result.strides) == output.strides
        assert_same_bits(result, expected, op)


@tiers("name, dtype", list(ROWS), ["f32", "bf16", "f16"], every=19)
def test_variations_of_the_harness(name: str, dtype: str) -> None:
    assert_exact(ROWS[name].graph(dtype), 1)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("row", LARGE.values(), ids=LARGE)
def test_large_variations_of_the_harness(row: Row) -> None:
    assert_exact(row.graph("f32"), 2)


RECORDED = {"conv_bwd_w_2d.json": (CONV, *PLAIN), "deconv_bwd_w.json": (TRANSPOSE, UP_SRC, UP_DST, UP_WEIGHTS)}


@pytest.mark.parametrize("name", RECORDED)
def test_files_of_the_harness(name: str) -> None:
    if not (SHARED_CASES / name).is_file():
        pytest.skip(f"{name} of oneDNN's benchdnn inputs is not at hand")
    graph = read(SHARED_CASES / name)
    (op,) = graph.ops
    assert (op.kind, *(graph.tensors[i].shape for i in range(3))) == RECORDED[name]
    (partition,) = graph.partitions()
    assert partition.is_supported
    assert_round_trip(graph)
    for threads in (1, 2, 3, 5, 8):
        with convgrad.threads(threads):
            assert_exact(graph, 3)


# -- every generation, and the files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("row", OPERATORS, ids=lambda row: f"{row.name} {row.generations[0]}")
@tiers("seeds", [range(2)], long=[range(2, 6), range(6, 18)], ids=["few", "some", "many"])
def test_every_operator_of_every_generation_runs(seeds: range, row: Operator) -> None:
    """By either name, with known and unknown output dims, and written in the current generation."""
    rng = np.random.default_rng(3)
    for seed in seeds:
        dtype = ("f32", "bf16", "f16")[seed % 3]
        case = replace(random_case(rng, row), format=FORMATS[dtype], dtype=None)
        operands = operands_of(case, "integers", seed)
        expected = convgrad.run(row.name, *operands, **case.attributes)
        inputs = tuple(
            LogicalTensor(i, "s32", (len(s),)) if port.is_shape else LogicalTensor(i, dtype, s)
            for i, (port, s) in enumerate(zip(row.operands, case.shapes, strict=False))
        )
        for kind, dims in ((row.name, None), (row.name.removesuffix("-1"), expected.shape)):
            graph = graph_of(Op(seed, kind, inputs, (LogicalTensor(9, dtype, dims),), case.attributes))
            again = from_json(to_json(graph))
            assert "G3" in find(again.ops[0].kind).generations
            for one in (graph, again):
                assert_same_bits(one.run(dict(enumerate(operands))).results[9], expected, case)


@pytest.mark.parametrize("name", sorted(path.name for path in GRAPHS.glob("*.json")))
def test_example_files_give_the_functions_results(name: str) -> None:
    """Every op that runs equals ``convgrad.run`` by its versioned name with the file's own attributes."""
    graph = read(GRAPHS / name)
    outside = [tensor.id for op in graph.ops if operator_of(op) is None for tensor in op.outputs]
    shape = np.array([3, 3, 2, 3] if name.startswith("g0") else [4, 3, 3, 3], np.int32)
    given: dict[Any, Any] = {}
    for tensor in (graph.tensors[i] for i in (*graph.inputs, *outside)):
        values = np.random.default_rng(tensor.id).integers(-2, 3, tensor.shape)
        given[tensor.id] = values.astype(tensor.format.dtype) if tensor.format else shape
    values, ran = dict(given), []
    relus = {op.outputs[0].id: op.inputs[0].id for op in graph.ops if op.kind == "ReLU"}

    def value(number: int) -> Array:
        return np.maximum(value(relus[number]), 0) if number in relus else values[number]

    def observe(execution: Execution) -> None:
        op, (output,) = execution.op, execution.op.outputs
        versioned = next(row.name for row in OPERATORS if row.name.removesuffix("-1") == op.kind)
        attributes = dict(op.attributes)
        if "negative_pads_end" in name:
            assert attributes["pads_end"] == [-1, -1]
            attributes["pads_end"] = [0, 0]
        for absent in [key for key, zeros in attributes.items() if zeros == [0] * 12]:
            attributes[absent] = None if absent == "output_padding" else graph.tensors[output.id].shape
        expected = convgrad.run(versioned, *(value(tensor.id) for tensor in op.inputs), **attributes)
        assert expected.any()
        assert_same_bits(execution.result, expected, op)
        strides = graph.tensors[output.id].strides
        assert strides is None or execution.result.strides == tuple(s * expected.itemsize for s in strides)
        values[output.id] = execution.result
        ran.extend(op.id for op in execution.ops)

    outcome = graph.run(given, observe=observe)
    assert sorted({*ran, *outcome.skipped}) == [op.id for op in graph.ops if op.outputs[0].id not in relus]
    read_outside = {tensor.id for op in graph.ops if op.id in outcome.skipped for tensor in op.inputs}
    assert set(outcome.results) == set(graph.outputs) - set(outside) | read_outside & graph.computed
    assert all(outcome.results[i] is values[i] for i in outcome.results)
    again = from_json(to_json(graph)).run(given)
    assert {i: a.tobytes() for i, a in again.results.items()} == {i: a.tobytes() for i, a in outcome.results.items()}


# -- attributes, strides, and a whole step ---------------------------------------------------------------------------


PADS = {"same_upper": (1, 2), "same_lower": (2, 1), "valid": (0, 0), "none": (0, 3)}
SPELLINGS = {name: [name, name.upper(), name.title()] for name in PADS}
SPELLINGS["none"] += ["NOTSET", "notset", "EXPLICIT", "explicit", None]


@pytest.mark.parametrize("meaning", PADS)
def test_auto_pad_in_every_spelling(meaning: str) -> None:
    src, weights = integers(1, 6, 2), integers(4, 2, 3, seed=1)
    expected = convgrad.convolution(src, weights, pads_begin=PADS[meaning][0], pads_end=PADS[meaning][1])
    for spelling in SPELLINGS[meaning]:
        attributes = {"strides": [1], "dilations": [1], "pads_begin": [0], "pads_end": [3], "auto_pad": spelling}
        op = Op(0, "Convolution", (lt(0, 1, 6, 2), lt(1, 4, 2, 3)), (lt(2),), attributes)
        graph, unknown = graph_of(op), graph_of(replace(op, inputs=(lt(0), op.inputs[1])))
        assert graph.tensors[2].shape == expected.shape
        assert_same_bits(graph.run({0: src, 1: weights}).results[2], expected, spelling)
        for one in (graph, *[unknown] * (spelling is not None)):
            written = json.loads(to_json(one))["graph"][0]["attrs"].get("auto_pad")
            assert written == {"type": "string", "value": "None" if meaning == "none" else meaning.upper()}, spelling
            assert_round_trip(one)


@pytest.mark.parametrize(("kind", "padding", "extent"), [
    ("ConvolutionBackwardData", [0], 11), ("ConvolutionBackwardData", [1], 12), ("ConvTranspose", [1], 12),
    ("ConvolutionBackwardData", [2], None), ("ConvTranspose", [2], None),
])  # fmt: skip
def test_output_padding(kind: str, padding: list[int], extent: int | None) -> None:
    attributes = {"strides": [2], "dilations": [1], "output_padding": padding}
    op = Op(0, kind, (lt(0, 1, 5, 4), lt(1, 3, 2, 4)), (lt(2),), attributes)
    given = {0: integers(1, 5, 4), 1: integers(3, 2, 4, seed=1)}
    if extent is None:
        with pytest.raises(GraphError, match="output_padding"):
            graph_of(op)
    else:
        assert graph_of(op).tensors[2].shape == (1, extent, 2)
        expected = convgrad.run(kind, given[0], given[1], **attributes)
        assert_same_bits(graph_of(op).run(given).results[2], expected, op)


@pytest.mark.parametrize("auto_pad", ["None", "VALID"])
@pytest.mark.parametrize(("extent", "kernel", "pad", "made"), [
    (28, 1, -1, 14), (9, 2, -1, 4), (9, 3, -1, None), (28, 1, -2, None), (28, 1, -28, None),
])  # fmt: skip
def test_a_negative_pads_end_stands_where_the_extent_stays(
    extent: int, kernel: int, pad: int, made: int | None, auto_pad: str
) -> None:
    attributes = {"strides": [2], "dilations": [1], "pads_begin": [0], "pads_end": [pad], "auto_pad": auto_pad}
    op = Op(0, "Convolution", (lt(0, 1, extent, 2), lt(1, kernel, 2, 3)), (lt(2),), attributes)
    if made is None and auto_pad == "None":
        with pytest.raises(GraphError, match=rf"a negative pads_end must give the output the extent .*; got \[{pad}\]"):
            graph_of(op)
        return
    src, weights = integers(1, extent, 2), integers(kernel, 2, 3, seed=1)
    expected = convgrad.convolution(src, weights, strides=2)
    assert_same_bits(graph_of(op).run({0: src, 1: weights}).results[2], expected, op)
    assert made in (None, expected.shape[1])


@pytest.mark.every(3)
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_arrays_may_lie_anyhow_and_outputs_lie_as_described(layout: Callable[[Array], Array], dtype: str) -> None:
    numpy, strides = FORMATS[dtype].dtype, (2, 50, 9)  # permuted, with gaps
    x, y = layout(integers(2, 6, 3).astype(numpy)), layout(integers(2, 6, 4, seed=1).astype(numpy))
    inputs = (lt(0, 2, 6, 3, dtype=dtype), lt(1, 2, 6, 4, dtype=dtype))
    op = Op(
        0, CONV, inputs, (lt(2, 3, 3, 4, dtype=dtype, strides=strides),), {"strides": [1], "dilations": [1]} | pads(1)
    )
    result = graph_of(op).run({0: x, 1: y}).results[2]
    assert result.strides == tuple(s * numpy.itemsize for s in strides)
    expected = convgrad.convolution_backward_weights(x.copy(), y.copy(), (3, 3, 4), pads_begin=1, pads_end=1)
    assert_same_bits(result.copy(order="C"), expected, layout)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_a_training_step_is_the_functions_composed(dtype: str) -> None:
    """Forward, bias and gradients on normal numbers: bit for bit, in either order of the ops."""
    numpy, rng = FORMATS[dtype].dtype, np.random.default_rng(5)
    x, w, b = (rng.standard_normal(s).astype(numpy) for s in ((2, 9, 8, 6), (3, 3, 3, 4), (4,)))
    layer: dict[str, Any] = {"strides": [2, 1], "dilations": [1, 2], "auto_pad": "same_upper", "groups": 2}
    t = {i: LogicalTensor(i, dtype) for i in range(8)}
    t |= {i: LogicalTensor(i, dtype, a.shape) for i, a in enumerate((x, w, b))}
    ops = [
        Op(0, "Convolution", (t[0], t[1]), (t[3],), layer),
        Op(1, "BiasAdd", (t[3], t[2]), (t[4],)),
        Op(2, "BiasAddBackward", (t[4],), (t[5],)),
        Op(3, "ConvolutionBackwardData", (t[4], t[1]), (t[6],), layer | {"dst_shape": list(x.shape)}),
        Op(4, "ConvolutionBackwardWeights", (t[0], t[4]), (t[7],), layer | {"weights_shape": list(w.shape)}),
    ]
    diff = convgrad.bias_add(convgrad.convolution(x, w, **layer), b)
    expected = {4: diff, 5: convgrad.bias_add_backward(diff)}
    expected[6] = convgrad.convolution_backward_data(diff, w, x.shape, **layer)
    expected[7] = convgrad.convolution_backward_weights(x, diff, w.shape, **layer)
    for given in (ops, ops[::-1]):
        results = graph_of(*given, outputs=list(expected)).run({0: x, 1: w, 2: b}).results
        assert {i: a.tobytes() for i, a in results.items()} == {i: a.tobytes() for i, a in expected.items()}
