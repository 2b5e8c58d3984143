"""The script that reads an oneDNN checkout: its counts on a small one, and what it says where there is none."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from campaigns import onednn
from tests.cases.onednn_files import INPUTS, main
from tests.support.graph_documents import good

SMALL = "mb1ic2ih4oc2kh3ph1"


@pytest.fixture(name="checkout")
def small_checkout(tmp_path: Path) -> Path:
    for name in ("conv", "deconv", "graph/op"):
        (tmp_path / INPUTS / name).mkdir(parents=True)
    (tmp_path / INPUTS / "conv" / "list").write_text(f"--dir=FWD_D --dt=f32,s8 {SMALL}")
    (tmp_path / INPUTS / "deconv" / "list").write_text("--dir=BWD_W ic2ih4oc2oh9kh3sh2ph0")  # of no convolution
    (tmp_path / INPUTS / "graph" / "op" / "a.json").write_text(json.dumps(good()))
    (tmp_path / INPUTS / "graph" / "int8_softmax_add.json").write_text(json.dumps(good() | {"output_ports": [99]}))
    return tmp_path


def test_counts_of_a_checkout(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(checkout)]) == 0
    out = capsys.readouterr().out
    for words in ("2 graphs", "1 graphs refused", "2 lists read whole", "3 cases", "1 cases that nobody serves here"):
        assert f" {words}\n" in out, words
    assert "int8_softmax_add.json: $.output_ports: must be tensors that ops make; got 99" in out
    (checkout / INPUTS / "conv" / "list").write_text(f"--dirr=x {SMALL}")
    assert main([str(checkout)]) == 1
    assert "list:1:1: --dirr is no knob" in capsys.readouterr().out


def test_an_inconsistent_graph_must_be_refused(checkout: Path) -> None:
    (checkout / INPUTS / "graph" / "int8_softmax_add.json").write_text(json.dumps(good()))
    assert main([str(checkout)]) == 1


def test_without_a_checkout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith(f"skipped: {tmp_path / INPUTS} must have the folders conv, deconv, graph")


@pytest.mark.long
def test_the_graphs_of_a_checkout_are_judged(checkout: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert onednn.main([str(checkout)]) == 0
    out = capfd.readouterr().out
    assert "2 graphs, 0 without a convolution, 1 refused\n2 cases: 2 ok in " in out
    assert int(re.findall(r"at most (\d+) MiB", out)[0]) > 10
    (checkout / INPUTS / "graph" / "other.json").write_text(json.dumps(good() | {"output_ports": [99]}))
    assert onednn.main([str(checkout)]) == 1  # a refusal that is not expected
    (checkout / INPUTS / "graph" / "other.json").unlink()
    assert onednn.main([str(checkout), "--call", "math:sqrt"]) == 1
    out = capfd.readouterr().out
    assert "WRONG: it raised TypeError" in out
    assert "\n2 cases: 2 wrong in " in out
    assert onednn.main([str(checkout), "--call", "math:no"]) == 1
    assert capfd.readouterr().out.startswith("not judged: ")
    assert onednn.main([str(checkout / "no")]) == 0
