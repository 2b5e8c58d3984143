"""``convgrad explain`` says in words what is computed; ``--json`` says the same as numbers, of calls and graphs."""

from __future__ import annotations

import json

import pytest

from convgrad.cli import main
from convgrad.functional.explain import explain
from tests.support.places import EXAMPLES

LINE = "BWD_W f32 NXC mb1ic2iw5oc3ow5kw3pw1"
STEP = EXAMPLES / "digits_step.json"


def test_words_come_before_tiles(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", LINE]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split(maxsplit=1)[1] == "diff_weights 3x2x3 from src 1x5x2, diff_dst 1x5x3"
    assert "90 multiply-adds, 78 without padding; 172 bytes" in lines[4]
    assert [line.split()[0] for line in lines[1:6]] == ["computes", "formula", "width", "numbers", "shapes"]


def test_a_transposed_layer_has_its_own_names() -> None:
    layer = {"strides": [2], "dilations": [1], "pads_begin": [0], "pads_end": [0]}
    text = str(explain("ConvTranspose", (1, 3, 4), (2, 5, 4), **layer))
    assert "dst 1x6x5 from src 1x3x4, weights 2x5x4" in text
    assert "dst[n, i, c] = sum over k and o of src[n, p, o] * weights[k, c, o]" in text


def test_a_call_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", LINE, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["operands"] == {"src": [1, 5, 2], "diff_dst": [1, 5, 3]}
    assert told["result"] == {"name": "diff_weights", "shape": [3, 2, 3], "type": "f32"}
    names = ("multiply_adds", "multiply_adds_without_padding", "moved_bytes", "leaf_images")
    assert [told[name] for name in names] == [90, 78, 172, 51]
    assert told["engine"] == "numpy" or told["plan"]["predicted_ms"] > 0


def test_both_calls_of_a_line_have_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", LINE.replace("BWD_W", "BWD_WB"), "--json"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["result"]["name"] for one in told] == ["diff_weights", "diff_bias"]
    assert [one["multiply_adds"] for one in told] == [90, None]


def test_a_graph_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(STEP), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["ops"]) == 20
    first, second = told["ops"][:2]
    assert (first["op"], first["reads"], first["makes"]) == ("edges_dst", [0, 1, 2], [3])
    assert (first["multiply_adds"], first["height"], first["not_run"]) == (147456, 10, None)
    assert (first["fused_into"], second["fused_into"], second["not_run"]) == (None, "edges_dst", None)
    assert told["tensors"]["0"] == {"type": "f32", "shape": [16, 8, 8, 1]}
    assert told["peak_bytes"] == 275884
