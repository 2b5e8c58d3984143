"""Graphs as JSON: what is refused, with its path and in few words."""

from __future__ import annotations

import json
import os
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
from convgrad.graph import Limits, explain, from_json, resolve
from convgrad.graph import document as documents
from tests.graph.refusals import PADS, REFUSED, SRC
from tests.support.graph_documents import (
    BIG,
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
from tests.support.tiers import tiers


@pytest.mark.parametrize(
    ("document", "path", "words", "limits"),
    REFUSED,
    ids=[ascii(f"{path} {words} {number}")[1:-1] for number, (_, path, words, _) in enumerate(REFUSED)],
)
def test_what_is_refused(document: Any, path: str, words: str, limits: Json) -> None:
    refused(document, path, words, Limits(**limits))
    if not isinstance(document, str | bytes):
        refused(json.dumps(document).encode(), path, words, Limits(**limits))


def test_limits_that_are_met() -> None:
    text = json.dumps(good())
    assert from_json(text, Limits(file_bytes=len(text), nesting=7, ops=3, op_bytes=1000))
    assert from_json(text.encode(), Limits(file_bytes=len(text), nesting=7, ops=3, op_bytes=1000))


def chain(length: int, closed: bool = False) -> Json:
    makes = [(number + 1) % length if closed else number + 1 for number in range(length)]
    ends = [{"inputs": [tensor(n, [4])], "outputs": [tensor(made, [4])]} for n, made in enumerate(makes)]
    return {"graph": [{"id": n, "kind": "GELU"} | each for n, each in enumerate(ends)][::-1]}


def test_long_chains_and_cycles() -> None:
    graph = load(chain(5000))
    assert [partition.op.id for partition in graph.partitions()] == list(range(5000))
    assert len(graph.run({0: np.zeros(4, np.float32)}).skipped) == 5000
    refused(chain(5000, closed=True), "$.graph[4999] GELU 0", "ops that wait for each other are among GELU 4999")


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


@pytest.mark.every(2)
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
    """30 MB of them; built, they take a gigabyte and many seconds."""
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 30,) * 2)\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (30, 30))\n"
        "from convgrad.graph import from_json; from_json(b'{\"graph\": [' + b'{},' * 10_000_000 + b'{}]}')"
    )
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # whose memory counts
    done = subprocess.run([sys.executable, "-c", program], env=environment, check=False, capture_output=True, text=True)
    assert "GraphError: $.graph: must hold at most 100000 ops; got 10000001" in done.stderr


def test_ops_that_are_alike_pose_one_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    posed = []

    def counted(*arguments: Any) -> Any:
        posed.append(arguments)
        return problem_of_row(*arguments)

    monkeypatch.setattr(resolve, "problem_of_row", counted)
    tensors = [tensor(n, [1, 5, 1]) for n in range(101)]
    weights = tensor(200, [3, 1, 1])
    layer = typed(strides=[1], dilations=[1], auto_pad="SAME_UPPER", groups=1)
    ends = [{"inputs": [tensors[n], weights], "outputs": [tensors[n + 1]]} for n in range(100)]
    ops: list[Json] = [{"id": n, "kind": "Convolution", "attrs": dict(layer)} | each for n, each in enumerate(ends)]
    assert len(load({"graph": ops}).inference.resolved) == 100
    assert len(posed) == 1
    ops[50]["attrs"]["groups"] = {"type": "bool", "value": 1}  # equal to 1, and no integer
    refused({"graph": ops}, "$.graph[50]", "groups must be an integer")


def test_brackets_in_strings_do_not_nest() -> None:
    name = '[{"\\' * 100
    assert load(edited("graph/0/name", name)).ops[0].name == name


# Tensors that an op of the family cannot take: read, with a reason.
UNSUPPORTED: list[tuple[Json, str]] = [
    ({"dtype": "s8"}, "Convolution of s8 (tensor 0) is not supported; f32, bf16, f16, f8_e5m2, f8_e4m3 are"),
    ({"dtype": "boolean"}, "Convolution of boolean (tensor 0) is not supported; f32, bf16, f16, f8_e5m2, f8_e4m3 are"),
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
    assert len(explain(graph)) < 400_000


def test_names_from_a_file_are_made_printable() -> None:
    refused(one_op("\x1b[31m\ud800", [tensor(0)], tensor(1)), "$.graph[0] ?[31m? 0", "got ?[31m?.")
    document = one_op("GELU", [tensor(0)], tensor(1))
    document["graph"][0]["name"] = "\x1b[31m\ud800"
    graph = load(document)
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


@tiers("name", list(TOO_LONG), every=12)
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
