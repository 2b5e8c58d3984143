"""Graphs as JSON: what is refused, with its path and in few words."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from convgrad.errors import GraphError
from convgrad.functional.call import problem_of_row
from convgrad.graph import Limits, draw, explain, from_json, resolve
from convgrad.graph import document as documents
from graph_documents import (
    BIG,
    DELETED,
    LONGEST_MESSAGE,
    STRIDED,
    Json,
    assert_round_trip,
    edited,
    good,
    load,
    one_op,
    refused,
    tensor,
    typed,
)

OP = '{"graph": [{"id": 0, "kind": "ReLU", %s}]}'
OF_FAMILY = '{"graph": [{"kind": "BiasAdd", "attrs": {"x": %s}}]}'
FINITE = "must be a finite number of at most 64 bits"

# Texts that are no document: the path and words of the message.
TEXTS: list[tuple[str | bytes, str, str]] = [
    ("", "$", "must be JSON; Expecting value: line 1 column 1"),
    ("  ", "$", "must be JSON"),
    ("hello", "$", "must be JSON"),
    ("{'graph': []}", "$", "must be JSON"),
    ('{"graph": [}', "$", "must be JSON"),
    ('{"graph": [],}', "$", "must be JSON"),
    ('{"graph": []} x', "$", "must be JSON; Extra data"),
    ('{"graph": "\n"}', "$", "must be JSON; Invalid control character"),
    ('{"graph": "\\x"}', "$", "must be JSON; Invalid \\escape"),
    ('{"graph": "abc', "$", "must be JSON; Unterminated string"),
    ('{"graph": 01}', "$", "must be JSON"),
    ('{"graph": +1}', "$", "must be JSON"),
    ("\ud800", "$", "must be JSON"),
    ("\x00", "$", "must be JSON"),
    (b"\xff\xfe{}", "$", "must be UTF-8"),
    (b'{"graph": "\xff"}', "$", "must be UTF-8"),
    (b'{"graph": "\xed\xa0\x80"}', "$", "must be UTF-8"),
    ("{}".encode("utf-16"), "$", "must be UTF-8"),
    ("{}".encode("utf-32-le"), "$", "must be JSON"),
    ("[]", "$", "must be an object with a list of ops under graph; got []"),
    ("null", "$", "must be an object with a list of ops under graph; got null"),
    ('"graph"', "$", "must be an object with a list of ops under graph"),
    ("0", "$", "must be an object with a list of ops under graph; got 0"),
    ("{}", "$", "must have graph; it has no keys"),
    ('{"Graph": []}', "$", "must have graph; it has Graph"),
    ('{"graph": []}', "$.graph", "must hold at least one op; got []"),
    ('{"graph": {}}', "$.graph", "must be a list; got {}"),
    ('{"graph": null}', "$.graph", "must be a list; got null"),
    ('{"graph": [1]}', "$.graph[0]", "must be an object; got 1"),
    ('{"graph": [{"kind": "ReLU"}, []]}', "$.graph[1]", "must be an object; got []"),
    ('{"graph": [], "graph": []}', "$", 'keys must differ; "graph" stands twice'),
    ('{"a": [{"b": 1, "b": 1}]}', "$.a[0]", 'keys must differ; "b" stands twice'),
    ('{"a": {"\\u001b": 1, "\\u001b": 1}}', "$.a", 'keys must differ; "\\u001b" stands twice'),
    (OP % '"kind": "ReLU"', "$.graph[0]", 'keys must differ; "kind" stands twice'),
    (OP % '"attrs": {"x": {}, "x": {}}', "$.graph[0].attrs", 'keys must differ; "x" stands twice'),
    (OP % '"attrs": {"x": {"type": 1, "type": 1}}', "$.graph[0].attrs.x", 'keys must differ; "type" stands twice'),
    (OP % '"inputs": [{"id": 1, "id": 1}]', "$.graph[0].inputs[0]", 'keys must differ; "id" stands twice'),
    ("NaN", "$", f"{FINITE}; got NaN"),
    ('{"a": Infinity}', "$.a", f"{FINITE}; got Infinity"),
    ('{"a": [0, -Infinity]}', "$.a[1]", f"{FINITE}; got -Infinity"),
    ('{"a": 1e999}', "$.a", f"{FINITE}; got 1e999"),
    ('{"a": -1e999}', "$.a", f"{FINITE}; got -1e999"),
    ('{"a": 1e99999999999999999999}', "$.a", FINITE),
    ('{"a": %s}' % ("1" * 5000), "$.a", f"{FINITE}; got 111"),
    ('{"a": 0.%s}' % ("1" * 5000), "$.a", f"{FINITE}; got 0.111"),
    (OP % '"attrs": {"x": {"type": "f32", "value": NaN}}', "$.graph[0].attrs.x.value", f"{FINITE}; got NaN"),
    (OF_FAMILY % '{"type": "f32[]", "value": [1e400]}', "$.graph[0].attrs.x.value[0]", FINITE),
    (OF_FAMILY % '{"type": "f32", "value": 1, "note": 1e400}', "$.graph[0].attrs.x.note", FINITE),
    (OP % '"note": 1e400', "$.graph[0].note", FINITE),
    (OP % '"attrs": {"x": {"type": "f32", "value": 1, "y": {"z": [-Infinity]}}}', "$.graph[0].attrs.x.y.z[0]", FINITE),
    ('{"gr\\u0061ph": [{"kind": "ReLU"}, []]}', "$.graph[1]", "must be an object; got []"),
    ('{"graph": [{"kind": "ReLU"}, ]}', "$", "must be JSON; Expecting value: line 1 column 30"),
    ('{"graph": [{"kind":\n"ReLU"}, {"kind": }]}', "$", "must be JSON; Expecting value: line 2 column 19"),
    ('{"graph": [{"kind":\n"ReLU"}], "é": }', "$", "must be JSON; Expecting value: line 2 column 16"),
    ('{"é": 0, "graph": [{"kind": "ReLU"} {"kind": "ReLU"}]}', "$", "must be JSON; Extra data: line 1 column 37"),
    ('{"graph": [{"kind": "ReLU"}', "$", "must be JSON; Expecting value: line 1 column 28"),
    (b'{"graph": [{"kind": "ReLU"}, {"kind": "\xff"}]}', "$", "must be UTF-8; invalid start byte at byte 39"),
    (OP % '"inputs": [{"id": 0, "shape": [1e999]}]', "$.graph[0].inputs[0].shape[0]", FINITE),
    (OP % ('"inputs": [{"id": 1%s}]' % ("0" * 30)), "$.graph[0].inputs[0].id", FINITE),
    ('{"\\u001b[31m\\ud800": NaN}', "$.?[31m?", FINITE),
]


@pytest.mark.parametrize(("text", "path", "words"), TEXTS, ids=[repr(row[0])[:60] for row in TEXTS])
def test_texts_that_are_refused(text: str | bytes, path: str, words: str) -> None:
    refused(text, path, words)


BITS, ID = "must be an integer of 64 bits", "must be a non-negative integer of 64 bits"
CONV, SRC = "graph/0", "graph/0/inputs/0"
PADS = "graph/0/attrs/pads_begin"
IN_CONV, IN_SRC, IN_PADS = "$.graph[0]", "$.graph[0].inputs[0]", "$.graph[0].attrs.pads_begin"

# Edits of the good document: place, value, the path and words of the message.
EDITS: list[tuple[str, Any, str, str]] = [
    ("version", 3, "$.version", "must be a string; got 3"),
    ("version", None, "$.version", "must be a string; got null"),
    ("engine_kind", 0, "$.engine_kind", "must be a string; got 0"),
    ("engine_kind", "tpu", "$", "engine_kind must be one of any, cpu, gpu; got 'tpu'"),
    ("fpmath_mode", True, "$.fpmath_mode", "must be a string; got true"),
    ("fpmath_mode", "\x1b[31m", "$", "fpmath_mode must be one of strict, bf16, f16, any, tf32; got '\\x1b[31m'"),
    *(
        ("fpmath_mode_apply_to_int", value, "$.fpmath_mode_apply_to_int", 'must be "true" or "false"; got')
        for value in ("True", "", 0, 1, 1.0, 0.0, None, [], {})
    ),
    ("input_ports", 0, "$.input_ports", "must be a list; got 0"),
    ("input_ports", None, "$.input_ports", "must be a list; got null"),
    ("input_ports", [0, True], "$.input_ports[1]", f"{ID}; got true"),
    ("input_ports", [0, 99], "$.input_ports", "must be tensors that ops read and none makes; got 99"),
    ("input_ports", [2], "$.input_ports", "must be tensors that ops read and none makes; got 2"),
    ("output_ports", {}, "$.output_ports", "must be a list; got {}"),
    ("output_ports", [-1], "$.output_ports[0]", f"{ID}; got -1"),
    ("output_ports", [2**64], "$.output_ports[0]", f"{ID}; got 18446744073709551616"),
    ("output_ports", [5, 99], "$.output_ports", "must be tensors that ops make; got 99"),
    ("graph", {"0": {}}, "$.graph", "must be a list; got"),
    *((f"{CONV}/id", value, "$.graph[0].id", ID) for value in (-1, 2**64, 1.0, True, "0", None, [])),
    (f"{CONV}/id", 8, "$.graph[1]", "ids of ops must differ; conv has 8 too"),
    (f"{CONV}/name", 5, "$.graph[0].name", "must be a string; got 5"),
    (f"{CONV}/kind", DELETED, IN_CONV, "must have kind; it has id, name, attrs, inputs, outputs"),
    (f"{CONV}/kind", None, "$.graph[0].kind", "must be a string; got null"),
    (f"{CONV}/attrs", [], "$.graph[0].attrs", "must be an object; got []"),
    (f"{CONV}/inputs", {}, "$.graph[0].inputs", "must be a list; got {}"),
    (f"{CONV}/inputs", [], IN_CONV, "Convolution takes src, weights, [bias] and makes dst; got 0 inputs"),
    (f"{CONV}/outputs", 1, "$.graph[0].outputs", "must be a list; got 1"),
    (f"{CONV}/outputs", [], IN_CONV, "got 2 inputs and 0 outputs"),
    (f"{CONV}/outputs/0", None, "$.graph[0].outputs[0]", "must be an object; got null"),
    (SRC, 0, IN_SRC, "must be an object; got 0"),
    (f"{SRC}/id", DELETED, IN_SRC, "must have id; it has dtype, shape, stride, layout_type, property_type"),
    *((f"{SRC}/id", value, f"{IN_SRC}.id", ID) for value in (-1, 2**64, 0.0, False, "0", None)),
    (f"{SRC}/dtype", 1, f"{IN_SRC}.dtype", "must be a string; got 1"),
    (f"{SRC}/dtype", "f64", IN_SRC, "dtype must be one of undef, f32, bf16, f16, s32"),
    (f"{SRC}/dtype", "\ud800\x07", IN_SRC, "got '\\ud800\\x07'"),
    (f"{SRC}/dtype", "bf16", IN_CONV, "all tensors of Convolution must have one type; got 0: bf16 2x5x3, 1: f32 3x3x4"),
    (f"{SRC}/layout_type", "blocked", IN_SRC, "layout_type must be one of undef, any, strided, opaque; got 'blocked'"),
    (f"{SRC}/layout_type", [], f"{IN_SRC}.layout_type", "must be a string; got []"),
    (f"{SRC}/property_type", "x", IN_SRC, "property_type must be one of undef, variable, constant, host_scalar; got"),
    (f"{SRC}/property_type", {}, f"{IN_SRC}.property_type", "must be a string; got {}"),
    (f"{SRC}/shape", 5, f"{IN_SRC}.shape", "must be a list; got 5"),
    (f"{SRC}/shape", None, f"{IN_SRC}.shape", "must be a list; got null"),
    *((f"{SRC}/shape", [2, v, 3], f"{IN_SRC}.shape[1]", BITS) for v in (True, 5.0, "5", None, [], 2**63, -(2**63) - 1)),
    (f"{SRC}/shape", [1] * 65, IN_SRC, "dims must be at most 64 integers below 2^63; got (1, 1,"),
    (f"{SRC}/shape", [2, 5], IN_CONV, "Convolution"),
    (f"{SRC}/shape", [], IN_CONV, "Convolution"),
    (f"{SRC}/shape", [2**62, 2**62, 3], IN_SRC, "dims must make dense strides below 2^63"),
    (f"{SRC}/shape", [2, 2**62, 3], IN_SRC, "dims must make dense strides below 2^63"),
    (f"{SRC}/stride", "x", f"{IN_SRC}.stride", 'must be a list; got "x"'),
    *((f"{SRC}/stride", [15, v, 1], f"{IN_SRC}.stride[1]", BITS) for v in (True, 3.0, "3", None, 2**63)),
    (f"{SRC}/stride", [15, -3, 1], IN_SRC, "strides must be non-negative integers below 2^63; got (15, -3, 1)"),
    (f"{SRC}/stride", [15, 3], IN_SRC, "strides must be one per axis, 3 here; got 2"),
    (f"{SRC}/stride", [], IN_SRC, "strides must be one per axis, 3 here; got 0"),
    (f"{SRC}/stride", [1] * 10**5, IN_SRC, "strides must be one per axis, 3 here; got 100000"),
    (
        "graph/1/inputs/0/shape",
        [2, 5, 4],
        "$.graph[1]",
        "tensor 2 must have one description; got dims (2, 5, 4) and None",
    ),
    ("graph/1/inputs/0/dtype", "f16", "$.graph[1]", "tensor 2 must have one description; got dtype f16 and f32"),
    ("graph/1/inputs/0/layout_type", "any", "$.graph[1]", "got layout_type any and strided"),
    ("graph/1/inputs/0/property_type", "constant", "$.graph[1]", "got property_type constant and undef"),
    ("graph/2/outputs/0/id", 4, "$.graph[2]", "a tensor must have one producer; bias makes 4 too"),
    (PADS, [1], IN_PADS, "must be an object; got [1]"),
    (f"{PADS}/type", DELETED, IN_PADS, "must have type; it has value"),
    (f"{PADS}/value", DELETED, IN_PADS, "must have value; it has type"),
    (PADS, {}, IN_PADS, "must have type; it has no keys"),
    *(
        (f"{PADS}/type", value, f"{IN_PADS}.type", "must be one of bool, s64, s64[], f32, f32[], string; got")
        for value in ("f64", "", "S64[]", "f32[] ", "\x1b")
    ),
    (f"{PADS}/type", ["s64"], f"{IN_PADS}.type", 'must be a string; got ["s64"]'),
    *((PADS, {"type": "bool", "value": v}, IN_CONV, "pads_begin must be a list of integers") for v in (True, 0, 1)),
    *(
        (PADS, {"type": "bool", "value": v}, f"{IN_PADS}.value", "must be 0 or 1, or false or true; got")
        for v in (2, -1, 0.5, 1.0, "true", "0", None, [1])
    ),
    *((PADS, {"type": "s64", "value": v}, f"{IN_PADS}.value", BITS) for v in (True, 1.0, "1", None, [1], 2**63)),
    *((PADS, {"type": "s64[]", "value": v}, f"{IN_PADS}.value", "must be a list; got") for v in (1, None, "1", {})),
    *((PADS, {"type": "s64[]", "value": [1, v]}, f"{IN_PADS}.value[1]", BITS) for v in (True, 1.5, "1", None, [])),
    *((PADS, {"type": "f32", "value": v}, f"{IN_PADS}.value", "must be a number; got") for v in (True, "1", None, [])),
    (PADS, {"type": "f32[]", "value": 1.0}, f"{IN_PADS}.value", "must be a list; got 1.0"),
    (PADS, {"type": "f32[]", "value": [1.0, False]}, f"{IN_PADS}.value[1]", "must be a number; got false"),
    *((PADS, {"type": "string", "value": v}, f"{IN_PADS}.value", "must be a string; got") for v in (1, None, [], True)),
    (PADS, {"type": "s64[]", "value": [1, 1]}, IN_CONV, "pads_begin must have one value per spatial axis, 1 here"),
    (PADS, {"type": "string", "value": "\x1b\ud800"}, IN_CONV, "pads_begin must be a list of integers"),
    (PADS, {"type": "f32[]", "value": [1]}, IN_CONV, "pads_begin must be a list of integers"),
    ("graph/0/attrs/groups", {"type": "s64", "value": 0}, IN_CONV, "groups must be positive"),
    ("graph/0/attrs/groups", {"type": "bool", "value": True}, IN_CONV, "groups must be an integer"),
    ("graph/0/attrs/auto_pad", {"type": "string", "value": "\x1b\u202e"}, IN_CONV, "got '\\x1b\\u202e'"),
    ("graph/0/attrs/strides", DELETED, IN_CONV, "strides is required"),
    ("graph/0/attrs/\x1b[31m\ud800", {"type": "s64", "value": 1}, IN_CONV, "every attribute must be one it has"),
    ("graph/0/attrs/\x1b[31m\ud800", {"type": "s64", "value": 1.5}, "$.graph[0].attrs.?[31m?.value", BITS),
    ("graph/0/outputs/0/shape", [2, 4, 4], "$.graph[1]", "tensor 2 must have one description"),
    ("graph/2/outputs/0/dtype", "f8", "$.graph[2].outputs[0]", "dtype must be one of"),
    (f"{CONV}/name", "\x1b[31m\ud800\n", "$.graph[0] ?[31m??", "strides is required"),
]


@pytest.mark.parametrize(
    ("place", "value", "path", "words"),
    EDITS,
    ids=[ascii(f"{place}={'DELETED' if value is DELETED else value}")[1:60] for place, value, *_ in EDITS],
)
def test_edits_that_are_refused(place: str, value: Any, path: str, words: str) -> None:
    document = edited(place, value)
    if place.startswith("graph/"):
        del document["input_ports"], document["output_ports"]
    if place.endswith("/name"):  # which says nothing by itself
        document["graph"][0]["attrs"].pop("strides")
    refused(document, path, words)


# Whole documents: the path and words of the message.
DOCUMENTS: dict[str, tuple[Json, str, str]] = {
    "output of other extents": (
        one_op("Convolution", [tensor(0, [1, 5, 1]), tensor(1, [3, 1, 1])], tensor(2, [1, 4, 1]), STRIDED),
        "$.graph[0] Convolution 0",
        "its inputs and attributes make dst f32 1x3x1; the graph has 2: f32 1x4x1",
    ),
    "output of another rank of strides": (
        one_op("Convolution", [tensor(0, [1, 5, 1]), tensor(1, [3, 1, 1])], tensor(2, stride=[1, 1]), STRIDED),
        "$.graph[0]",
        "make dst f32 1x3x1; the graph has 2: f32 ?",
    ),
    "output of another type": (
        one_op("BiasAdd", [tensor(0, [1, 5, 1]), tensor(1, [1])], tensor(2, [1, 5, 1], "s8")),
        "$.graph[0] BiasAdd 0",
        "all tensors of BiasAdd must have one type",
    ),
    "shape input of floats": (
        one_op("ConvolutionBackwardData", [tensor(0), tensor(1), tensor(2, [3])], tensor(3), STRIDED),
        "$.graph[0] ConvolutionBackwardData 0",
        "dst_shape must be a 1-D tensor of s32; got 2: f32 3",
    ),
    "strides of more axes than there may be": (
        one_op("ReLU", [tensor(0, stride=[1] * 65)], tensor(1)),
        "$.graph[0].inputs[0]",
        "strides must be one per axis, at most 64 here; got 65",
    ),
    "op that reads itself": (
        one_op("ReLU", [tensor(0)], tensor(0)),
        "$.graph[0] ReLU 0",
        "a graph must have no cycles; ops that wait for each other are among ReLU 0",
    ),
    "two ops in a cycle": (
        {
            "graph": [
                {"kind": "ReLU", "name": "\x1bfirst", "inputs": [tensor(0)], "outputs": [tensor(1)]},
                {"kind": "ReLU", "name": "second", "inputs": [tensor(1)], "outputs": [tensor(0)]},
            ]
        },
        "$.graph[1] second",
        "a graph must have no cycles; ops that wait for each other are among ?first, second",
    ),
    "one op makes a tensor twice": (
        {"graph": [{"kind": "Split", "outputs": [tensor(1), tensor(1)]}]},
        "$.graph[0] Split 0",
        "a tensor must have one producer; Split 0 makes 1 too",
    ),
    "one op reads two descriptions": (
        {"graph": [{"kind": "Sum", "inputs": [tensor(1, [2]), tensor(1, [2], "f16")]}]},
        "$.graph[0] Sum 0",
        "tensor 1 must have one description; got dtype f16 and f32",
    ),
    "a hundred thousand unknown keys": (
        {f"key{number}": 0 for number in range(10**5)},
        "$",
        "must have graph; it has key0, key1",
    ),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_that_are_refused(name: str) -> None:
    refused(*DOCUMENTS[name])


def chain(length: int, closed: bool = False) -> Json:
    makes = [(number + 1) % length if closed else number + 1 for number in range(length)]
    ops = [
        {"id": n, "kind": "ReLU", "inputs": [tensor(n, [4])], "outputs": [tensor(made, [4])]}
        for n, made in enumerate(makes)
    ]
    return {"graph": ops[::-1]}


def test_long_chains_and_cycles() -> None:
    graph = load(chain(5000))
    assert [partition.op.id for partition in graph.partitions()] == list(range(5000))
    assert len(graph.run({0: np.zeros(4, np.float32)}).skipped) == 5000
    refused(chain(5000, closed=True), "$.graph[4999] ReLU 0", "ops that wait for each other are among ReLU 4999")


# Arguments of Limits, the path and words of the message.
LIMITS: list[tuple[Json, str, str]] = [
    ({"file_bytes": 10}, "$", "the text must be at most 10 bytes (file_bytes); it is longer"),
    ({"nesting": 4}, "$", "must nest at most 4 deep (nesting); it is deeper at character"),
    ({"ops": 2}, "$.graph", "must hold at most 2 ops; got 3"),
    ({"op_bytes": 300}, "$.graph[0]", "an op must be at most 300 bytes (op_bytes); got "),
]


@pytest.mark.parametrize(("limits", "path", "words"), LIMITS)
def test_limits(limits: Json, path: str, words: str) -> None:
    refused(good(), path, words, Limits(**limits))
    refused(json.dumps(good()).encode(), path, words, Limits(**limits))
    assert from_json(json.dumps(good()), Limits(file_bytes=10_000, nesting=7, ops=3, op_bytes=1000))


OPS = "must hold at most 1000 ops; got "
AROUND = "all but the ops must be at most 10000 bytes (op_bytes); got "
OF_OP = "an op must be at most 10000 bytes (op_bytes); got "

# How a text begins, what it repeats and how it ends; the path and words of what its brackets and commas alone tell.
HUGE: list[tuple[str, str, str, str, str]] = [
    ('{"graph": [', "{},", "{}]}", "$.graph", OPS),
    ('{"graph": [', "[],", "[]]}", "$.graph", OPS),
    ('{"input_ports": [0], "gr": "[{", "graph" :\n[', "7,", '7], "b": []}', "$.graph", OPS),
    ("[", "[[]],", "[]]", "$", AROUND),
    ('{"a": [', "[[[[]]]],", '[]], "graph": [{}]}', "$", AROUND),
    ('{"x\\"graph": [', "{},", "{}]}", "$", AROUND),
    ('{"graph": [{}, {"a": [', '{"a":0},', "{}]}]}", "$.graph[1]", OF_OP),
    ('{"graph": [{}, {"a": "', '\\"],', '"}]}', "$.graph[1]", OF_OP),
    ('{"graph": [{}, ', "[" * 32, "]", "$", "must nest at most 32 deep (nesting); it is deeper at character 45"),
]


@pytest.mark.parametrize(("head", "item", "tail", "path", "words"), HUGE, ids=[row[0] + row[1] for row in HUGE])
def test_what_is_too_large_is_refused_before_anything_is_built(
    head: str, item: str, tail: str, path: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "_QUICK", None)
    text = head + item * (4_000_000 // len(item)) + tail
    tracemalloc.start()
    refused(text, path, words, Limits(ops=1000, op_bytes=10_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 * len(text), f"{peak / len(text):.1f} bytes a character"


def test_documents_of_millions_of_objects_are_refused_in_little_memory() -> None:
    """60 MB of them; built, they take gigabytes and most of a minute."""
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (2 << 30,) * 2)\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (30, 30))\n"
        "from convgrad.graph import from_json; from_json(b'{\"graph\": [' + b'{},' * 20_000_000 + b'{}]}')"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert "GraphError: $.graph: must hold at most 100000 ops; got 20000001" in done.stderr


def test_ops_that_are_alike_pose_one_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    posed = []

    def counted(*arguments: Any) -> Any:
        posed.append(arguments)
        return problem_of_row(*arguments)

    monkeypatch.setattr(resolve, "problem_of_row", counted)
    tensors = [tensor(n, [1, 5, 1]) for n in range(101)]
    weights = tensor(200, [3, 1, 1])
    layer = typed(strides=[1], dilations=[1], auto_pad="SAME_UPPER", groups=1)
    ops = [
        {
            "id": n,
            "kind": "Convolution",
            "attrs": dict(layer),
            "inputs": [tensors[n], weights],
            "outputs": [tensors[n + 1]],
        }
        for n in range(100)
    ]
    assert len(load({"graph": ops}).inference.resolved) == 100
    assert len(posed) == 1
    ops[50]["attrs"]["groups"] = {"type": "bool", "value": 1}  # equal to 1, and no integer
    refused({"graph": ops}, "$.graph[50]", "groups must be an integer")


@pytest.mark.parametrize(
    "text", ['{"a": "%s", "graph": [{"kind": "x"}]}', '{"graph": [{"kind": "x"}], "a": "%s"}', '["%s"]']
)
def test_what_is_around_the_ops_is_limited_too(text: str) -> None:
    words = "all but the ops must be at most 100 bytes (op_bytes); got 1"
    refused(text % ("x" * 100), "$", words, Limits(op_bytes=100))


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":', '["]", {"}": '])
@pytest.mark.parametrize("depth", [40, 10**5])
def test_nesting_is_limited_before_it_costs_anything(opening: str, depth: int) -> None:
    refused(opening * depth, "$", "must nest at most 32 deep (nesting); it is deeper at character")


def test_brackets_in_strings_do_not_nest() -> None:
    name = '[{"\\' * 100
    assert load(edited("graph/0/name", name)).ops[0].name == name


def test_a_nesting_that_python_cannot_follow_is_a_graph_error() -> None:
    refused("[" * 10**5, "$", "nest", Limits(nesting=10**6))


# Tensors that an op of the family cannot take: read, with a reason.
UNSUPPORTED: list[tuple[Json, str]] = [
    ({"dtype": "s8"}, "Convolution of s8 (tensor 0) is not supported; f32, bf16 and f16 are"),
    ({"dtype": "boolean"}, "Convolution of boolean (tensor 0) is not supported; f32, bf16 and f16 are"),
    ({"layout_type": "opaque"}, "Convolution on tensor 0, whose layout is opaque, is not supported"),
]


@pytest.mark.parametrize(("fields", "reason"), UNSUPPORTED, ids=[str(row[0]) for row in UNSUPPORTED])
def test_unsupported_tensors_have_a_reason(fields: Json, reason: str) -> None:
    tensors = [tensor(number, [3, 1, 1], **fields) for number in range(2)]
    graph = load(one_op("Convolution", tensors, {**tensor(2), "dtype": fields.get("dtype", "f32")}, STRIDED))
    (partition,) = graph.partitions()
    assert (partition.reason, graph.run({}).skipped) == (reason, {0: reason})
    with pytest.raises(GraphError, match="^" + re.escape("$.graph[0] Convolution 0: this partition cannot be")):
        partition.compile()
    assert_round_trip(graph)


def test_a_wide_graph_is_explained_in_few_words() -> None:
    graph = load(one_op("Concat", [tensor(number) for number in range(10_000)], tensor(10_000)))
    assert len(explain(graph)) < 200_000
    with pytest.raises(GraphError, match="a picture must have at most 200 ops and twice as many tensors"):
        draw(graph, "never.png")


def test_names_from_a_file_are_made_printable() -> None:
    graph = load(one_op("\x1b[31m\ud800", [tensor(0)], tensor(1)))
    (partition,) = graph.partitions()
    with pytest.raises(GraphError, match="this partition cannot be compiled") as caught:
        partition.compile()
    for text in (graph.ops[0].label, str(caught.value), partition.reason or "", graph.run({}).skipped[0]):
        assert text.isprintable(), ascii(text)


TOO_LONG: dict[str, Callable[[], Any]] = {
    "name": lambda: edited("graph/0/name", BIG),
    "kind": lambda: edited("graph/0/kind", BIG),
    "other kind": lambda: edited("graph/2/kind", BIG),
    "dtype": lambda: edited(f"{SRC}/dtype", BIG),
    "layout": lambda: edited(f"{SRC}/layout_type", BIG),
    "engine": lambda: edited("engine_kind", BIG),
    "version": lambda: edited("version", BIG),
    "key": lambda: edited("graph/0/attrs/" + BIG, {"type": "s64", "value": 1}),
    "key, wrong value": lambda: edited("graph/0/attrs/" + BIG, 0),
    "unknown key": lambda: {BIG: BIG},
    "type": lambda: edited(f"{PADS}/type", BIG),
    "string for a list": lambda: edited(PADS, {"type": "s64[]", "value": BIG}),
    "string for an id": lambda: edited(f"{SRC}/id", BIG),
    "attribute": lambda: edited("graph/0/attrs/auto_pad", {"type": "string", "value": BIG}),
    "list": lambda: edited(f"{PADS}/value", [1] * 10**6),
    "list of strides": lambda: edited(f"{SRC}/stride", [1] * 10**6),
    "list of extents": lambda: edited(f"{SRC}/shape", [1] * 10**6),
    "open string": lambda: '{"' + BIG,
    "escapes": lambda: '{"a": "' + '\\"' * 10**7,
    "digits": lambda: '{"a": ' + "1" * 10**7 + "}",
    "digits of a fraction": lambda: '{"a": 0.' + "1" * 10**7 + "}",
}


@pytest.mark.parametrize("name", TOO_LONG)
def test_ten_megabytes_of_anything_is_read_or_refused_in_few_words(name: str) -> None:
    document = TOO_LONG[name]()
    text = document if isinstance(document, str) else json.dumps(document)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        graph = from_json(text, Limits(op_bytes=1 << 26))
    except GraphError as error:
        texts = [str(error)]
    else:
        texts = [text for p in graph.partitions() for text in (p.reason or "", p.op.label)]
    assert max(map(len, texts)) < LONGEST_MESSAGE, texts[0][:100]
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert growth < 300_000, f"{growth / 1000} MB"
