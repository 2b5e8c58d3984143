"""Graphs: their life cycle, what is inferred, what is refused and why, what is outside, what memory is released."""

from __future__ import annotations

import tracemalloc
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import GraphError, engines
from convgrad.graph import Execution, Graph, Limits, LogicalTensor, Op, to_json
from convgrad.graph.explain import peak_bytes
from tests.graph.ops import (
    DST,
    FORWARD,
    GRADIENT,
    HALVED,
    ONE,
    PADDED,
    SHAPE,
    SRC,
    WEIGHTS,
    B,
    W,
    X,
    Y,
    chain,
    graph_of,
    integers,
    lt,
    undef,
)
from tests.support.roles import BF16, F32, Array, same


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


def test_compiled_partitions_take_arrays_of_all_tensors_of_their_graph() -> None:
    """A caller keeps one dict of arrays: what a partition does not read is ignored, and what it makes is refused."""
    add = Op(8, "BiasAdd", (DST, lt(4, 4, name="bias")), (lt(5, name="sum"),))
    graph = graph_of(FORWARD, add, Op(9, "BiasAddBackward", (lt(5, name="sum"),), (lt(6, name="total"),)))
    fused, last = graph.partitions()
    assert [len(one.ops) for one in (fused, last)] == [2, 1]
    arrays: dict[Any, Any] = {0: X, 1: W, "bias": np.arange(4, dtype=np.float32), "total": "not read"}
    for _ in range(2):
        (made,) = fused.compile()(arrays).values()
        assert same(made, Y + arrays["bias"])
    del arrays["total"]
    (total,) = last.compile()(arrays | {5: made, 2: None}).values()
    assert same(total, made.sum((0, 1)))
    for key, label in ((2, "2 dst"), ("dst", "2 dst"), (5, "5 sum"), ("sum", "5 sum")):
        with pytest.raises(GraphError, match=f"layer: it makes tensor {label}, which cannot be given"):
            fused.compile()(arrays | {key: made})
    for key in (7, "other"):
        with pytest.raises(
            GraphError, match=f"the graph has no tensor {key!r}; it has 0 src, 1 weights, 2 dst, 4 bias"
        ):
            fused.compile()(arrays | {key: made})
    with pytest.raises(GraphError, match="layer: has no tensor 6; it has 0, 1, 4, 5"):
        fused.compile().query_logical_tensor(6)


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
    (9, 3, None, r"Kernels that fit: 3, 4"), (None, 0, None, "weights_shape"), (None, None, None, "weights_shape"),
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
        with convgrad.threads(1):  # others would take their first scratch, if a test before has begun them
            graph.run(given)
            tracemalloc.start()
            graph.run(given)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert peaks[1] < peaks[0] + BYTES / 2


def gaps(number: int) -> LogicalTensor:
    return lt(number, 2, 4, strides=(250_000, 1))  # about 1 MB between two rows


APART = graph_of(*(Op(n, "BiasAdd", (gaps(n), lt(99, 4)), (gaps(n + 1),)) for n in range(3)))
UNREAD = graph_of(*chain(*((0, n + 1) for n in range(9))), outputs=[1])
RETURNED = graph_of(  # results that only ops outside the family read
    *chain(*((0, n + 1) for n in range(9))), *(Op(20 + n, "Exp", (lt(n + 1, 2, 4),), (lt(50 + n),)) for n in range(9))
)
MEMORY = {"chain": (*long(5), 2 * BYTES), "gaps": (APART, GIVEN, 2 * 4 * 250_004), "unread": (UNREAD, GIVEN, 2 * 4 * 8)}
MEMORY |= {"returned": (RETURNED, GIVEN, 9 * 4 * 8)}


@pytest.mark.parametrize(("graph", "given", "least"), MEMORY.values(), ids=MEMORY)
def test_memory_bytes_is_the_most_that_results_take_at_one_time(
    graph: Graph, given: dict[int, Array], least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside what computing them takes."""
    assert peak_bytes(graph) == least
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
    assert least[0] > graph.run(given).results[2].nbytes
    assert graph.run(given, limits=Limits(memory_bytes=least[0])).results
    with pytest.raises(GraphError, match=r"computing it must fit the memory_bytes that are left, \d+; it takes \d+"):
        graph.run(given, limits=Limits(memory_bytes=least[0] - 1))
