"""Graphs as JSON: what is read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from convgrad.errors import GraphError
from convgrad.graph import Header, Limits, LogicalTensor, Op, Verbatim, explain, from_json, read, to_json
from convgrad.graph.kinds import KINDS
from convgrad.words import printable
from tests.support.graph_documents import DELETED, OPTIONAL, UNKNOWN, Json, edited, good, load, one_op, tensor, typed


def test_the_good_document_is_good() -> None:
    graph = load(good())
    assert graph.is_finalized
    assert (graph.inputs, graph.outputs) == ((0, 1, 3), (5,))
    assert [op.kind for op in graph.ops] == ["Convolution", "BiasAdd", "GELU"]
    assert [str(graph.tensors[n]) for n in (2, 4)] == ["2: f32 2x5x4", "4: f32 2x5x4"]
    assert [op.where for op in graph.ops] == ["$.graph[0]", "$.graph[1]", "$.graph[2]"]
    assert graph.inference.reasons == {9: "GELU is not an operator of the convolution family"}


def test_every_field_that_has_a_default_may_be_missing() -> None:
    graph = load({"graph": [{"kind": "GELU"}, {"kind": "Add", "inputs": [{"id": 0}]}]})
    assert graph.header == Header("3.0.0", "cpu", "strict", False)
    assert graph.ops[0] == Op(0, "GELU", (), ())
    assert graph.ops[1] == Op(1, "Add", (LogicalTensor(0, "undef", None, None, "strided", "undef"),), ())
    assert (graph.inputs, graph.outputs) == ((0,), ())


@pytest.mark.parametrize("place", OPTIONAL)
def test_a_missing_field_is_its_default(place: str) -> None:
    document = edited(place, DELETED)
    if place.startswith("graph/2") or "dtype" in place:
        document.pop("output_ports", None)
    if place.endswith("outputs/0/dtype"):  # of the tensor, wherever it stands
        del document["graph"][1]["inputs"][0]["dtype"]
    assert load(document).tensors[2].shape == (2, 5, 4)


def test_unknown_settings_come_back() -> None:
    others = {"deterministic": "true", "comment": [{"a": None}], "": 1.5, "Kind": 2**63 - 1, "grüße": 'a "word"\n'}
    graph = load(good() | others)
    assert graph.ops == load(good()).ops
    assert graph.header.others == others
    written = json.loads(to_json(graph))
    assert {key: written[key] for key in others} == others
    assert from_json(to_json(graph)).header == graph.header
    for wrong in ({"graph": 1}, {"a": object()}, {"a": float("nan")}):
        with pytest.raises(GraphError, match="others must be"):
            Header(others=wrong)


def _objects(value: Any) -> Iterator[Json]:
    """Yield every object of a document, itself first."""
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(item)


MISSPELLED = {"twice": lambda key: key + key[-1], "exchanged": lambda key: key[:-2] + key[:-3:-1], "upper": str.upper}
CHANGES = [(n, key, how) for n, one in enumerate(_objects(good())) for key in one for how in MISSPELLED]


@pytest.mark.parametrize("how", MISSPELLED)
def test_no_misspelled_key_is_ignored(how: str) -> None:
    """Each key of each object of a document is misspelled, for all values that are objects of the format."""
    changed = 0
    for number, key, _ in (change for change in CHANGES if change[2] == how):
        document = good()
        entry = list(_objects(document))[number]
        wrong = MISSPELLED[how](key)
        is_foreign_attribute = key == "alpha" or (set(entry) == {"type", "value"} and entry["value"] == 0.5)
        if wrong == key or is_foreign_attribute:  # written as they are
            continue
        entry[wrong] = entry.pop(key)
        with pytest.raises(GraphError, match=re.escape(printable(wrong)) + "|" + re.escape(f"must have {key}")):
            load(document)
        changed += 1
    assert changed > 70


@pytest.mark.parametrize("how", MISSPELLED)
def test_no_misspelled_kind_is_ignored(how: str) -> None:
    for wrong in {MISSPELLED[how](kind) for kind in KINDS} - KINDS:
        with pytest.raises(GraphError, match=f"the kind must be one of oneDNN Graph; got {wrong}"):
            load(one_op(wrong, [tensor(0)], tensor(1)))


def test_a_misspelled_kind_has_a_hint() -> None:
    with pytest.raises(GraphError, match=r"\$.graph\[0\] conv: .* got Convolutoin. Did you mean Convolution\?"):
        load(edited("graph/0/kind", "Convolutoin"))
    with pytest.raises(GraphError, match=r"got FancyOp\. For an op of another library, use the kind Wildcard"):
        load(edited("graph/2/kind", "FancyOp"))


def test_a_foreign_attribute_keeps_other_keys() -> None:
    document = edited("graph/2/attrs/alpha/note", "x")
    assert '"note": "x"' in to_json(load(document))


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
    (op,) = load({"graph": [{"kind": "GELU", "inputs": [{"id": 0, **fields}]}]}).ops
    assert (op.inputs[0].dims, op.inputs[0].strides, op.inputs[0].shape) == (dims, strides, shape)


def test_ids_have_64_bits() -> None:
    largest = 2**64 - 1
    document = one_op("GELU", [tensor(largest)], tensor(2**63))
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
    ("bool", False, False),
    ("bool", 1, True),
    ("bool", 0, False),
    ("s64", -(2**63), -(2**63)),
    ("s64", 2**63 - 1, 2**63 - 1),
    ("s64[]", [], []),
    ("s64[]", [1, -2], [1, -2]),
    ("f32", 1, 1.0),
    ("f32", -1.5e-30, -1.5e-30),
    ("f32[]", [1, 2.5], [1.0, 2.5]),
    ("string", "", ""),
    ("string", "ünï", "ünï"),
]


@pytest.mark.parametrize(("kind", "given", "expected"), VALUES)
def test_attribute_values(kind: str, given: Any, expected: Any) -> None:
    document = one_op("GELU", [], tensor(0), {"a": {"type": kind, "value": given}})
    value = load(document).ops[0].attributes["a"]
    assert value == expected
    assert type(value) is type(expected)
    if isinstance(value, list):
        assert [type(item) for item in value] == [type(item) for item in expected]


# What an attribute may be where the op is not of the family, and the JSON that is kept of it.
ODD = [
    '{"type": "bool", "value": 2}',
    '{"type": "bool", "value": "true"}',
    '{"type": "s64", "value": 9223372036854775808}',
    '{"type": "s64", "value": %s}' % ("1" * 5000),
    '{"type": "s64[]", "value": [1, null, [2.5, {}]]}',
    '{"type": "f32", "value": -1e999}',
    '{"type": "f64", "value": 0.%s}' % ("1" * 500),
    '{"type": "u8[]", "value": [1, 2]}',
    '{"type": "f32[]", "value": []}',
    '{"type": ["s64"], "value": 1}',
    '{"type": "s64"}',
    '{"value": 1}',
    '{"a": {"b": [true, false, null, "c\\u00fc\\ud83d\\ude00\\"\\\\\\n"]}}',
    "{}",
    "[]",
    "[[1.5, 1e+999], -0.0]",
    "null",
    "true",
    "1",
    "12345678901234567890123",
    '"text"',
]


@pytest.mark.parametrize("text", ODD, ids=lambda text: text[:60])
def test_an_op_outside_the_family_may_have_any_attribute(text: str) -> None:
    document = '{"graph": [{"kind": "%s", "attrs": {"b": {"type": "bool", "value": 1}, "a": %s}}]}'
    graph = from_json(document % ("MatMul", text))
    assert graph.ops[0].attributes == {"b": True, "a": Verbatim(text)}
    written = to_json(graph)
    kept = "c_u00fc_u1f600_u0022_u005c_u000a" if "\\" in text else text
    assert kept in written
    assert to_json(from_json(written)) == written
    assert "\\" not in written
    assert explain(graph)
    for kind in ("Convolution", "BiasAdd-1"):
        with pytest.raises(GraphError, match=r"^\$\.graph\[0\]"):
            from_json(document % (kind, text))


def test_what_is_verbatim_is_of_no_op_of_the_family() -> None:
    assert Op(0, "MatMul", (), (), {"a": Verbatim("{}")}).attributes["a"] == Verbatim("{}")
    with pytest.raises(GraphError, match=r"attribute strides must be a bool, .*got Verbatim"):
        Op(0, "Convolution", (), (), {"strides": Verbatim("[1]")})


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
