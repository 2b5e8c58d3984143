"""Graph documents to read, to edit and to write, and the assertions on what became of them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from convgrad.errors import GraphError
from convgrad.graph import Graph, Limits, from_json, to_json, writer
from convgrad.graph.limits import DEFAULT_LIMITS
from tests.support.places import EXAMPLES, GRAPHS

GIVEN = sorted([*GRAPHS.glob("*.json"), *EXAMPLES.glob("*.json")])
LEAST_GRAPHS = 5

UNKNOWN = -(2**63)
BIG = "x" * 10**7
LONGEST_MESSAGE = 2000
DELETED = object()

Json = dict[str, Any]


def tensor(number: int, shape: list[int] | None = None, dtype: str = "f32", **fields: Any) -> Json:
    return {"id": number, "dtype": dtype, "shape": [UNKNOWN] if shape is None else shape, **fields}


def typed(**values: Any) -> Json:
    """Return attributes as oneDNN writes them: lists of integers, integers, strings, floats, and bools as 0 or 1."""
    names = {list: "s64[]", int: "s64", str: "string", bool: "bool", float: "f32"}
    plain = {name: int(value) if isinstance(value, bool) else value for name, value in values.items()}
    return {name: {"type": names[type(value)], "value": plain[name]} for name, value in values.items()}


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
                "kind": "GELU",
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


OPTIONAL = ["version", "engine_kind", "fpmath_mode", "fpmath_mode_apply_to_int", "input_ports", "output_ports"]
OPTIONAL += ["graph/0/name", "graph/1/attrs", "graph/0/outputs/0/dtype", "graph/2/inputs", "graph/2/outputs"]
OPTIONAL += [f"graph/0/inputs/0/{field}" for field in ("dtype", "stride", "layout_type", "property_type")]
STRIDED = typed(strides=[1], dilations=[1])


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
