"""The imports: arrows run one way, and ``import convgrad`` stays light."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import convgrad
from tests.package.layers import ORDERS
from tests.support.places import CAMPAIGNS, DOCS, SOURCES, TESTS


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCES).with_suffix("").parts)


MODULES = {name_of(p): p for p in sorted(SOURCES.rglob("*.py"))}


def is_in(module: str, package: str) -> bool:
    return not package or module.startswith(f"{package}.")


def module_of(name: str) -> str:
    """Return the module that has what is imported under a name."""
    while name and name not in MODULES and f"{name}.__init__" not in MODULES:
        name = name.rpartition(".")[0]
    return name if name in MODULES else f"{name}.__init__".removeprefix(".")


def imported(path: Path) -> set[str]:
    """Return the modules of convgrad that a file imports, wherever in the file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.module, f"{path}: imports are absolute"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {module_of(name.partition(".")[2]) for name in found if name.partition(".")[0] == "convgrad"}


def entry_of(module: str, package: str, entries: Sequence[str]) -> str:
    """Return the entry of a package's order that a module belongs to, the longest that fits; else "" ."""
    inner = module.removeprefix(f"{package}.")
    return max((e for e in entries if inner == e or is_in(inner, e)), key=len, default="")


def forbidden(module: str, other: str, orders: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the packages in whose order ``module`` comes before ``other``, and so must not import it."""
    found = []
    for package, entries in orders.items():
        if is_in(module, package) and is_in(other, package):
            mine, its = (entry_of(m, package, entries) for m in (module, other))
            place = {"": len(entries)} | {entry: at for at, entry in enumerate(entries)}  # "" is its __init__
            if place[its] > place[mine]:
                found.append(package)
    return found


def test_every_module_has_a_place() -> None:
    for package, entries in ORDERS.items():
        inside = {m for m in MODULES if is_in(m, package)} - {f"{package}.__init__"}
        assert {m for m in inside if not entry_of(m, package, entries)} == set()
        assert {entry_of(m, package, entries) for m in inside} == set(entries), package
        assert len(set(entries)) == len(entries), package


@pytest.mark.parametrize("module", MODULES)
def test_arrows_run_one_way(module: str) -> None:
    found = {other: forbidden(module, other, ORDERS) for other in imported(MODULES[module])}
    assert {other: packages for other, packages in found.items() if packages} == {}


# An order made up, and what may import what under it: nothing else.
MADE_UP = {
    "": ("low", "whole", "high"),
    "whole": ("first", "deep", "last", "deep.late"),
    "whole.deep": ("a", "b", "late"),
}
ALLOWED = {
    "low": "",
    "whole.first": "low",
    "whole.deep.a": "low whole.first",
    "whole.deep.b": "low whole.first whole.deep.a",
    "whole.deep.__init__": "low whole.first whole.deep.a whole.deep.b",
    "whole.last": "low whole.first whole.deep.a whole.deep.b whole.deep.__init__",
    "whole.deep.late": "low whole.first whole.deep.a whole.deep.b whole.last",
    "whole.__init__": "low whole.first whole.deep.a whole.deep.b whole.deep.__init__ whole.deep.late whole.last",
}


@pytest.mark.parametrize("module", ALLOWED)
def test_an_order_says_which_arrows_run_backwards(module: str) -> None:
    others = ALLOWED.keys() - {module}
    assert {other for other in others if not forbidden(module, other, MADE_UP)} == set(ALLOWED[module].split())


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_import_is_light() -> None:
    loaded = python("import sys, convgrad; print(' '.join(sys.modules))").split()
    heavy = {"llvmlite", "torch", "jax", "scipy", "sklearn", "matplotlib", "safetensors", "argparse", "hypothesis"}
    assert not heavy & set(loaded)
    assert not {"convgrad.scale", "convgrad.dask"} & set(loaded)


@pytest.mark.parametrize("name", ["dask", "graph", "jax", "scale", "torch", "verify"])
def test_what_is_not_imported_says_how(name: str) -> None:
    with pytest.raises(AttributeError, match=f"has no attribute '{name}' until .*: import convgrad.{name}$"):
        convgrad.__getattr__(name)
    with pytest.raises(AttributeError, match=r"has no attribute 'padding'$"):
        convgrad.__getattr__("padding")


def test_files_stay_small() -> None:
    paths = (*MODULES.values(), *TESTS.rglob("*.py"), *CAMPAIGNS.glob("*.py"))
    sizes = {str(path): len(path.read_text().splitlines()) for path in paths}
    assert {path: lines for path, lines in sizes.items() if lines > 400} == {}


@pytest.mark.parametrize("package", ["spec", "engines", "libraries", "functional", "torch", "jax", "dask"])
def test_every_module_has_a_place_in_the_architecture(package: str) -> None:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\w+\.py", page))
    assert {path.name for path in (SOURCES / package).rglob("*.py")} <= named | {"__init__.py"}


def test_every_module_says_what_it_knows() -> None:
    for path in MODULES.values():
        text = ast.get_docstring(ast.parse(path.read_text()))
        assert text, path
        assert text.split("\n")[0].endswith((".", ":")), path
