"""What tests of ``convgrad verify`` share: a directory of cases, the command run in this process, what it printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from convgrad.cli import main
from convgrad.cli.parsers import verify as arguments_of_verify
from convgrad.cli.verify_options import VerifyOptions, checked
from tests.support.places import FOREIGN

# A weight and a bias gradient, a data gradient, a forward, one transposed: every type, both layouts.
LINES = (
    "BWD_WB f32 NXC mb2ic3ih6oc4oh6kh3ph1",
    "BWD_D bf16 NCX g2mb1ic4iw7oc6ow4kw3sw2pw1",
    "FWD_B f16 NXC mb2ic3iw5oc4ow5kw3pw1",
    "deconv BWD_W f64 NXC mb1ic3iw5oc4ow9kw3sw2pw1",
)
Said = tuple[int, str, str]
Run = Callable[..., Said]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty directory beside which foreign functions are found; no kernel is compiled for a handful of numbers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(FOREIGN)
    monkeypatch.setenv("CONVGRAD_MAX_ISA", "numpy")
    (tmp_path / "cases.txt").write_text("\n".join(LINES))


@pytest.fixture(name="said")
def said_by_the_command(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run ``convgrad verify``; return its exit code and what it printed."""

    def run(*arguments: object) -> Said:
        code = main(["verify", *map(str, arguments)])
        return code, *capsys.readouterr()

    return run


def call(name: str) -> tuple[str, str]:
    return "--call", f"foreign_functions:{name}"


def values(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def options(*arguments: str) -> VerifyOptions:
    return checked(arguments_of_verify.parser().parse_intermixed_args(list(arguments)))


def junit(path: str) -> dict[str, int]:
    root = ElementTree.parse(path).getroot()
    assert dict(root.items()) == dict(root[0].items())
    counted = {name: int(str(root.get(name))) for name in ("tests", "failures", "errors", "skipped")}
    assert counted["tests"] == len(root[0].findall("testcase"))
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert counted[name] == len(root.findall(f".//testcase/{tag}"))
    return counted
