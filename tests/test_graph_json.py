"""Graphs as JSON: what is read, what is refused and how, what is written, and that reading it back changes nothing."""

from __future__ import annotations

import copy
import json
import re
import resource
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convgrad.errors import GraphError
from convgrad.formats import FORMATS
from convgrad.functional.call import problem_of_row
from convgrad.graph import Graph, Header, Limits, LogicalTensor, Op, draw, explain, from_json, read, to_json, writer
from convgrad.graph.limits import DEFAULT_LIMITS
from convgrad.graph.model import operator_of
from convgrad.spec.operators import OPERATORS, Operator
from helpers import Case, random_case

HERE = Path(__file__).parent
GRAPHS = sorted((HERE / "graphs").glob("*.json"))
EXAMPLES = sorted((HERE.parent / "examples").glob("*.json"))
CASES = HERE.parents[1] / "shared" / "cases"
LEAST_GRAPHS = 5

UNKNOWN = -(2**63)
BIG = "x" * 10**7
LONGEST_MESSAGE = 2000
DELETED = object()

Json = dict[str, Any]


def tensor(number: int, shape: list[int] | None = None, dtype: str = "f32", **fields: Any) -> Json:
    return {"id": number, "dtype": dtype, "shape": [UNKNOWN] if shape is None else shape, **fields}


def typed(**values: Any) -> Json:
    """Return attributes: lists of integers, integers and strings."""
    names = {list: "s64[]", int: "s64", str: "string", bool: "bool", float: "f32"}
    return {name: {"type": names[type(value)], "value": value} for name, value in values.items()}


def good() -> Json:
    """Return a convolution, its bias and a ReLU behind them, every field given."""
    rest = {"stride": [UNKNOWN], "layout_type": "strided", "property_type": "undef"}
    conv = typed(strides=[1], dilations=[1], pads_begin=[1], pads_end=[1], auto_pad="None", groups=1)
    return {
        "version": "3.0.0",
        "engine_kind": "cpu",
        "fpmath_mode": "strict",
        "fpmath_mode_apply_to_int": "false",
        "input_ports": [0, 1, 3],
        "output_ports": [5],
        "graph": [
            {
                "id": 7,
                "name": "conv",
                "kind": "Convolution",
                "attrs": conv,
                "inputs": [tensor(0, [2, 5, 3], **rest), tensor(1, [3, 3, 4], **rest)],
                "outputs": [tensor(2, **rest)],
            },
            {
                "id": 8,
                "name": "bias",
                "kind": "BiasAdd",
                "attrs": {},
                "inputs": [tensor(2, **rest), tensor(3, [4], **rest)],
                "outputs": [tensor(4, **rest)],
            },
            {
                "id": 9,
                "name": "relu",
                "kind": "ReLU",
                "attrs": typed(alpha=0.5),
                "inputs": [tensor(4, **rest)],
                "outputs": [tensor(5, **rest)],
            },
        ],
    }


def one_op(kind: str, inputs: list[Json], output: Json, attributes: Json | None = None) -> Json:
    return {"graph": [{"id": 0, "kind": kind, "attrs": attributes or {}, "inputs": inputs, "outputs": [output]}]}


def edited(place: str, value: Any) -> Json:
    """Return the good document with one place changed or deleted; a place is keys and indices between slashes."""
    document = good()
    *outer, last = [int(key) if key.isdecimal() else key for key in place.split("/")]
    entry: Any = document
    for key in outer:
        entry = entry[key]
    if value is DELETED:
        del entry[last]
    else:
        entry[last] = value
    return document


def load(document: Json) -> Graph:
    return from_json(json.dumps(document))


def refused(document: Any, path: str, words: str, limits: Limits = DEFAULT_LIMITS) -> None:
    """Assert that a text or document is a GraphError whose short, printable text has the path and the words."""
    text = document if isinstance(document, str | bytes) else json.dumps(document)
    with pytest.raises(GraphError, match=re.escape(words)) as caught:
        from_json(text, limits)
    message = str(caught.value)
    assert message.isprintable(), ascii(message[:200])
    assert len(message) < LONGEST_MESSAGE, message[:200]
    assert message.startswith(path), message
    assert message[len(path)] in ": ", message


def test_the_good_document_is_good() -> None:
    graph = load(good())
    assert graph.is_finalized
    assert (graph.inputs, graph.outputs) == ((0, 1, 3), (5,))
    assert [op.kind for op in graph.ops] == ["Convolution", "BiasAdd", "ReLU"]
    assert [str(graph.tensors[n]) for n in (2, 4)] == ["2: f32 2x5x4", "4: f32 2x5x4"]
    assert [op.where for op in graph.ops] == ["$.graph[0]", "$.graph[1]", "$.graph[2]"]
    assert graph.inference.reasons == {9: "ReLU is not an operator of the convolution family"}


# -- what is read ------------------------------------------------------------------------------------------------------


def test_every_field_that_has_a_default_may_be_missing() -> None:
    graph = load({"graph": [{"kind": "ReLU"}, {"kind": "Sum", "inputs": [{"id": 0}]}]})
    assert graph.header == Header("3.0.0", "cpu", "strict", False)
    assert graph.ops[0] == Op(0, "ReLU", (), ())
    assert graph.ops[1] == Op(1, "Sum", (LogicalTensor(0, "undef", None, None, "strided", "undef"),), ())
    assert (graph.inputs, graph.outputs) == ((0,), ())


OPTIONAL = ["version", "engine_kind", "fpmath_mode", "fpmath_mode_apply_to_int", "input_ports", "output_ports"]
OPTIONAL += ["graph/0/name", "graph/1/attrs", "graph/0/outputs/0/dtype", "graph/2/inputs", "graph/2/outputs"]
OPTIONAL += [f"graph/0/inputs/0/{field}" for field in ("dtype", "stride", "layout_type", "property_type")]


@pytest.mark.parametrize("place", OPTIONAL)
def test_a_missing_field_is_its_default(place: str) -> None:
    document = edited(place, DELETED)
    if place.startswith("graph/2") or "dtype" in place:
        document.pop("output_ports", None)
    if place.endswith("outputs/0/dtype"):  # of the tensor, wherever it stands
        del document["graph"][1]["inputs"][0]["dtype"]
    assert load(document).tensors[2].shape == (2, 5, 4)


def test_unknown_keys_are_ignored_everywhere() -> None:
    document = good()
    entries = [document, document["graph"][0], document["graph"][0]["inputs"][0]]
    for entry in (*entries, document["graph"][0]["attrs"]["groups"]):
        entry.update({"comment": [{"a": None}], "": 1.5, "Kind": 2**63 - 1, "grüße": True})
    graph = load(document)
    assert graph.ops == load(good()).ops
    assert graph.header == load(good()).header


def test_attributes_may_have_type_and_value_in_any_order() -> None:
    document = good()
    attributes = document["graph"][0]["attrs"]
    for name, entry in attributes.items():
        attributes[name] = dict(reversed(entry.items()))
    assert '{"value"' in json.dumps(document)
    assert load(document).ops == load(good()).ops


def test_attributes_of_a_dumps_bookkeeping_are_dropped() -> None:
    extra = typed(matched=True, backend="dnnl_backend", partition_id=3, op_depth=5)
    document = good()
    for op in document["graph"]:
        op["attrs"] |= extra
    assert load(document).ops == load(good()).ops


# Descriptions of a tensor, and what they are read as: dims, strides, shape.
TENSORS: list[tuple[Json, Any, Any, Any]] = [
    ({}, None, None, None),
    ({"shape": [UNKNOWN], "stride": [UNKNOWN]}, None, None, None),
    ({"shape": [UNKNOWN]}, None, None, None),
    ({"shape": [-1]}, None, None, None),
    ({"shape": []}, (), (), ()),
    ({"shape": [], "stride": []}, (), (), ()),
    ({"shape": [], "stride": [UNKNOWN]}, (), (), ()),
    ({"shape": [2, -1, 4]}, (2, None, 4), None, None),
    ({"shape": [UNKNOWN, UNKNOWN]}, (None, None), None, None),
    ({"shape": [2, -7, 4], "stride": [4, 4, 1]}, (2, None, 4), (4, 4, 1), None),
    ({"shape": [2, 3, 4]}, (2, 3, 4), (12, 4, 1), (2, 3, 4)),
    ({"shape": [2, 3, 4], "stride": [UNKNOWN]}, (2, 3, 4), (12, 4, 1), (2, 3, 4)),
    ({"shape": [2, 3, 4], "stride": [1, 2, 6]}, (2, 3, 4), (1, 2, 6), (2, 3, 4)),
    ({"shape": [2, 3], "stride": [0, 0]}, (2, 3), (0, 0), (2, 3)),
    ({"shape": [2, 0, 4]}, (2, 0, 4), (4, 4, 1), (2, 0, 4)),
    ({"shape": [2, 3], "layout_type": "any"}, (2, 3), None, (2, 3)),
    ({"shape": [2, 3], "layout_type": "opaque"}, (2, 3), None, (2, 3)),
    ({"shape": [2**63 - 1]}, (2**63 - 1,), (1,), (2**63 - 1,)),
    ({"shape": [1] * 64}, (1,) * 64, (1,) * 64, (1,) * 64),
]


@pytest.mark.parametrize(("fields", "dims", "strides", "shape"), TENSORS, ids=[str(row[0])[:60] for row in TENSORS])
def test_shapes_and_strides(fields: Json, dims: Any, strides: Any, shape: Any) -> None:
    (op,) = load({"graph": [{"kind": "ReLU", "inputs": [{"id": 0, **fields}]}]}).ops
    assert (op.inputs[0].dims, op.inputs[0].strides, op.inputs[0].shape) == (dims, strides, shape)


def test_ids_have_64_bits() -> None:
    largest = 2**64 - 1
    document = one_op("ReLU", [tensor(largest)], tensor(2**63))
    document["graph"][0]["id"] = largest
    document |= {"input_ports": [largest], "output_ports": [2**63]}
    graph = load(document)
    assert (graph.ops[0].id, graph.inputs, graph.outputs) == (largest, (largest,), (2**63,))
    assert from_json(to_json(graph)).ops == graph.ops


TRUTHS = [(True, True), (False, False), ("true", True), ("false", False)]


@pytest.mark.parametrize(("value", "expected"), TRUTHS)
def test_fpmath_mode_apply_to_int_is_a_string_or_a_literal(value: object, expected: bool) -> None:
    assert load({**good(), "fpmath_mode_apply_to_int": value}).header.fpmath_mode_apply_to_int is expected


VALUES: list[tuple[str, Any, Any]] = [
    ("bool", True, True),
    ("s64", -(2**63), -(2**63)),
    ("s64", 2**63 - 1, 2**63 - 1),
    ("s64[]", [], []),
    ("s64[]", [1, -2], [1, -2]),
    ("f32", 1, 1.0),
    ("f32", -1.5e-30, -1.5e-30),
    ("f32[]", [1, 2.5], [1.0, 2.5]),
    ("f32[]", [], []),
    ("string", "", ""),
    ("string", "ünï", "ünï"),
]


@pytest.mark.parametrize(("kind", "given", "expected"), VALUES)
def test_attribute_values(kind: str, given: Any, expected: Any) -> None:
    document = one_op("ReLU", [], tensor(0), {"a": {"type": kind, "value": given}})
    value = load(document).ops[0].attributes["a"]
    assert value == expected
    assert type(value) is type(expected)
    if isinstance(value, list):
        assert [type(item) for item in value] == [type(item) for item in expected]


def test_text_of_every_kind_is_read(tmp_path: Path) -> None:
    document = edited("graph/0/name", "grüße")
    text = json.dumps(document, ensure_ascii=False)
    expected = load(document).ops
    encodings = (text.encode(), text.encode("utf-8-sig"), json.dumps(document).encode(), b" \r\n\t" + text.encode())
    for data in encodings:
        assert from_json(data).ops == expected
        (tmp_path / "a.json").write_bytes(data)
        assert read(tmp_path / "a.json").ops == read(str(tmp_path / "a.json")).ops == expected


def test_a_file_that_cannot_be_read_says_which(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[]")
    for place, words in (
        (tmp_path / "no", "No such file"),
        (tmp_path, "directory"),
        (tmp_path / "a.json", "$: must be an"),
    ):
        with pytest.raises(GraphError, match=re.escape(words)) as caught:
            read(place)
        assert str(caught.value).startswith(f"{place}: ")
    (tmp_path / "a.json").write_text("[" * 6)
    with pytest.raises(GraphError, match=r"a\.json: .*at most 5 bytes"):
        read(tmp_path / "a.json", Limits(file_bytes=5))


# -- what is refused ---------------------------------------------------------------------------------------------------

OP = '{"graph": [{"id": 0, "kind": "ReLU", %s}]}'
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
    (OP % '"attrs": {"x": {"type": "f32[]", "value": [1e400]}}', "$.graph[0].attrs.x.value[0]", FINITE),
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
    (PADS, {"type": "bool", "value": 1}, f"{IN_PADS}.value", "must be true or false; got 1"),
    (PADS, {"type": "bool", "value": "true"}, f"{IN_PADS}.value", 'must be true or false; got "true"'),
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


STRIDED = typed(strides=[1], dilations=[1])

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
]


@pytest.mark.parametrize(("limits", "path", "words"), LIMITS)
def test_limits(limits: Json, path: str, words: str) -> None:
    refused(good(), path, words, Limits(**limits))
    refused(json.dumps(good()).encode(), path, words, Limits(**limits))
    assert from_json(json.dumps(good()), Limits(file_bytes=10_000, nesting=7, ops=3))


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
        graph = from_json(text)
    except GraphError as error:
        texts = [str(error)]
    else:
        texts = [text for p in graph.partitions() for text in (p.reason or "", p.op.label)]
    assert max(map(len, texts)) < LONGEST_MESSAGE, texts[0][:100]
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert growth < 300_000, f"{growth / 1000} MB"


# -- what is written ---------------------------------------------------------------------------------------------------


def test_text_is_ascii_without_escapes_and_type_comes_first() -> None:
    document = good()
    nasty = 'grüße "quoted" \\ \x1b\n\x7f \ud800 \U0001f600'
    document["version"] = nasty
    relu = document["graph"][2]
    relu |= {"name": nasty, "kind": nasty}
    relu["attrs"][nasty] = {"value": nasty, "type": "string"}
    document["graph"][0]["name"] = nasty
    text = to_json(load(document))
    assert text.isascii()
    assert "\\" not in text
    assert "\x7f" not in text
    assert all(character.isprintable() or character == "\n" for character in text)
    written = json.loads(text)
    entries = [entry for op in written["graph"] for entry in op["attrs"].values()]
    assert len(entries) > 8
    assert all(list(entry) == ["type", "value"] for entry in entries)
    assert written["graph"][0]["name"] == "gr_u00fc_u00dfe _u0022quoted_u0022 _u005c _u001b_u000a_u007f _ud800 _u1f600"
    assert from_json(text).ops == writer.current(load(document))


def test_names_that_differ_stay_different() -> None:
    attributes = typed(ä=1, ö=2) | {'partition"id': {"type": "s64", "value": 3}}
    graph = load(one_op("ReLU", [], tensor(0), attributes))
    values = from_json(to_json(graph)).ops[0].attributes.values()
    assert sorted(values) == [1, 2, 3]


CURRENT_KINDS = {
    "Convolution-1": "Convolution",
    "ConvolutionBackpropData-1": "ConvolutionBackwardData",
    "ConvolutionBackpropFilters-1": "ConvolutionBackwardWeights",
    "ConvolutionBackpropWeights-1": "ConvolutionBackwardWeights",
    "ConvTranspose-1": "ConvTranspose",
    "ConvTransposeBackpropData-1": "ConvTransposeBackwardData",
    "ConvTransposeBackpropFilters-1": "ConvTransposeBackwardWeights",
    "BiasAdd-1": "BiasAdd",
    "BiasAddBackprop-1": "BiasAddBackward",
}


def test_the_table_of_kinds_has_every_old_kind() -> None:
    assert set(CURRENT_KINDS) == {row.name for row in OPERATORS if "G3" not in row.generations}


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize("old", CURRENT_KINDS)
def test_kinds_are_written_in_the_current_generation(old: str, versioned: bool) -> None:
    row = next(row for row in OPERATORS if row.name == old)
    graph = graph_of(random_case(np.random.default_rng(1), row), old if versioned else old.removesuffix("-1"))
    assert operator_of(graph.ops[0]) is not None
    assert json.loads(to_json(graph))["graph"][0]["kind"] == CURRENT_KINDS[old]


FULL = {"pads_begin": [0], "pads_end": [0], "auto_pad": "None", "groups": 1, "data_format": "NXC"}

# Kind, inputs, attributes, and the attributes that are written where all is known and where nothing is.
RENAMED: list[tuple[str, list[Json], Json, Json]] = [
    (
        "Convolution-1",
        [tensor(0, [1, 5, 2]), tensor(1, [3, 2, 4])],
        {"filter_format": "XIO"},
        {"weights_format": "XIO"},
    ),
    (
        "ConvolutionBackpropFilters-1",
        [tensor(0, [1, 5, 2]), tensor(1, [1, 3, 4])],
        {"filter_format": "OIX", "filter_shape": [4, 2, 3]},
        {"weights_format": "OIX", "weights_shape": [4, 2, 3]},
    ),
    (
        "ConvolutionBackpropData-1",
        [tensor(0, [1, 3, 4]), tensor(1, [3, 2, 4])],
        {"filter_format": "XIO", "output_shape": [1, 5, 2]},
        {"weights_format": "XIO", "dst_shape": [1, 5, 2]},
    ),
    (
        "ConvolutionBackpropData-1",
        [tensor(0, [1, 3, 4]), tensor(1, [3, 2, 4])],
        {"output_shape": [5]},
        {"weights_format": "XIO", "dst_shape": [1, 5, 2]},
    ),
    (
        "ConvTransposeBackpropFilters-1",
        [tensor(0, [1, 3, 2]), tensor(1, [1, 5, 4])],
        {"filter_format": "IOX", "filter_shape": [2, 4, 3]},
        {"weights_format": "IOX", "weights_shape": [2, 4, 3]},
    ),
]


@pytest.mark.parametrize(("kind", "inputs", "given", "expected"), RENAMED, ids=[f"{r[0]}-{r[2]}" for r in RENAMED])
def test_attributes_are_written_under_their_current_names(
    kind: str, inputs: list[Json], given: Json, expected: Json
) -> None:
    attributes = {"strides": [1], "dilations": [1]}
    graph = load(one_op(kind, inputs, tensor(2), typed(**attributes, **given)))
    (op,) = writer.current(graph)
    assert op.attributes == attributes | FULL | expected
    assert_round_trip(graph)


AUTO_PADS = {"none": "None", "NOTSET": "None", "explicit": "None", "None": "None", "same_upper": "SAME_UPPER"}
AUTO_PADS |= {"SAME_UPPER": "SAME_UPPER", "Same_Lower": "SAME_LOWER", "valid": "VALID", "VALID": "VALID"}


@pytest.mark.parametrize("given", AUTO_PADS)
@pytest.mark.parametrize("extents", [[1, 5, 2], None], ids=["known", "unknown"])
def test_auto_pad_is_written_as_onednn_spells_it(given: str, extents: list[int] | None) -> None:
    attributes = typed(strides=[1], dilations=[1], auto_pad=given)
    graph = load(one_op("Convolution", [tensor(0, extents), tensor(1, [3, 2, 4])], tensor(2), attributes))
    assert writer.current(graph)[0].attributes["auto_pad"] == AUTO_PADS[given]
    assert_round_trip(graph)


@pytest.mark.parametrize("kind", ["ConvolutionBackpropFilters-1", "ConvolutionBackpropFilters"])
@pytest.mark.parametrize("output", [[3, 2, 4], None], ids=["known", "unknown"])
def test_the_oldest_order_of_operands_becomes_the_current_one(kind: str, output: list[int] | None) -> None:
    inputs = [tensor(0, [1, 5, 2]), tensor(1, [3], "s32"), tensor(2, [1, 3, 4])]
    graph = load(one_op(kind, inputs, tensor(3, output), STRIDED))
    (op,) = writer.current(graph)
    assert op.kind == "ConvolutionBackwardWeights"
    assert [t.id for t in op.inputs] == [0, 2, 1]
    assert op.inputs[2].dtype == "s32"
    assert_round_trip(graph)
    src, diff = np.ones((1, 5, 2), np.float32), np.ones((1, 3, 4), np.float32)
    arrays = {0: src, 1: np.array([3, 2, 4], np.int32), 2: diff}
    before, after = graph.run(arrays).results[3], from_json(to_json(graph)).run(arrays).results[3]
    assert before.tobytes() == after.tobytes()


def test_ops_outside_the_family_are_written_as_they_were() -> None:
    values = {
        "b": ("bool", False),
        "i": ("s64", -(2**63)),
        "is": ("s64[]", [1, -2]),
        "f": ("f32", 0.1),
        "whole": ("f32", 1),
        "fs": ("f32[]", [1, 2.5]),
        "none": ("s64[]", []),
        "s": ("string", "SAME_UPPER"),
        "auto_pad": ("string", "same_upper"),
    }
    attributes = {name: {"type": kind, "value": value} for name, (kind, value) in values.items()}
    graph = load(one_op("MaxPool", [tensor(5, [2, -1, 3])], tensor(6, layout_type="any"), attributes))
    written = json.loads(to_json(graph))["graph"][0]
    assert written["kind"] == "MaxPool"
    assert written["inputs"][0]["shape"] == [2, UNKNOWN, 3]
    assert (written["outputs"][0]["shape"], written["outputs"][0]["stride"]) == ([UNKNOWN], [UNKNOWN])
    assert {name: entry["type"] for name, entry in written["attrs"].items()} == {n: k for n, (k, _) in values.items()}
    assert {name: entry["value"] for name, entry in written["attrs"].items()} == {n: v for n, (_, v) in values.items()}
    assert type(written["attrs"]["whole"]["value"]) is float
    assert_round_trip(graph)


def test_header_and_ports_are_written_as_they_were() -> None:
    document = good() | {"engine_kind": "gpu", "fpmath_mode": "tf32", "fpmath_mode_apply_to_int": True}
    document |= {"version": "3.9.1", "input_ports": [3], "output_ports": [2, 5]}
    written = json.loads(to_json(load(document)))
    assert list(written) == [*OPTIONAL[:6], "graph"]
    assert [written[key] for key in OPTIONAL[:4]] == ["3.9.1", "gpu", "tf32", "true"]
    assert (written["input_ports"], written["output_ports"]) == ([0, 1, 3], [2, 5])


# Attributes of a convolution of tensors not yet known: nothing has looked at them when they are written.
UNRESOLVED: list[Json] = [
    {},
    STRIDED,
    typed(strides=1),
    typed(strides="abc"),
    typed(strides=[]),
    typed(strides=True),
    typed(pads_begin=[]),
    typed(auto_pad=1),
    typed(auto_pad="sideways"),
    typed(groups=1.0),
]

# Attributes that the operator does not have are refused even so.
FOREIGN = [typed(foo=1), typed(dst_shape=[0, 0]), typed(filter_format="OIX", weights_format="OIX")]


@pytest.mark.parametrize("attributes", UNRESOLVED, ids=str)
@pytest.mark.parametrize("kind", ["Convolution", "ConvolutionBackpropFilters-1", "ConvTransposeBackwardData"])
def test_an_op_not_yet_known_is_written_and_read_back(kind: str, attributes: Json) -> None:
    assert_round_trip(load(one_op(kind, [tensor(0), tensor(1)], tensor(2), attributes)))


@pytest.mark.parametrize("attributes", FOREIGN, ids=str)
@pytest.mark.parametrize("kind", ["Convolution", "ConvolutionBackpropFilters-1", "ConvTransposeBackwardData"])
def test_an_op_not_yet_known_has_its_own_attributes_only(kind: str, attributes: Json) -> None:
    refused(one_op(kind, [tensor(0), tensor(1)], tensor(2), attributes), "$.graph[0]", "must be one it has; got")


FAR = [[1, 2**62, 4], [2**62] * 3, [2] * 64, [0, 2**62, 2**62]]


@pytest.mark.parametrize("shape", FAR, ids=lambda s: str(s)[:30])
def test_extents_no_memory_has_are_refused_wherever_they_stand(shape: list[int]) -> None:
    refused(one_op("ReLU", [tensor(0, shape)], tensor(1)), "$.graph[0].inputs[0]", "dense strides below 2^63")


def test_a_graph_made_in_python_is_written_and_read_back() -> None:
    for strides in ([1], (1,), np.array([1]), [np.int64(1)]):
        for groups in (1, np.int64(1)):
            attributes = {"strides": strides, "dilations": strides, "pads_begin": strides, "groups": groups}
            tensors = (LogicalTensor(0, "f32", (1, 5, 1), name="src"), LogicalTensor(1, "f32", (3, 1, 1)))
            graph = Graph([Op(0, "Convolution", tensors, (LogicalTensor(2),), attributes | {"auto_pad": None})])
            graph.finalize()
            written = json.loads(to_json(graph))["graph"][0]["attrs"]
            assert written["strides"] == {"type": "s64[]", "value": [1]}
            assert written["groups"] == {"type": "s64", "value": 1}
            assert_round_trip(graph)


# -- round trip --------------------------------------------------------------------------------------------------------


def assert_round_trip(graph: Graph) -> None:
    """Assert that a graph written and read again is the same, and poses the same problems."""
    text = to_json(graph)
    again = from_json(text)
    assert again.ops == writer.current(graph)
    assert again.header == replace(graph.header, version=again.header.version)
    assert to_json(again) == text
    assert list(again.inference.resolved) == list(graph.inference.resolved)
    assert again.outputs == graph.outputs
    assert set(again.inputs) == set(graph.inputs)
    assert set(again.inference.reasons) == set(graph.inference.reasons)
    for number, resolved in graph.inference.resolved.items():
        before, after = resolved.problem, again.inference.resolved[number].problem
        # The name of the generation aside; it begins the note, too, which names the operator's attributes.
        assert replace(after, operator=before.operator, note=before.note) == before
        assert (after.note is None) == (before.note is None)


def test_there_are_graphs() -> None:
    assert len(GRAPHS) >= LEAST_GRAPHS


@pytest.mark.parametrize("path", [*GRAPHS, *EXAMPLES], ids=lambda path: path.stem)
def test_files_come_back(path: Path) -> None:
    assert_round_trip(read(path))


@pytest.mark.parametrize("name", ["conv_bwd_w_2d.json", "deconv_bwd_w.json"])
def test_files_of_onednn_come_back(name: str) -> None:
    if not (CASES / name).is_file():
        pytest.skip(f"{name} of oneDNN's benchdnn inputs is not at hand")
    graph = read(CASES / name)
    assert len(graph.inference.resolved) == 1
    assert_round_trip(graph)


def test_the_good_document_comes_back() -> None:
    assert_round_trip(load(good()))
    document = copy.deepcopy(good())
    document["graph"].reverse()
    assert_round_trip(load(document))


def graph_of(case: Case, kind: str, dtype: str = "f32", known: bool = True) -> Graph:
    """Return a random call as a graph of one op; of known output extents where a shape operand needs them."""
    ports = case.op.operands[: len(case.shapes)]
    inputs = tuple(
        LogicalTensor(n, "s32", (len(shape),)) if port.is_shape else LogicalTensor(n, dtype, shape)
        for n, (port, shape) in enumerate(zip(ports, case.shapes, strict=True))
    )
    made = problem_of_row(case.op, case.shapes, case.attributes, FORMATS[dtype])[1].output_shape if known else None
    graph = Graph([Op(3, kind, inputs, (LogicalTensor(9, dtype, made),), case.attributes, "random")])
    graph.finalize()
    return graph


ROWS = [pytest.param(row, id="-".join([row.name, *row.generations])) for row in OPERATORS]


@pytest.mark.parametrize("row", ROWS)
def test_random_graphs_of_every_operator_come_back(row: Operator) -> None:
    rng = np.random.default_rng(len(row.name))
    resolved = 0
    for number in range(40):
        case = random_case(rng, row)
        kind = row.name if number % 2 else row.name.removesuffix("-1")
        graph = graph_of(case, kind, ("f32", "bf16", "f16")[number % 3], known=number % 4 > 0)
        resolved += len(graph.inference.resolved)
        try:
            assert_round_trip(graph)
        except Exception as error:
            raise AssertionError(f"{case}: {error}") from error
    assert resolved >= 30
