"""ReLU in graphs: computed in the call that makes its input where nobody else reads it, with the same bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad.errors import GraphError
from convgrad.formats import FORMATS
from convgrad.graph import Execution, Graph, LogicalTensor, Op, explain, from_json, to_json
from convgrad.notation import problem
from convgrad.spec.winograd.choice import guarantee, with_algorithm
from tests.graph.ops import PADDED, B, W, X, chain, graph_of, integers, lt
from tests.support.helpers import assert_same_bits
from tests.support.roles import Array, same

SHAPES = {"NXC": ((2, 7, 5), (2, 7, 9)), "NCX": ((2, 5, 7), (2, 9, 7))}
WEIGHTS, BIAS = {"Convolution": (3, 5, 9), "ConvTranspose": (3, 9, 5)}, 9


def relu(number: int, src: LogicalTensor, dst: LogicalTensor) -> Op:
    return Op(number, "ReLU", (src,), (dst,))


def layer(kind: str, dtype: str, layout: str, bias: str, relus: int = 1) -> list[Op]:
    """Return a layer with its bias as an operand, as an op or absent, and ReLUs after it; the last tensor is 9."""
    src, dst = SHAPES[layout]
    inputs = (lt(0, *src, dtype=dtype), lt(1, *WEIGHTS[kind], dtype=dtype))
    last, bias_tensor = lt(3, *dst, dtype=dtype), lt(2, BIAS, dtype=dtype)
    operands = (*inputs, bias_tensor) if bias == "operand" else inputs
    ops = [Op(0, kind, operands, (last,), PADDED | {"data_format": layout})]
    if bias == "op":
        ops.append(Op(1, "BiasAdd", (last, bias_tensor), (lt(4, *dst, dtype=dtype),), {"data_format": layout}))
        last = ops[-1].outputs[0]
    for number in range(relus):
        ops.append(relu(2 + number, last, lt(9 - relus + 1 + number, *dst, dtype=dtype)))
        last = ops[-1].outputs[0]
    return ops


def normal(ops: list[Op], inputs: tuple[int, ...]) -> dict[int, Array]:
    rng = np.random.default_rng(0)
    tensors = {tensor.id: tensor for op in ops for tensor in op.inputs}
    shapes = {number: tensors[number].shape or () for number in inputs}
    dtypes = {number: FORMATS[tensors[number].dtype].dtype for number in inputs}
    return {number: rng.standard_normal(shape).astype(dtypes[number]) for number, shape in shapes.items()}


def ran(graph: Graph, given: dict[int, Array]) -> tuple[dict[int, Any], list[Execution]]:
    calls: list[Execution] = []
    return dict(graph.run(given, observe=calls.append).results), calls


@pytest.mark.every(2)
@pytest.mark.parametrize("bias", ["none", "operand", "op"])
@pytest.mark.parametrize("layout", SHAPES)
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "f8_e4m3"])
@pytest.mark.parametrize("kind", WEIGHTS)
def test_fused_bits(kind: str, dtype: str, layout: str, bias: str) -> None:
    """One call has the bits of ops one by one. Only f32 adds a bias without rounding before."""
    ops = layer(kind, dtype, layout, bias)
    fused, apart = graph_of(*ops), graph_of(*ops, outputs=[op.outputs[0].id for op in ops])
    given = normal(ops, fused.inputs)
    given[0].flat[:3] = np.nan, 400, -400  # and results beyond the range of f8_e4m3
    results, calls = ran(fused, given)
    expected, separate = ran(apart, given)
    rounds = bias == "op" and dtype != "f32"
    assert (len(calls), len(separate)) == (1 + rounds, 1 + (bias == "op"))
    assert calls[-1].prepared.problem.activation == ("" if dtype == "f8_e4m3" else "relu")
    assert not any(call.prepared.problem.activation for call in separate)
    before, after = (expected[number].astype(np.float32) for number in (ops[-2].outputs[0].id, 9))
    assert (before < 0).any()
    assert_same_bits(results[9], expected[9], "fused")
    assert_same_bits(after, np.where(before <= 0, np.float32(0), before), "values")


@pytest.mark.parametrize("bias", ["none", "operand", "op"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "f8_e4m3"])
def test_a_partition_of_f32_is_compiled_for_a_type_if_its_bits_are_those_of_a_graph_of_this_type(
    dtype: str, bias: str
) -> None:
    (partition,) = graph_of(*layer("Convolution", "f32", "NXC", bias)).partitions()
    ops = layer("Convolution", dtype, "NXC", bias)
    described = {tensor.id: tensor for op in ops for tensor in (*op.inputs, *op.outputs)}
    tensors = [[described[t.id] for t in side] for side in (partition.inputs, partition.outputs)]
    if (bias == "op" and dtype != "f32") or dtype == "f8_e4m3":
        with pytest.raises(GraphError, match=f"one call of .* would have other bits in {dtype}; finalize a graph of"):
            partition.compile(*tensors)
        return
    given = normal(ops, tuple(t.id for t in partition.inputs))
    assert_same_bits(partition.compile(*tensors)(given)[9], ran(graph_of(*ops), given)[0][9], "compiled")


@pytest.mark.parametrize("bias", ["none", "op"])
def test_three_ops_in_one_call(bias: str) -> None:
    """Of integers: equal to the function's result."""
    ops = layer("Convolution", "f32", "NXC", bias, relus=2)
    given = {0: integers(2, 7, 5), 1: integers(3, 5, 9, seed=1), 2: integers(9, seed=2)}
    graph = graph_of(*ops)
    results, calls = ran(graph, {number: given[number] for number in graph.inputs})
    biases = (given[2],) if bias == "op" else ()
    plain = convgrad.convolution(given[0], given[1], *biases, pads_begin=1, pads_end=1)
    assert same(results[9], np.maximum(plain, 0))
    assert [call.ops for call in calls] == [tuple(ops)]
    (partition,) = graph.partitions()
    assert (partition.ops, [t.id for t in partition.outputs]) == (tuple(ops), [9])
    assert same(partition.compile()({number: given[number] for number in graph.inputs})[9], results[9])


READ_TWICE = {
    "by an op": ([relu(1, lt(3, 2, 6, 4), lt(9)), Op(2, "BiasAddBackward", (lt(3, 2, 6, 4),), (lt(8),))], None),
    "as a result": ([relu(1, lt(3, 2, 6, 4), lt(9))], [3, 9]),
    "by two ReLUs": ([relu(1, lt(3, 2, 6, 4), lt(9)), relu(2, lt(3, 2, 6, 4), lt(8))], None),
}


@pytest.mark.parametrize(("ops", "outputs"), READ_TWICE.values(), ids=READ_TWICE)
def test_a_tensor_that_is_read_twice_is_made(ops: list[Op], outputs: list[int] | None) -> None:
    first = Op(0, "Convolution", (lt(0, 2, 6, 3), lt(1, 3, 3, 4)), (lt(3, 2, 6, 4),), PADDED)
    graph = graph_of(first, *ops, outputs=outputs)
    results, calls = ran(graph, {0: X, 1: W})
    plain = convgrad.convolution(X, W, pads_begin=1, pads_end=1)
    assert same(results[9], np.maximum(plain, 0))
    assert not calls[0].prepared.problem.activation
    assert [len(partition.ops) for partition in graph.partitions()] == [1] * (1 + len(ops))
    assert "computed by the call" not in explain(graph)


@pytest.mark.parametrize("layouts", [("NXC", "NCX"), ("NCX", "NXC")])
def test_a_bias_along_another_axis_is_added_alone(layouts: tuple[str, str]) -> None:
    first = Op(
        0, "Convolution", (lt(0, 4, 4, 4), lt(1, 3, 4, 4)), (lt(2, 4, 4, 4),), PADDED | {"data_format": layouts[0]}
    )
    add = Op(1, "BiasAdd", (lt(2, 4, 4, 4), lt(3, 4)), (lt(4),), {"data_format": layouts[1]})
    results, calls = ran(graph_of(first, add), {0: integers(4, 4, 4), 1: integers(3, 4, 4), 3: B})
    plain = convgrad.convolution(integers(4, 4, 4), integers(3, 4, 4), pads_begin=1, pads_end=1, data_format=layouts[0])
    assert same(results[4], convgrad.bias_add(plain, B, data_format=layouts[1]))
    assert len(calls) == 2


@pytest.mark.parametrize("variant", ["2x2", "4x4"])
def test_fusion_does_not_choose_another_algorithm(variant: str) -> None:
    """A tile has another guarantee with a bias: of an accuracy between both, the layer without a bias decides."""
    with_bias, without = (problem(f"{kind} f32 NXC mb1ic64ih28oc64oh28kh3ph1") for kind in ("FWD_B", "FWD_D"))
    max_error = (guarantee(with_bias, variant) + guarantee(without, variant)) / 2
    assert with_algorithm(with_bias, max_error).algorithm != with_algorithm(without, max_error).algorithm
    inputs = (lt(0, 1, 28, 28, 64), lt(1, 3, 3, 64, 64))
    attributes = {"strides": [1, 1], "dilations": [1, 1], "auto_pad": "same_upper"}
    made = lt(3, 1, 28, 28, 64)
    ops = [
        Op(0, "Convolution", inputs, (made,), attributes, max_error=max_error),
        Op(1, "BiasAdd", (made, lt(2, 64)), (lt(4, 1, 28, 28, 64),)),
        relu(2, lt(4, 1, 28, 28, 64), lt(9)),
    ]
    given = normal(ops, (0, 1, 2))
    results, calls = ran(graph_of(*ops), given)
    expected, apart = ran(graph_of(*ops, outputs=[3, 4, 9]), given)
    assert calls[0].prepared.problem.algorithm == apart[0].prepared.problem.algorithm
    assert (len(calls), len(apart)) == (1, 2)
    assert_same_bits(results[9], expected[9], "fused")


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "f8_e5m2"])
@pytest.mark.parametrize("shape", [(), (5,), (0,), (2, 3), (2, 3, 4)])
def test_alone(shape: tuple[int, ...], dtype: str) -> None:
    src = LogicalTensor(0, dtype, shape)
    graph = graph_of(relu(0, src, LogicalTensor(1)), relu(1, LogicalTensor(1), LogicalTensor(2)))
    values = np.resize(np.array([-1, 2, np.nan, -0.0, -np.inf], np.float32), shape).astype(FORMATS[dtype].dtype)
    expected = np.where(values.astype(np.float32) <= 0, values.dtype.type(0), values)
    result = graph.run({0: values}).results[2]
    assert_same_bits(result, expected, "alone")
    assert_same_bits(graph.partitions()[0].compile()({0: values})[1], expected, "compiled")


def test_strides_of_the_output() -> None:
    graph = graph_of(relu(0, lt(0, 2, 3), lt(1, 2, 3, strides=(1, 2))))
    result = graph.run({0: integers(2, 3)}).results[1]
    assert result.strides == (4, 8)
    assert same(result, np.maximum(integers(2, 3), 0))


def test_the_output_may_be_given() -> None:
    """Then the convolution is computed alone."""
    ops = [*layer("Convolution", "f32", "NXC", "op"), Op(7, "BiasAddBackward", (lt(9, 2, 7, 9),), (lt(8, 9),))]
    graph, given = graph_of(*ops), normal(ops, (0, 1, 2, 9))
    outcome = graph.run(given)
    assert outcome.skipped == {2: "tensor 9 is given"}
    assert set(outcome.results) == {4, 8}
    assert_same_bits(outcome.results[8], convgrad.bias_add_backward(given[9]), "gradient")


def test_without_a_bias_the_convolution_runs() -> None:
    ops = layer("Convolution", "f32", "NXC", "op")
    outcome = graph_of(*ops).run(normal(ops, (0, 1)))
    assert outcome.skipped == {1: "waits for tensor 2", 2: "waits for tensor 4 of BiasAdd 1"}
    assert set(outcome.results) == {3}


@pytest.mark.parametrize("kept", [3, 4])
def test_kept_tensors_are_made(kept: int) -> None:
    ops = layer("Convolution", "f32", "NXC", "op")
    graph = Graph(ops)
    graph.finalize(kept={kept})
    calls = ran(graph, normal(ops, graph.inputs))[1]
    assert kept in [call.op.outputs[0].id for call in calls]


def test_names_of_older_generations() -> None:
    first = Op(0, "Convolution-1", (lt(0, 2, 6, 3), lt(1, 3, 3, 4)), (lt(2),), PADDED | {"filter_format": "XIO"})
    graph = graph_of(first, relu(1, lt(2), lt(3)))
    results, calls = ran(graph, {0: X, 1: W})
    assert len(calls) == 1
    assert same(results[3], convgrad.convolution(X, W, pads_begin=1, pads_end=1, activation="relu"))
    assert from_json(to_json(graph)).run({0: X, 1: W}).results[3].tobytes() == results[3].tobytes()


def test_backward_is_outside() -> None:
    backward = Op(5, "ReLUBackward", (lt(1, 2, 4), lt(2, 2, 4)), (lt(3),), {"use_dst": True})
    graph = graph_of(*chain((0, 1)), backward)
    assert graph.inference.reasons == {5: "ReLUBackward is not an operator of the convolution family"}


def test_explain_names_the_call() -> None:
    ops = layer("Convolution", "f32", "NXC", "op")
    text = explain(graph_of(*ops))
    assert "BiasAdd 1: computed by the call of Convolution 0" in text
    assert "ReLU 2: computed by the call of Convolution 0" in text
    assert "3 ops, 3 supported" in text
    assert "at most 504 bytes" in text  # the last tensor alone


def test_other_types_are_not_supported() -> None:
    graph = graph_of(relu(0, lt(0, 2, dtype="s32"), lt(1, 2, dtype="s32")))
    assert graph.inference.reasons[0].startswith("ReLU of s32 (tensor 0) is not supported")
    assert not graph_of(relu(0, replace(lt(0, 2), layout_type="opaque"), lt(1))).partitions()[0].is_supported
