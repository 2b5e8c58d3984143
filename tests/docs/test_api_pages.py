"""Every public name stands on a page of the API reference."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import convgrad
from tests.support.places import DOCS

DIRECTIVE = re.compile(
    r"^\.\. (currentmodule|automodule|(?:auto(?:function|class|exception)|py:data)):: (\S+)$", re.MULTILINE
)


def documented(text: str) -> set[str]:
    """Return the full names of what a page's directives document: functions, classes, errors, data and modules."""
    found, module = set(), ""
    for directive, name in DIRECTIVE.findall(text):
        if directive == "currentmodule":
            module = name
        else:
            found.add(name if directive == "automodule" else f"{module}.{name}")
    return found


PAGES = [documented(page.read_text(encoding="utf-8")) for page in sorted((DOCS / "api").glob("*.md"))]


def public(package: str) -> list[str]:
    """Return a package's ``__all__`` as its text has it: nothing is imported, so that no framework is needed."""
    path = Path(convgrad.__file__).parent.joinpath(*package.split(".")[1:])
    text = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")
    (names,) = [
        node.value
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    return [str(name) for name in ast.literal_eval(names)]


PACKAGES = ["convgrad", *(f"convgrad.{name}" for name in convgrad._BY_THEMSELVES)]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_stands_on_one_page(package: str) -> None:
    times = {name: sum(f"{package}.{name}" in page for page in PAGES) for name in public(package)}
    assert {name: count for name, count in times.items() if count != 1} == {}


def test_every_name_on_the_pages_is_public() -> None:
    """What is no more public would break the site, which is built more rarely than tests are run."""
    known = {f"{package}.{name}" for package in PACKAGES for name in public(package)}
    assert set().union(*PAGES) == known


def test_a_page_s_names_are_read_in_their_module() -> None:
    text = ".. currentmodule:: a.b\n\n.. autosummary::\n\n   h\n\n.. autofunction:: f\n.. autoclass:: C\n   :members:\n"
    assert documented(text + ".. automodule:: a.b.c\n") == {"a.b.f", "a.b.C", "a.b.c"}
