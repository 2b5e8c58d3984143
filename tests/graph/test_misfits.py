"""What does not fit in graphs built in Python is refused; what is outside the family, or waits, says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import GraphError, InvalidAttributeError, InvalidDataTypeError, InvalidShapeError
from convgrad.graph import LogicalTensor, Op, from_json, to_json
from tests.graph.ops import (
    DST,
    FORWARD,
    GRADIENT,
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
from tests.support.places import GRAPHS
from tests.support.roles import BF16, Array, same

# -- refusals ----------------------------------------------------------------------------------------------------------


def forward(**attributes: Any) -> list[Op]:
    return [replace(FORWARD, attributes=PADDED | attributes)]


def relu(tensor: LogicalTensor) -> list[Op]:
    return [*chain((0, 1)), Op(5, "ReLU", (tensor,), (lt(6),))]


def only(dst: LogicalTensor) -> list[Op]:
    return [Op(0, "ReLU", (lt(0, 2, 3),), (dst,))]


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
    "attribute": (forward(pads=[1]), r"unknown attribute 'pads'. .*\[A1\]", InvalidAttributeError),
    "negative": (forward(pads_begin=[-1]), r"cropping.*\[A4\]", InvalidAttributeError),
    "ReLU's two inputs": ([Op(0, "ReLU", (lt(0, 2), lt(1, 2)), (lt(2),))], "src and makes dst; got 2 inputs", None),
    "ReLU's no input": ([Op(0, "ReLU", (), (lt(2),))], "takes src and makes dst; got 0 inputs and 1 outputs", None),
    "ReLU's two outputs": ([Op(0, "ReLU", (lt(0),), (lt(1), lt(2)))], "got 1 inputs and 2 outputs", None),
    "ReLU's attribute": ([replace(only(lt(1))[0], attributes={"a": 1.0})], "'a'. It has none", InvalidAttributeError),
    "ReLU's extents": (only(lt(1, 3, 2)), "its input makes dst f32 2x3; the graph has 1: f32 3x2", None),
    "ReLU's types": (only(lt(1, 2, 3, dtype="f16")), "of ReLU must have one type; got 0: f32 2x3, 1: f16 2x3", None),
    "ReLU's overlap": (only(lt(1, 2, 3, strides=(0, 1))), "the output must not overlap itself", None),
    "attribute, extents unknown": (
        [replace(F, inputs=(lt(0), WEIGHTS), attributes=ONE | {"pads": [1]})], "attribute 'pads'", InvalidAttributeError
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
    text = (GRAPHS / "relu_and_add_between_convolutions.json").read_text()
    graph = from_json(text.replace('"ReLU"', '"GELU"'))
    reasons = [f"{kind} is not an operator of the convolution family" for kind in ("GELU", "Add")]
    assert [p.reason for p in graph.partitions()] == [None, reasons[0], None, reasons[1], None]
    with pytest.raises(GraphError, match="relu_1: this partition cannot be compiled: GELU is not"):
        graph.partitions()[1].compile()
    given = {i: integers(*(graph.tensors[i].shape or ()), seed=i) for i in graph.inputs}
    outcome = graph.run(given)
    assert outcome.skipped == {1: reasons[0], 2: "waits for tensor 3 of relu_1", 3: reasons[1]}
    assert list(outcome.results) == [2, 7]  # GELU would read the one, nobody the other
    hidden = convgrad.convolution(given[0], given[1], pads_begin=1, pads_end=1)
    ran: dict[int, Array] = {}
    rest = graph.run(given | {3: np.maximum(hidden, 0)}, observe=lambda e: ran.update({e.op.id: e.result}))
    assert rest.skipped == {1: reasons[0], 3: reasons[1]}
    assert same(ran[2], convgrad.convolution(np.maximum(hidden, 0), given[4], pads_begin=1, pads_end=1))
    assert same(rest.results[7], outcome.results[7])


def test_an_op_behind_one_that_waits_waits_too() -> None:
    foreign = Op(8, "Wildcard", (lt(0, 2, 4),), (lt(1, 2, 4),))
    graph = graph_of(*chain((1, 2), (2, 3)), foreign)
    with pytest.raises(GraphError, match="no op can run; this one waits for tensor 1 of "):
        graph.run({0: integers(2, 4), 99: B})
    free = Op(9, "BiasAddBackward", (lt(50, 2, 4),), (lt(51),), {})
    skipped = graph_of(*graph.ops, free).run({0: integers(2, 4), 99: B, 50: integers(2, 4)}).skipped
    assert skipped[8] == "Wildcard is not an operator of the convolution family"
    assert skipped[0].startswith("waits for tensor 1 of ")
    assert skipped[1] == "waits for tensor 2 of BiasAdd 0"


OPAQUE = replace(DST, layout_type="opaque")


def test_an_opaque_output_is_not_supported() -> None:
    """Inputs that are not are in test_refused.py."""
    graph = graph_of(replace(F, outputs=(OPAQUE,)))
    reason = "Convolution on tensor 2 dst, whose layout is opaque, is not supported"
    assert [(one.reason, one.is_supported) for one in graph.partitions()] == [(reason, False)]
    outcome = graph.run({})
    assert (dict(outcome.skipped), dict(outcome.results), graph.inference.resolved) == ({7: reason}, {}, {})
    assert from_json(to_json(graph)).ops[0].attributes["strides"] == [1]
    with pytest.raises(GraphError, match="unknown attribute 'scale'"):
        graph_of(replace(F, outputs=(OPAQUE,), attributes=F.attributes | {"scale": 2}))


@pytest.mark.parametrize(("name", "given", "plain"), [
    ("strides", np.array([1]), [1]), ("pads_begin", np.array([0]), [0]), ("pads_end", np.array([], int), []),
    ("pads_end", (0,), [0]), ("groups", np.int64(1), 1),
])  # fmt: skip
def test_attributes_of_numpy_are_written_as_plain_ones(name: str, given: object, plain: object) -> None:
    graphs = [graph_of(replace(F, outputs=(lt(2),), attributes=ONE | {name: value})) for value in (given, plain)]
    assert to_json(graphs[0]) == to_json(graphs[1])
