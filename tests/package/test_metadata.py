"""What an index page, an installer and a citation say of convgrad is so."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

import convgrad
from tests.support.places import DOCS, ROOT

TOLD = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT: dict[str, Any] = TOLD["project"]


def index_page() -> str:
    """README as the wheel's metadata has it."""
    hook = TOLD["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    page = "".join((ROOT / part["path"]).read_text(encoding="utf-8") for part in hook["fragments"])
    for each in hook["substitutions"]:
        page = re.sub(each["pattern"], each["replacement"], page)
    return page


def test_the_readme_has_no_link_on_an_index_page_that_leads_nowhere() -> None:
    prose = re.sub(r"(?ms)^```.*?^```$", "", index_page())
    targets = re.findall(r"\]\(([^)]*)\)", prose) + re.findall(r"(?:src|srcset|href)=\"([^\"]*)\"", prose)
    assert [one for one in targets if not one.startswith("https://")] == []


def test_code_on_the_index_page_is_the_readmes() -> None:
    blocks = re.compile(r"(?ms)^```.*?^```$")
    assert blocks.findall(index_page()) == blocks.findall((ROOT / "README.md").read_text(encoding="utf-8"))


def test_the_citation_is_of_this_version() -> None:
    said = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {convgrad.__version__}\n" in said
    assert f"\nlicense: {PROJECT['license']}\n" in said
    title = re.search(r'^title: "(.*)"$', said, re.MULTILINE)
    assert title is not None
    entry = " ".join((DOCS / "cite.md").read_text(encoding="utf-8").split())
    for field, value in {"title": title[1], "version": convgrad.__version__, "license": PROJECT["license"]}.items():
        assert re.search(rf"\b{field} *= {{{re.escape(value)}}}", entry), field


def test_the_newest_changes_are_of_this_version() -> None:
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == convgrad.__version__


def test_nobody_is_told_to_install_convgrad_from_an_index() -> None:
    """No index has the package, so messages and pages name other packages, or the folder of the sources."""
    texts = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
    texts += [path for folder in ("src", "examples", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    told = re.compile(r"pip install [^\n`]*(?<![\w./-])convgrad(?![\w/])|convgrad\[")
    assert [path.name for path in texts if told.search(path.read_text(encoding="utf-8"))] == []


def test_the_oldest_versions_that_are_tested_are_the_oldest_that_are_allowed() -> None:
    tested = dict(line.split("==") for line in (ROOT / "tests/oldest.txt").read_text().split() if "==" in line)
    allowed = [re.match(r"(\w+)>=([\d.]+)", one) for one in PROJECT["dependencies"]]
    assert {one[1]: one[2] for one in allowed if one} == {
        name: version[: version.rindex(".")] for name, version in tested.items()
    }
    assert all(version.endswith(".0") for version in tested.values())


def test_support_page_tells_what_is_required() -> None:
    page = (DOCS / "support.md").read_text(encoding="utf-8")
    extras = [
        one
        for extra in ("files", "torch", "jax", "dask", "onnx", "examples")
        for one in PROJECT["optional-dependencies"][extra]
    ]
    for required in (*PROJECT["dependencies"], *extras):
        found = re.match(r"([\w-]+)(?:\[.*\])?>=([\d.]+)", required)
        assert found is not None
        assert re.search(rf"^\| {found[1]} \| {re.escape(found[2])} \|", page, re.MULTILINE), required


@pytest.mark.parametrize("row", [one for one in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d", one)])
def test_support_page_tells_every_python_that_is_claimed(row: str) -> None:
    page = (DOCS / "support.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| {re.escape(row.rsplit(' :: ', maxsplit=1)[-1])} \|.*tested", page, re.MULTILINE)


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "CITATION.cff", "LICENSE"])
def test_the_source_archive_has_what_a_contributor_needs(name: str) -> None:
    included = TOLD["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert (ROOT / name).is_file()
    assert any((ROOT / name) in ROOT.glob(pattern.removeprefix("/")) for pattern in included)


def test_the_source_archive_has_what_contributing_names() -> None:
    included = TOLD["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(?<![\w./])((?:\.ci|src|tests|docs|benchmarks|examples)/[\w./-]*\w)", text))
    assert {".ci/run", "tests/oldest.txt", "docs/cases.md"} <= named
    for name in named:
        assert (ROOT / name).exists(), name
        assert any(name.startswith(f"{pattern.removeprefix('/')}/") for pattern in included), name
