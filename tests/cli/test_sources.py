"""``run`` and ``explain`` read what ``verify`` reads: every notation, as a file, in a folder and typed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from campaigns.cases import write
from convgrad import files
from tests.cases.sources import LINES, MODULE, Base, bases
from tests.cases.test_mlir import SMALL, pretty
from tests.support.graph_documents import good

Run = Callable[..., tuple[int, str, str]]
TYPED = [
    "--dir=BWD_W --dt=bf16 mb2ic8ih9oc8oh9kh3ph1",
    "--dt=bf16:bf16:f32 --dir=FWD_B,BWD_D mb1ic3ih8oc4kh3",
    "mb1ic3ih8oc4kh3",
    "MIOpenDriver conv -n 2 -c 4 -H 6 -W 7 -k 8 -y 3 -x 3 -F 4",
    LINES.splitlines()[9],
    pretty(SMALL),
    "BWD_WB f32 NXC mb2ic4ih5oc3kh3\nBWD_D f32 NXC mb2ic4ih5oc3kh3",
]


def names(out: str) -> list[str]:
    """Return the cases of reports, which are JSON objects."""
    reports = [json.loads(line) for line in out.splitlines()]
    return [report["case"] for report in reports if isinstance(report.get("case"), str)]


def same_cases(said: Run, source: str) -> list[str]:
    """Assert that all commands find the same cases, and return their names."""
    judged, out, err = said("verify", source, "--json", "--fill", "integers", "--sample", "8")
    wanted = names(out)
    code, out, said_by_run = said("run", source, "--json")
    assert (names(out), code) == (wanted, judged or int('"skipped"' in out)), said_by_run
    code, out, said_by_explain = said("explain", source, "--json")
    assert (names(out), code) == (wanted, 0), said_by_explain
    for text in (said_by_run, said_by_explain):
        assert [line for line in text.splitlines() if "passed over" in line] == [
            line for line in err.splitlines() if "passed over" in line
        ]
    return wanted


# A graph is run as a whole, and the lines are those of TYPED.
FILES = [base for base in bases() if base.name not in ("oneDNN Graph", "lines")]


@pytest.mark.every(2)
@pytest.mark.parametrize("base", FILES, ids=lambda base: base.name)
def test_every_notation(base: Base, said: Run) -> None:
    assert same_cases(said, str(write(base, Path())))


@pytest.mark.parametrize("text", TYPED)
def test_typed_problems(text: str, said: Run) -> None:
    assert same_cases(said, text)


def test_a_folder(said: Run) -> None:
    """In a folder, each op of a graph is a case, as for verify."""
    Path("all").mkdir()
    Path("all/graph.json").write_text(json.dumps(good()))
    Path("all/list.txt").write_text("mb2ic4ih5oc3kh3")
    assert len(same_cases(said, "all")) == 5


def test_a_mistake_among_cases(said: Run) -> None:
    """The other cases are computed, and the exit code says that one was not read."""
    Path("list.txt").write_text("BWD_D f32 NXC mb2ic4ih5oc3kh3\nhello\n--dt=s8 --dir=FWD_D mb2ic4ih5oc3kh3\n")
    for command, code in (("run", 1), ("explain", 3), ("verify", 3)):
        found, out, err = said(command, "list.txt", "--json")
        assert (found, len(names(out)), "convgrad: list.txt:2:1: " in err) == (code, 2, True)
    out = said("run", "list.txt")[1]
    assert "did not run: type s8 is not supported" in out
    assert out.splitlines()[-1] == "1 of 2 cases ran"


def test_a_stored_result_is_judged(said: Run) -> None:
    src, diff = np.ones((1, 2, 5), np.float32), np.ones((1, 3, 3), np.float32)
    header = {"op": "aten.convolution_backward", "stride": 1, "padding": 0, "dilation": 1}
    header |= {"output_mask": [False, True, False]}
    arrays = {"input": src, "grad_output": diff, "weight": np.ones((3, 2, 3), np.float32)}
    for value, code in ((3, 0), (4, 1)):
        results = {"grad_weight": np.full((3, 2, 3), value, np.float32)}
        np.savez("step.npz", aten=np.array(json.dumps(header)), **arrays, **results)
        found, out, err = said("run", "step.npz")
        assert (found, "step.npz against oracle" in out) == (code, True)
        assert ("reproduce: convgrad run step.npz" in err) == bool(code)


def test_options_of_one_case(said: Run) -> None:
    text = TYPED[0]
    code, out, _ = said("run", text, "--check", "oracle", "--dtype", "f32", "--seed", "3", "-o", "dw.npy", "--json")
    report = json.loads(out)
    assert (code, report["result"]["type"], report["checks"]["oracle"]["ok"]) == (0, "f32", True)
    assert files.read("dw.npy").shape == (8, 8, 3, 3)
    assert said("run", text, "--expect", "dw.npy", "--dtype", "f32", "--seed", "3")[0] == 0
    assert "in pieces, on files: ConvolutionBackwardWeights bf16" in said("explain", text, "--memory", "1MB")[1]


USAGE = {
    "inputs": (["run", TYPED[0], "a.npy"], 2, "inputs cannot go with it"),
    "attributes": (["run", TYPED[0], "--attr", "groups=1"], 2, "attr cannot go with it"),
    "several results": (
        ["run", TYPED[2], "-o", "a.npy"],
        2,
        "-o and --expect accept one result; 'mb1ic3ih8oc4kh3' has 3",
    ),
    "type of the result": (["run", TYPED[0], "--dtype", "int8"], 2, "dtype must be one of f32"),
    "no file": (["run", "nowhere.mlir"], 3, "nowhere.mlir"),
    "no file to explain": (["explain", "folder/nowhere"], 3, "folder/nowhere"),
    "dot": (["explain", TYPED[0], "--dot"], 2, "--tensors and --dot go with GRAPH.json"),
    "arrays": (["run", "arrays.npz"], 2, "the operator must come before its files"),
    "nothing": (["explain", "Convolution"], 2, "what to explain is GRAPH.json, a problem line in quotes, or cases"),
}


@pytest.mark.parametrize("name", USAGE)
def test_usage(name: str, said: Run) -> None:
    np.savez("arrays.npz", src=np.ones(3))
    arguments, code, message = USAGE[name]
    found, _, err = said(*arguments)
    assert (found, message in err) == (code, True), err


def test_a_module_is_computed_as_hlo_means(said: Run) -> None:
    Path("m.hlo").write_text(MODULE)
    code, out, _ = said("run", "m.hlo", "--check", "oracle")
    assert (code, "against oracle  ok" in out) == (0, True)
