"""Texts with a byte order mark, as some editors write it, are read like texts without one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from convgrad import cases
from convgrad.cli import main
from convgrad.graph import from_json
from convgrad.verify import check_certificate
from convgrad.verify.cases.json_values import parsed
from tests.cases.sources import bases
from tests.cases.test_mlir import SMALL, module, pretty
from tests.support.graph_documents import good

MARK = b"\xef\xbb\xbf"
TEXTS = {base.read: base for base in bases() if base.read.endswith((".json", ".txt", ".hlo", ".mlir"))}


@pytest.mark.parametrize("name", TEXTS)
def test_files_of_cases(name: str, tmp_path: Path) -> None:
    found = []
    for mark in (b"", MARK):
        for file, data in TEXTS[name].files.items():
            (tmp_path / file).write_bytes(mark * file.endswith(name) + data)
        found.append([(case.operator, case.shapes) for case in cases.read(tmp_path / name)])
    assert found[0] == found[1]


def test_a_module_of_any_name(tmp_path: Path) -> None:
    (tmp_path / "module.txt").write_bytes(MARK + module(pretty(SMALL)).encode())
    assert len(list(cases.read(tmp_path / "module.txt"))) == 1


def test_graphs_and_values() -> None:
    text = json.dumps(good())
    for marked in ("\ufeff" + text, MARK + text.encode()):
        assert from_json(marked).ops == from_json(text).ops
    assert parsed("\ufeff[1]", "here") == [1]


def test_a_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["verify", "BWD_W f32 NXC mb1ic1ih2oc1kh1", "--element", "0,0,0,0", "--fill", "integers"]) == 0
    certificate = capsys.readouterr().out
    check: Callable[[list[str]], int] = check_certificate.main
    codes = []
    for mark in (b"", MARK):
        (tmp_path / "c.json").write_bytes(mark + certificate.encode())
        codes.append(check(["c.json"]))
    assert codes == [0, 0]
