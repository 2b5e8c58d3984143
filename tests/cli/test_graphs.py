"""``convgrad run`` and ``convgrad explain`` on graphs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import convgrad
from convgrad.graph import Graph, LogicalTensor, Op, read, to_dot, write
from tests.support.places import EXAMPLES, GRAPHS

STEP = EXAMPLES / "digits_step.json"
BETWEEN = GRAPHS / "relu_and_add_between_convolutions.json"
Run = Callable[..., tuple[int, str, str]]
SHAPE_INPUT = GRAPHS / "shape_as_third_input.json"


@pytest.mark.parametrize("path", sorted(GRAPHS.glob("*.json")), ids=lambda path: path.stem)
def test_integers_come_out_exact(path: Path, said: Run, tmp_path: Path) -> None:
    graph = read(path)
    tensors: tuple[object, ...] = ()
    shapes = [t for op in graph.ops for t in op.inputs if t.dtype == "s32" and not graph.inference.resolved.get(op.id)]
    if shapes:
        np.savez(tmp_path / "shape.npz", **{str(shapes[0].id): np.array([4, 3, 3, 3], np.int32)})
        tensors = ("--tensors", tmp_path / "shape.npz")
    code, out, err = said("run", path, "--fill", "integers", "--check", "oracle", "--json", *tensors)
    foreign = [op.label for op in graph.ops if op.id in graph.inference.reasons]
    assert code == bool(foreign), err
    reports = [json.loads(line) for line in out.splitlines()]
    summary = reports.pop()
    assert (summary.pop("not_run", []), summary.pop("made_up", [])) == (foreign, [])
    ran = [report for report in reports if "skipped" not in report]
    supported = [partition for partition in graph.partitions() if partition.is_supported]
    counts = {"ops": len(graph.ops), "ran": sum(len(partition.ops) for partition in supported)}
    assert summary == counts | {"compared": len(ran), "ok": True}
    assert len(ran) == sum(partition.op.kind != "ReLU" for partition in supported)
    for report in ran:
        assert report["checks"]["oracle"]["ok"]
        assert report["checks"]["oracle"]["equal"] == report["checks"]["oracle"]["elements"]


@pytest.mark.parametrize("path", sorted(GRAPHS.glob("*.json")), ids=lambda path: path.stem)
def test_explain_names_every_op_and_tensor(path: Path, said: Run) -> None:
    code, out, _ = said("explain", path)
    graph = read(path)
    assert code == 0
    assert all(op.label in out and op.kind in out for op in graph.ops)
    assert all(str(tensor) in out for tensor in graph.tensors.values())
    assert out.count("not run: ") == len(graph.inference.reasons)
    assert out.isascii()


def test_explain_lists_tensors(said: Run) -> None:
    _, out, _ = said("explain", BETWEEN)
    tensors = out.split("\n\n")[-1].splitlines()
    assert tensors[:4] == ["0: f32 1x8x2  given", "1: f32 3x2x4  given", "2: f32 1x8x4", "3: f32 1x8x4"]
    assert tensors[-1] == "7: f32 3x2x4  result"


def test_explain_prints_dot(said: Run) -> None:
    code, out, _ = said("explain", STEP, "--dot")
    assert (code, out) == (0, to_dot(read(STEP)) + "\n")


def test_given_tensors_and_expected_results(said: Run, tmp_path: Path) -> None:
    graph = read(BETWEEN)
    made, tensors = tmp_path / "made.npz", tmp_path / "tensors.npz"
    assert said("run", BETWEEN, "-o", made)[0] == 1  # Add did not run
    with np.load(made) as file:
        results = dict(file)
    assert set(results) == {"2", "5", "7"}  # 6 is Add's; ReLU and Add would read 2 and 5
    rng = np.random.default_rng(0)
    arrays = {str(t): rng.integers(-3, 4, graph.tensors[t].shape).astype(np.float32) for t in (*graph.inputs, 3)}
    np.savez(tensors, **arrays)
    assert said("run", BETWEEN, "--tensors", tensors, "-o", made, "--force")[0] == 1
    with np.load(made) as file:
        arrays |= dict(file)
    arrays["6"] = np.zeros((1, 8, 4), np.float32)  # Add's
    np.savez(tensors, **arrays)
    code, out, _ = said("run", BETWEEN, "--tensors", tensors)
    assert code == 0
    assert f"{tensors}:7 against oracle  ok: 24 of 24 equal" in out
    assert "every comparison held" in out
    arrays["7"][0, 0, 0] += 1
    np.savez(tensors, **arrays)
    code, out, err = said("run", BETWEEN, "--tensors", tensors)
    assert code == 1
    assert "WRONG: 1 of 24 elements beyond the bound" in out
    assert "comparisons failed" in out
    assert f"reproduce: convgrad run {BETWEEN} --tensors {tensors}" in err


def test_recorded_results_around_a_relu(said: Run, tmp_path: Path) -> None:
    """The recorded input of a ReLU is judged, and what follows is judged by this input, not by ours."""
    graph, tensors = read(BETWEEN), tmp_path / "tensors.npz"
    rng = np.random.default_rng(0)
    given = {t: rng.integers(-3, 4, graph.tensors[t].shape).astype(np.float32) for t in graph.inputs}
    wrong = graph.run(given).results[2].copy() + 1
    right = convgrad.convolution(np.maximum(wrong, 0), given[4], pads_begin=1, pads_end=1)
    np.savez(tensors, **{str(t): array for t, array in (given | {2: wrong, 5: right}).items()})
    code, out, _ = said("run", BETWEEN, "--tensors", tensors)
    assert code == 1
    assert f"{tensors}:2 against oracle  WRONG" in out
    assert f"{tensors}:5 against oracle  ok" in out


def test_a_recorded_tensor_between_fused_ops_is_judged(said: Run, tmp_path: Path) -> None:
    graph = read(STEP)
    with np.load(STEP.with_suffix(".npz")) as file:
        arrays = {key: file[key] for key in file.files if key != "4"}
    arrays["3"] = np.zeros(graph.tensors[3].shape or (), np.float32)
    np.savez(tmp_path / "tensors.npz", **arrays)
    code, out, _ = said("run", STEP, "--tensors", tmp_path / "tensors.npz")
    assert (code, f"{tmp_path}/tensors.npz:3 against oracle  WRONG" in out) == (1, True)


def test_without_what_an_op_outside_makes_the_rest_runs(said: Run, tmp_path: Path) -> None:
    path = tmp_path / "between.json"
    path.write_text(BETWEEN.read_text().replace('"ReLU"', '"GELU"'))
    graph = read(path)
    arrays = {str(t): np.ones(graph.tensors[t].shape or (), np.float32) for t in graph.inputs}
    np.savez(tmp_path / "tensors.npz", **arrays)
    code, out, _ = said("run", path, "--tensors", tmp_path / "tensors.npz")
    assert code == 1
    assert "convolution_2 did not run: waits for tensor 3 of relu_1" in out
    assert out.index("relu_1 did not run") < out.index("convolution_2 did not run") < out.index("ConvolutionBackward")
    assert "relu_1 did not run: GELU is not an operator of the convolution family" in out
    assert out.endswith("2 of 5 ops ran; not run: relu_1, convolution_2, add_3\n")
    np.savez(tmp_path / "tensors.npz", **arrays, **{"5": np.ones((1, 8, 4), np.float32)})
    code, out, _ = said("run", path, "--tensors", tmp_path / "tensors.npz")
    assert (code, f"waits for tensor 3 of relu_1; {tmp_path}/tensors.npz:5 was not compared" in out) == (1, True)


def test_a_result_instead_of_an_op_is_named_or_given(said: Run, tmp_path: Path) -> None:
    """What is made up instead of the result of an op is named, and the run fails; with the result, it succeeds."""
    path, tensors = tmp_path / "between.json", tmp_path / "tensors.npz"
    document = json.loads(BETWEEN.read_text().replace('"ReLU"', '"GELU"'))
    document["graph"] = [op for op in document["graph"] if op["kind"] != "Add"]
    del document["output_ports"]
    path.write_text(json.dumps(document))
    code, out, _ = said("run", path, "--check", "oracle")
    assert code == 1
    assert "family; tensor 3 is made up: integers, seed 0\n" in out
    assert "  tensor 3 was not computed but made up: integers, seed 0\n" in out
    assert out.splitlines()[-1] == "3 of 4 ops ran; every comparison held; not run: relu_1; made up: tensor 3"
    code, out, _ = said("run", path, "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert (code, lines[-1]["not_run"], lines[-1]["made_up"]) == (1, ["relu_1"], [3])
    assert [line["made_up"] for line in lines[:-1] if "skipped" in line] == [[3]]
    assert '"tensor 3, not computed but made up: integers, seed 0"' in out
    graph = read(path)
    arrays = {str(t): np.ones(graph.tensors[t].shape or (), np.float32) for t in (*graph.inputs, 3)}
    np.savez(tensors, **arrays)
    code, out, _ = said("run", path, "--tensors", tensors)
    assert (code, out.splitlines()[-1]) == (0, "3 of 4 ops ran")


def test_a_misspelled_kind_is_refused(said: Run, tmp_path: Path) -> None:
    path = tmp_path / "step.json"
    path.write_text(STEP.read_text().replace('"Convolution"', '"Convolutoin"', 1))
    for command in ("run", "explain", "verify"):
        code, _, err = said(command, path)
        assert (code, "got Convolutoin. Did you mean Convolution?" in err) == (3, True)


USAGE = {
    "an operand file": ((STEP, "a.npy"), "inputs cannot go with it"),
    "an attribute": ((STEP, "--attr", "groups=1"), "attr cannot go with it"),
    "tensors of an operator": (("Convolution", "a.npy", "--tensors", "t.npz"), "--tensors goes with GRAPH.json"),
    "a limit that is none": (
        (STEP, "--limit", "size=3"),
        "file_bytes, nesting, ops, op_bytes, memory_bytes, cases; got 'size=3'",
    ),
    "a limit of graphs": (("Convolution", "a.npy", "--limit", "ops=3"), "with a name of memory_bytes; got 'ops=3'"),
    "a limit that is no number": ((STEP, "--limit", "ops=many"), "a limit is NAME=NUMBER"),
}


@pytest.mark.parametrize("case", USAGE)
def test_usage(case: str, said: Run) -> None:
    arguments, message = USAGE[case]
    code, out, err = said("run", *arguments)
    assert (code, out) == (2, "")
    assert message in err


REFUSED = {
    "too many ops": ((STEP, "--limit", "ops=3"), "$.graph: must hold at most 3 ops; got 20"),
    "too long": ((STEP, "--limit", "file_bytes=3"), "at most 3 bytes (file_bytes)"),
    "too much memory": ((STEP, "--limit", "memory_bytes=100"), "memory_bytes that are left, 100"),
    "a shape nobody gives": ((SHAPE_INPUT,), "no op can run; this one waits for tensor 0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str, said: Run) -> None:
    arguments, message = REFUSED[case]
    code, _, err = said("run", *arguments)
    assert code == 3
    assert message in err


def test_the_file_is_named(said: Run, tmp_path: Path) -> None:
    shutil.copy(STEP, tmp_path / "step.json")
    assert said("explain", tmp_path / "step.json")[0] == 0
    text = STEP.read_text()
    (tmp_path / "step.json").write_text(text.replace('"bias"', "").replace('"graph"', '"grahp"'))
    code, _, err = said("explain", tmp_path / "step.json")
    assert (code, f"{tmp_path}/step.json: $: must have graph" in err) == (3, True)
    assert said("explain", "step.txt")[0] == 3


def test_what_is_generated_must_fit_beside_what_is_read(said: Run, tmp_path: Path) -> None:
    tensors = [LogicalTensor(number, "f32", (1, 4, 250)) for number in range(4)]
    bias = LogicalTensor(9, "f32", (4,))
    graph = Graph([Op(n, "BiasAdd", (tensors[n], bias), (tensors[n + 2],), {"data_format": "NCX"}) for n in (0, 1)])
    graph.finalize()
    write(tmp_path / "a.json", graph)
    np.savez(tmp_path / "a.npz", **{"0": np.ones((1, 4, 250), np.float32)})
    given = ("run", tmp_path / "a.json", "--tensors", tmp_path / "a.npz", "--fill", "integers", "--limit")
    code, _, err = said(*given, "memory_bytes=5000")
    assert (code, "memory_bytes that are left, 1000; got" in err) == (3, True), err
