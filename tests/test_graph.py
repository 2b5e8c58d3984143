"""Graphs: their life cycle, what is inferred, what is refused and why, what is outside, what memory is released."""

from __future__ import annotations

import tracemalloc
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import GraphError, InvalidAttributeError, InvalidDataTypeError, InvalidShapeError, engines
from convgrad.graph import Execution, Graph, Limits, LogicalTensor, Op, from_json, read, to_json
from roles import BF16, F32, Array, same

ONE: dict[str, Any] = {"strides": [1], "dilations": [1]}
PADDED = ONE | {"pads_begin": [1], "pads_end": [1]}
HALVED = PADDED | {"strides": [2]}


def lt(number: int, *dims: int | None, dtype: str = "f32", **more: Any) -> LogicalTensor:
    """Return a tensor; without dims its rank is unknown."""
    return LogicalTensor(number, dtype, dims or None, **more)


def undef(number: int, *dims: int | None) -> LogicalTensor:
    return lt(number, *dims, dtype="undef")


def graph_of(*ops: Op, **more: Any) -> Graph:
    graph = Graph(ops, **more)
    graph.finalize()
    return graph


def integers(*shape: int, dtype: Any = F32, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(dtype)


SRC, WEIGHTS, DST = lt(0, 2, 6, 3, name="src"), lt(1, 3, 3, 4, name="weights"), lt(2, 2, 6, 4, name="dst")
FORWARD = Op(7, "Convolution", (SRC, WEIGHTS), (DST,), PADDED, "layer")
GRADIENT = Op(0, "ConvolutionBackwardWeights", (lt(0, 2, 6, 3), lt(1, 2, 6, 4)), (lt(2),), PADDED)
SHAPE = lt(9, 3, dtype="s32")
X, W, B = integers(2, 6, 3), integers(3, 3, 4, seed=1), integers(4, seed=2)
Y = convgrad.convolution(X, W, pads_begin=1, pads_end=1)


def chain(*pairs: tuple[int, int]) -> list[Op]:
    return [Op(n, "BiasAdd", (lt(a, 2, 4), lt(99, 4)), (lt(b, 2, 4),)) for n, (a, b) in enumerate(pairs)]


def test_ops_come_before_finalize_and_partitions_after() -> None:
    graph = Graph([FORWARD])
    for early in (graph.partitions, lambda: graph.tensors, lambda: graph.run({}), lambda: to_json(graph)):
        with pytest.raises(GraphError, match=r"must be finalized first: call finalize\(\)"):
            early()
    graph.finalize()
    assert graph.is_finalized
    with pytest.raises(GraphError, match="layer: a finalized graph takes no more ops"):
        graph.add_op(replace(FORWARD, id=8))
    (partition,) = graph.partitions()
    assert (partition.ops, partition.is_supported, partition.reason) == ((FORWARD,), True, None)
    assert (partition.inputs, partition.outputs) == ((SRC, WEIGHTS), (DST,))


def test_a_graph_that_does_not_finalize_can_be_completed() -> None:
    graph = Graph([FORWARD], outputs=[5])
    with pytest.raises(GraphError, match="output_ports: must be tensors that ops make; got 5"):
        graph.finalize()
    assert not graph.is_finalized
    graph.add_op(Op(8, "BiasAdd", (DST, lt(4, 4)), (lt(5),)))
    graph.finalize()
    assert graph.tensors[5] == lt(5, 2, 6, 4)


def test_a_partition_is_compiled_with_known_inputs_and_called_again_and_again() -> None:
    (partition,) = graph_of(replace(FORWARD, inputs=(lt(0, name="src"), WEIGHTS), outputs=(lt(2),))).partitions()
    compiled = partition.compile([SRC])
    assert compiled.resolved is not None
    assert [compiled.query_logical_tensor(i) for i in (0, 2)] == [SRC, lt(2, 2, 6, 4)]
    for factor in (1, 2):
        assert same(compiled({0: factor * X, 1: W})[2], factor * Y)
    longer = partition.compile([lt(0, 2, 9, 3)], [lt(2, 2, None, 4, strides=(40, 4, 1))])
    assert longer.query_logical_tensor(2) == lt(2, 2, 9, 4, strides=(40, 4, 1))
    with pytest.raises(GraphError, match="layer: has no tensor 3; it has 0, 1, 2"):
        compiled.query_logical_tensor(3)


COMPILED: dict[str, tuple[list[LogicalTensor], list[LogicalTensor], str]] = {
    "unknown": ([], [], r"layer: compiling needs inputs of known type and extents; got 0: f32 \?"),
    "type unknown": ([undef(0, 2, 6, 3)], [], "compiling needs inputs of known type and extents; got 0: undef 2x6x3"),
    "another id": ([SRC, lt(3, 1)], [], "layer: has no tensor 3; it has 0, 1, 2"),
    "output": ([SRC], [lt(2, 9, 6, 4)], "make dst f32 2x6x4; the graph has 2: f32 9x6x4"),
    "types": ([lt(0, 2, 6, 3, dtype="bf16")], [undef(2)], "one type"),
    "opaque": ([replace(SRC, layout_type="opaque")], [], "opaque"),
}


@pytest.mark.parametrize(("inputs", "outputs", "words"), COMPILED.values(), ids=COMPILED)
def test_what_cannot_be_compiled(inputs: list[LogicalTensor], outputs: list[LogicalTensor], words: str) -> None:
    (partition,) = graph_of(replace(FORWARD, inputs=(lt(0), WEIGHTS), outputs=(lt(2),))).partitions()
    with pytest.raises(GraphError, match=words):
        partition.compile(inputs, outputs)


def test_a_partition_whose_shape_is_an_input_is_compiled_without_a_problem() -> None:
    (partition,) = graph_of(replace(GRADIENT, inputs=(*GRADIENT.inputs, SHAPE))).partitions()
    compiled = partition.compile()
    assert compiled.resolved is None
    assert compiled.query_logical_tensor(2) == lt(2)
    expected = convgrad.convolution_backward_weights(X, Y, (3, 3, 4), pads_begin=1, pads_end=1)
    given = {0: X, 1: Y, 9: np.array([3, 3, 4], np.int32)}
    assert same(compiled(given)[2], expected)
    with pytest.raises(GraphError, match="tensor 2"):
        compiled(given | {2: expected})


@pytest.mark.parametrize("keys", [(0, 1), ("0", "1"), ("src", "weights"), (np.int64(0), "weights")])
def test_arrays_are_given_by_id_by_decimal_id_or_by_name(keys: tuple[Any, Any]) -> None:
    graph = graph_of(FORWARD)
    assert same(graph.run(dict(zip(keys, (X, W), strict=True))).results[2], Y)
    assert same(graph.partitions()[0].compile()(dict(zip(keys, (X, W), strict=True)))[2], Y)
    swapped = graph_of(replace(FORWARD, inputs=(replace(SRC, name="x1"), WEIGHTS)))
    assert same(swapped.run({"x1": X, "weights": W}).results[2], Y)


# -- inference ---------------------------------------------------------------------------------------------------------


def test_unknown_dims_and_types_follow_through_a_chain_given_in_any_order() -> None:
    up = {"strides": [2], "dilations": [1], "output_padding": [1]}
    first = (lt(0, 2, 6, 3, dtype="bf16"), lt(1, 3, 3, 4, dtype="bf16"))
    graph = graph_of(
        Op(2, "ConvTranspose", (undef(4), lt(5, 2, 3, 4, dtype="bf16")), (undef(6, 2, None, 3),), up),
        Op(1, "BiasAdd", (undef(2), undef(3, 4)), (undef(4),)),
        Op(0, "Convolution", first, (undef(2),), PADDED),
    )
    assert [p.op.id for p in graph.partitions()] == [0, 1, 2]
    assert [str(graph.tensors[i]) for i in (2, 4, 6)] == ["2: bf16 2x6x4", "4: bf16 2x6x4", "6: bf16 2x13x3"]
    assert graph.tensors[4].strides == (24, 4, 1)
    assert (graph.inputs, graph.outputs) == ((5, 3, 0, 1), (6,))


def test_what_is_unknown_follows_from_the_arrays() -> None:
    op = Op(0, "Convolution", (undef(0), lt(1, None, 3, None)), (undef(2),), PADDED)
    graph = graph_of(op, Op(1, "BiasAdd", (undef(2), undef(3)), (undef(4),)))
    assert graph.inference.resolved == {}
    known = graph.with_given({0: X, 1: W, 3: B})
    assert [str(known.tensors[i]) for i in (0, 1, 4)] == ["0: f32 2x6x3", "1: f32 3x3x4", "4: f32 2x6x4"]
    for one in (graph, known):
        assert same(one.run({0: X, 1: W, 3: B}).results[4], convgrad.bias_add(Y, B))
    for wrong in ({0: X.astype(BF16), 1: W, 3: B}, {0: X, 1: W, 3: B.astype(BF16)}, {0: X, 1: W[:, :2], 3: B}):
        with pytest.raises(GraphError, match=r"type|fit|must be"):
            graph.run(wrong)


# (weights_shape by input, by attribute, the output's dims: kernels 3 and 4 fit; the result's or words of the refusal)
PRECEDENCE: list[tuple[int | None, int | None, int | None, int | str]] = [
    (3, 4, None, 3), (3, None, 3, 3), (3, 4, 3, 3), (4, 3, 4, 4), (4, None, None, 4), (3, 9, None, 3), (3, 0, None, 3),
    (None, 3, None, 3), (None, 4, 4, 4), (None, None, 4, 4), (None, 0, 4, 4),
    (3, None, 4, "make diff_weights f32 3x3x4; the graph has 2: f32 4x3x4"),
    (3, 4, 4, "make diff_weights f32 3x3x4; the graph has 2: f32 4x3x4"),
    (None, 3, 4, "make diff_weights f32 3x3x4; the graph has 2: f32 4x3x4"),
    (9, 3, None, r"kernels that fit: 3, 4"), (None, 0, None, "weights_shape"), (None, None, None, "weights_shape"),
]  # fmt: skip


@pytest.mark.parametrize(("by_input", "by_attribute", "by_output", "expected"), PRECEDENCE)
def test_an_input_beats_an_attribute_beats_known_dims(
    by_input: int | None, by_attribute: int | None, by_output: int | None, expected: int | str
) -> None:
    y, attributes, inputs = Y[:, :3], dict(HALVED), (GRADIENT.inputs[0], lt(1, 2, 3, 4))
    given: dict[int, object] = {0: X, 1: y}
    if by_input:
        inputs, given[9] = (*inputs, SHAPE), np.array([by_input, 3, 4], np.int32)
    if by_attribute is not None:
        attributes["weights_shape"] = [by_attribute, 3, 4] if by_attribute else [0, 0, 0]
    output = lt(2, by_output, 3, 4) if by_output else lt(2)
    op = replace(GRADIENT, inputs=inputs, attributes=attributes, outputs=(output,))
    if isinstance(expected, str):
        with pytest.raises(GraphError, match=expected):
            graph_of(op).run(given)
    else:
        wanted = convgrad.convolution_backward_weights(X, y, (expected, 3, 4), strides=2, pads_begin=1, pads_end=1)
        assert same(graph_of(op).run(given).results[2], wanted)


# -- refusals ----------------------------------------------------------------------------------------------------------


def forward(**attributes: Any) -> list[Op]:
    return [replace(FORWARD, attributes=PADDED | attributes)]


def relu(tensor: LogicalTensor) -> list[Op]:
    return [*chain((0, 1)), Op(5, "ReLU", (tensor,), (lt(6),))]


F, G = FORWARD, GRADIENT
TWO = [replace(F, outputs=(undef(2),)), Op(8, "BiasAdd", (undef(2), lt(3, 4, dtype="bf16")), (undef(4),))]
BIAS = [Op(7, "BiasAdd", (undef(0), undef(1)), (undef(2),), name="layer")]
REFUSED: dict[str, tuple[list[Op], str, type[Exception] | None]] = {
    "ids": ([F, replace(G, id=7)], r"ids of ops must differ; layer has 7 too", None),
    "producers": (chain((0, 1), (2, 1)), r"BiasAdd 1: a tensor must have one producer; BiasAdd 0 makes 1 too", None),
    "cycle": (chain((0, 1), (3, 2), (2, 3)), r"no cycles; .* wait for each other are among BiasAdd 1, BiasAdd 2", None),
    "own input": (chain((1, 1)), r"must have no cycles; .* BiasAdd 0", None),
    "extents twice": (relu(lt(1, 2, 5)), r"ReLU 5: tensor 1 must have one description; got dims \(2, 5\) and", None),
    "types twice": (relu(lt(1, 2, 4, dtype="bf16")), r"one description; got dtype bf16 and f32", None),
    "strides twice": (relu(lt(1, 2, 4, strides=(1, 2))), r"got strides \(1, 2\) and \(4, 1\)", None),
    "unknown twice": (relu(lt(1)), r"one description; got dims None and \(2, 4\)", None),
    "one input": ([replace(F, inputs=(SRC,))], r"takes src, weights, \[bias\] and makes dst; got 1 inputs and 1", None),
    "four inputs": ([replace(F, inputs=(SRC, WEIGHTS, lt(3, 4), lt(4, 4)))], r"got 4 inputs and 1 outputs", None),
    "no output": ([replace(F, outputs=())], r"got 2 inputs and 0 outputs", None),
    "two outputs": ([replace(F, outputs=(DST, lt(3)))], r"got 2 inputs and 2 outputs", None),
    "types": ([replace(F, inputs=(SRC, lt(1, 3, 3, 4, dtype="f16")))], r"one type; got 0 src: f32 2x6x3, 1: f16", None),
    "output's type": ([replace(F, outputs=(lt(2, dtype="bf16"),))], r"must have one type; .*2: bf16", None),
    "inferred types": (TWO, r"BiasAdd 8: .* one type", None),
    "shape of f32": ([replace(G, inputs=(*G.inputs, lt(9, 3)))], r"must be a 1-D tensor of s32; got 9: f32 3", None),
    "output's dims": ([replace(F, outputs=(lt(2, 2, None, 5),))], r"make dst f32 2x6x4; the graph has 2: f32 2x", None),
    "channels": ([replace(F, inputs=(lt(0, 2, 6, 5), WEIGHTS))], r"layer: Convolution: .*\[G4\]", InvalidShapeError),
    "strides": ([replace(F, attributes={"dilations": [1]})], r"strides is required .*\[A3\]", InvalidAttributeError),
    "zero": (forward(strides=[0]), r"strides must be positive .*\[A4\]", InvalidAttributeError),
    "length": (forward(strides=[1, 1]), r"one value per spatial axis, 1 here; got \[1, 1\] \[A6\]", InvalidShapeError),
    "scalar": (forward(strides=1), r"strides must be a list of integers.*\[A2\]", InvalidAttributeError),
    "auto_pad": (forward(auto_pad="same"), r"auto_pad must be one of none, .*\[A5\]", InvalidAttributeError),
    "attribute": (forward(pads=[1]), r"every attribute must be one it has; got pads; .*\[A1\]", InvalidAttributeError),
    "negative": (forward(pads_begin=[-1]), r"cropping.*\[A4\]", InvalidAttributeError),
    "attribute, extents unknown": (
        [replace(F, inputs=(lt(0), WEIGHTS), attributes=ONE | {"pads": [1]})], r"got pads", InvalidAttributeError
    ),
}  # fmt: skip


SHARED = [replace(F, inputs=(SRC, replace(WEIGHTS, name="src")))]
NOT_RUN: dict[str, tuple[list[Op], dict[Any, Any], str, type[Exception] | None]] = {
    "id and name": ([F], {0: X, "src": X, 1: W}, "tensor 0 src must be given once; got it by id and by name", None),
    "id and decimal id": ([F], {0: X, "0": X, 1: W}, "tensor 0 src must be given once", None),
    "shared name": (SHARED, {0: X, "src": W}, "src", None),
    "unknown id": ([F], {0: X, 3: W}, "the graph has no tensor 3; it has 0 src, 1 weights, 2 dst", None),
    "unknown name": ([F], {0: X, "w": W}, "the graph has no tensor 'w'; it has 0 src", None),
    "fraction": ([F], {0: X, 1.5: W}, r"1\.5", None),
    "bytes": ([F], {0: X, b"1": W}, "b'1'", None),
    "None as key": ([F], {0: X, None: W}, "None", None),
    "missing": ([F], {0: X}, "layer: no op can run; this one waits for tensor 1 weights", None),
    "made": ([F], {0: X, 1: W, 2: Y}, "layer: it makes tensor 2 dst, which cannot be given", None),
    "extent": ([F], {0: X[:, 1:], 1: W}, r"must fit tensor 0 src: f32 2x6x3; got f32 2x5x3", None),
    "rank": ([F], {0: X[0], 1: W}, r"must fit tensor 0 src: f32 2x6x3; got f32 6x3", None),
    "type": ([F], {0: X.astype(BF16), 1: W}, r"must fit tensor 0 src: f32 2x6x3; got bf16 2x6x3", None),
    "f64": ([F], {0: X.astype(float), 1: W}, r"must fit tensor 0 src: f32 2x6x3; got f64 2x6x3", None),
    "f64, type unknown": (BIAS, {0: np.ones((2, 3)), 1: np.ones(3)}, r"layer: .*f64", None),
    "integers": ([F], {0: X.astype(int), 1: W}, r"layer: .*src must be an array .*\[T1\]", InvalidDataTypeError),
    "None": ([F], {0: None, 1: W}, r"layer: .*src must be an array; got None \[T1\]", InvalidDataTypeError),
    "shape of floats": ([replace(G, inputs=(*G.inputs, SHAPE))], {0: X, 1: Y, 9: X[0, 0]}, r"T3", InvalidDataTypeError),
    **{
        f"strides {s}": ([replace(G, outputs=(lt(2, 3, 3, 4, strides=s),))], {0: X, 1: Y}, "overlap", None)
        for s in ((0, 4, 1), (12, 0, 1), (11, 4, 1))
    },
    "far apart": ([replace(G, outputs=(lt(2, 3, 3, 4, strides=(2**60, 4, 1)),))], {0: X, 1: Y}, "memory_bytes", None),
}  # fmt: skip


ALL = {name: (ops, None, words, cause) for name, (ops, words, cause) in REFUSED.items()} | NOT_RUN


@pytest.mark.parametrize(("ops", "given", "words", "cause"), ALL.values(), ids=ALL)
def test_what_does_not_fit_is_refused(ops: list[Op], given: Any, words: str, cause: type[Exception] | None) -> None:
    with pytest.raises(GraphError, match=words) as caught:
        graph_of(*ops) if given is None else graph_of(*ops).run(given)
    assert type(caught.value.__cause__) is (cause or type(None))


# -- what is outside the family ----------------------------------------------------------------------------------------


def test_operators_outside_are_named_and_the_rest_runs() -> None:
    graph = read(Path(__file__).parent / "graphs" / "relu_and_add_between_convolutions.json")
    reasons = [f"{kind} is not an operator of the convolution family" for kind in ("ReLU", "Add")]
    assert [p.reason for p in graph.partitions()] == [None, reasons[0], None, reasons[1], None]
    with pytest.raises(GraphError, match="relu_1: this partition cannot be compiled: ReLU is not"):
        graph.partitions()[1].compile()
    given = {i: integers(*(graph.tensors[i].shape or ()), seed=i) for i in graph.inputs}
    outcome = graph.run(given)
    assert outcome.skipped == {1: reasons[0], 2: "waits for tensor 3 of relu_1", 3: reasons[1]}
    assert list(outcome.results) == [2, 7]  # ReLU would read the one, nobody the other
    hidden = convgrad.convolution(given[0], given[1], pads_begin=1, pads_end=1)
    ran: dict[int, Array] = {}
    rest = graph.run(given | {3: np.maximum(hidden, 0)}, observe=lambda e: ran.update({e.op.id: e.result}))
    assert rest.skipped == {1: reasons[0], 3: reasons[1]}
    assert same(ran[2], convgrad.convolution(np.maximum(hidden, 0), given[4], pads_begin=1, pads_end=1))
    assert same(rest.results[7], outcome.results[7])


def test_an_op_behind_one_that_waits_waits_too() -> None:
    nameless = Op(8, "", (lt(0, 2, 4),), (lt(1, 2, 4),))
    graph = graph_of(*chain((1, 2), (2, 3)), nameless)
    with pytest.raises(GraphError, match="no op can run; this one waits for tensor 1 of "):
        graph.run({0: integers(2, 4), 99: B})
    free = Op(9, "BiasAddBackward", (lt(50, 2, 4),), (lt(51),), {})
    skipped = graph_of(*graph.ops, free).run({0: integers(2, 4), 99: B, 50: integers(2, 4)}).skipped
    assert skipped[8] == "an op without a kind is not an operator of the convolution family"
    assert skipped[0].startswith("waits for tensor 1 of ")
    assert skipped[1] == "waits for tensor 2 of BiasAdd 0"


OPAQUE = "Convolution on tensor {}, whose layout is opaque, is not supported"
S8 = "Convolution of s8 (tensor 0) is not supported; f32, bf16 and f16 are"
UNSUPPORTED: dict[str, tuple[Op, str]] = {
    "opaque": (replace(F, inputs=(replace(SRC, layout_type="opaque"), WEIGHTS)), OPAQUE.format("0 src")),
    "opaque output": (replace(F, outputs=(replace(DST, layout_type="opaque"),)), OPAQUE.format("2 dst")),
    "s8": (replace(F, inputs=(lt(0, 2, 6, 3, dtype="s8"), lt(1, dtype="s8")), outputs=(undef(2),)), S8),
}


@pytest.mark.parametrize(("op", "reason"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_what_is_not_supported_says_why(op: Op, reason: str) -> None:
    graph = graph_of(op)
    (partition,) = graph.partitions()
    assert (partition.reason, partition.is_supported) == (reason, False)
    outcome = graph.run({})
    assert (dict(outcome.skipped), dict(outcome.results), graph.inference.resolved) == ({7: reason}, {}, {})


@pytest.mark.parametrize("name", ["opaque", "s8"])
def test_what_is_not_supported_is_written_and_has_its_own_attributes(name: str) -> None:
    op = UNSUPPORTED[name][0]
    assert from_json(to_json(graph_of(op))).ops[0].attributes["strides"] == [1]
    with pytest.raises(GraphError, match="every attribute must be one it has; got scale"):
        graph_of(replace(op, attributes=op.attributes | {"scale": 2}))


@pytest.mark.parametrize(("name", "given", "plain"), [
    ("strides", np.array([1]), [1]), ("pads_begin", np.array([0]), [0]), ("pads_end", np.array([], int), []),
    ("pads_end", (0,), [0]), ("groups", np.int64(1), 1),
])  # fmt: skip
def test_attributes_of_numpy_are_written_as_plain_ones(name: str, given: object, plain: object) -> None:
    graphs = [graph_of(replace(F, outputs=(lt(2),), attributes=ONE | {name: value})) for value in (given, plain)]
    assert to_json(graphs[0]) == to_json(graphs[1])


# -- results and memory ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("outputs", "expected"), [(None, [3]), ([1], [1]), ([3, 1], [1, 3]), ([], [])])
def test_output_ports_say_what_is_returned(outputs: list[int] | None, expected: list[int]) -> None:
    given = {0: integers(2, 4), 99: B}
    results = graph_of(*chain((0, 1), (1, 2), (2, 3)), outputs=outputs).run(given).results
    assert sorted(results) == expected
    assert all(same(results[i], given[0] + i * B) for i in results)


LENGTH, EXTENT, BYTES = 30, 200_000, 4 * 200_000
GIVEN = {0: np.ones((2, 4), F32), 99: np.ones(4, F32)}


def long(length: int) -> tuple[Graph, dict[int, Array]]:
    t = [lt(n, 1, EXTENT, 1) for n in range(length + 1)]
    ops = [Op(n, "Convolution", (t[n], lt(99, 1, 1, 1)), (t[n + 1],), ONE) for n in range(length)]
    return graph_of(*ops), {0: np.ones((1, EXTENT, 1), F32), 99: np.ones((1, 1, 1), F32)}


def test_intermediates_are_released() -> None:
    graph, given = long(LENGTH)
    made: list[weakref.ref[Array]] = []
    alive: list[int] = []

    def observe(execution: Execution) -> None:
        made.append(weakref.ref(execution.result))
        alive.append(sum(ref() is not None for ref in made))

    outcome = graph.run(given, observe=observe)
    assert alive == [1] + [2] * (LENGTH - 1)
    assert [ref() is not None for ref in made] == [False] * (LENGTH - 1) + [True]
    assert same(outcome.results[LENGTH], given[0])


def test_a_long_chain_takes_no_more_memory_than_a_short_one() -> None:
    peaks = []
    for length in (2, LENGTH):
        graph, given = long(length)
        tracemalloc.start()
        graph.run(given)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + BYTES / 2


def gaps(number: int) -> LogicalTensor:
    return lt(number, 2, 4, strides=(250_000, 1))  # about 1 MB between two rows


APART = graph_of(*(Op(n, "BiasAdd", (gaps(n), lt(99, 4)), (gaps(n + 1),)) for n in range(3)))
UNREAD = graph_of(*chain(*((0, n + 1) for n in range(9))), outputs=[1])
MEMORY = {"chain": (*long(5), 2 * BYTES), "gaps": (APART, GIVEN, 2 * 4 * 250_004), "unread": (UNREAD, GIVEN, 2 * 4 * 8)}


@pytest.mark.parametrize(("graph", "given", "least"), MEMORY.values(), ids=MEMORY)
def test_memory_bytes_is_the_most_that_results_take_at_one_time(
    graph: Graph, given: dict[int, Array], least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside what computing them takes."""
    monkeypatch.setattr(engines, "memory_bytes", lambda *_: 0)
    assert graph.run(given, limits=Limits(memory_bytes=least)).results
    with pytest.raises(GraphError, match=r"tensors must fit the memory_bytes that are left, \d+; got \d+: f32 .*bytes"):
        graph.run(given, limits=Limits(memory_bytes=least - 1))


@pytest.mark.parametrize("kind", ["Convolution", "ConvolutionBackwardWeights"])
def test_memory_bytes_counts_what_computing_takes(kind: str) -> None:
    """Scratch, tables and sums of the plan that runs, by the generated engine; blocks of the NumPy engine."""
    second = lt(1, 3, 3, 16, 16) if kind == "Convolution" else lt(1, 2, 20, 20, 16)
    layer = {"strides": [1, 1], "dilations": [1, 1], "auto_pad": "same_upper"}
    layer |= {"weights_shape": [3, 3, 16, 16]} if kind != "Convolution" else {}
    graph = graph_of(Op(0, kind, (lt(0, 2, 20, 20, 16), second), (lt(2),), layer))
    given = {t.id: np.ones(t.shape, np.float32) for t in graph.ops[0].inputs if t.shape}
    least: list[int] = []
    graph.run(given, observe=lambda step: least.append(step.result.nbytes + step.prepared.memory_bytes(step.result)))
    assert least[0] > 1.5 * graph.run(given).results[2].nbytes
    assert graph.run(given, limits=Limits(memory_bytes=least[0])).results
    with pytest.raises(GraphError, match=r"computing it must fit the memory_bytes that are left, \d+; it takes \d+"):
        graph.run(given, limits=Limits(memory_bytes=least[0] - 1))
