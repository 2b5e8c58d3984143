"""The rooms of the tests, and the campaigns: each folder is known and described, each campaign has a name."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

from campaigns.__main__ import WRONG_USE, kinds, main
from tests.support.places import DOCS, SOURCES, TESTS

ROOMS = (
    "spec",
    "plan",
    "engines",
    "functional",
    "graph",
    "verify",
    "files",
    "cases",
    "bench",
    "torch",
    "training",
    "jax",
    "scale",
    "dask",
    "testing",
    "cli",
    "docs",
    "package",
)
NO_ROOMS = ("golden", "support")
BESIDE = ("__init__", "conftest", "hashes", "links", "net", "typed_user")  # called by these paths, by others too


def modules(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def test_each_folder_is_a_room() -> None:
    folders = {path.name for path in TESTS.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == {*ROOMS, *NO_ROOMS}
    assert {path.stem for path in TESTS.glob("*.py")} == set(BESIDE)


def test_tests_are_in_rooms_only() -> None:
    for path in modules(TESTS):
        room, *inner = path.relative_to(TESTS).parts
        assert len(inner) <= 1, f"{path}: rooms have no rooms"
        assert not path.stem.startswith("test_") or room in ROOMS, path


@pytest.mark.parametrize("room", [*ROOMS, "support"])
def test_each_room_says_what_it_has(room: str) -> None:
    text = ast.get_docstring(ast.parse((TESTS / room / "__init__.py").read_text(encoding="utf-8")))
    assert text
    _, _, listed = (DOCS / "architecture.md").read_text(encoding="utf-8").partition("## The tests")
    assert f"`{room}/`" in listed or (SOURCES / room).is_dir()


def test_what_one_room_uses_is_not_in_support() -> None:
    users: dict[str, set[str]] = {path.stem: set() for path in (TESTS / "support").glob("*.py")}
    for path in (*modules(TESTS), *modules(TESTS.parent / "campaigns")):
        folder = path.parent.name
        for name in re.findall(r"^from tests\.support\.(\w+) import", path.read_text(encoding="utf-8"), re.MULTILINE):
            users[name].add(folder)
    alone = {name: folders for name, folders in users.items() if len(folders - {"support"}) == 1}
    assert alone == {}


def test_campaigns_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    _, _, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(kinds())
    assert main(["no_such"]) == WRONG_USE


@pytest.mark.parametrize("kind", kinds())
def test_each_campaign_has_options(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    if kind == "every_f32":
        pytest.importorskip("torch")
    with pytest.raises(SystemExit):
        importlib.import_module(f"campaigns.{kind}").main(["--help"])
    assert f"usage: python -m campaigns {kind} " in " ".join(capsys.readouterr().out.split())
