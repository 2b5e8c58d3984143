"""The imports: arrows run one way, and ``import convgrad`` stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "convgrad"

# A module may import from earlier lines only, and from its own package where the line is one.
LAYERS = (
    "words",
    "errors",
    "disk",
    "pictures",
    "formats",
    "host",
    "spec",
    "descriptor",
    "notation",
    "plan",
    "engines",
    "arrays",
    "functional",
    "graph",
    "verify",
    "files",
    "bench",
    "cli",
    "__main__",
)
SPEC = (
    "rules",
    "operators",
    "layouts",
    "geometry",
    "check",
    "shapes",
    "channels",
    "extents",
    "problem",
    "work",
    "order",
    "bound",
    "ordered",
    "oracle",
)
GRAPH = (
    "limits",
    "model",
    "resolve",
    "given",
    "infer",
    "partition",
    "graph",
    "outline",
    "document",
    "reader",
    "writer",
    "explain",
    "picture",
)
INNER = {"spec": SPEC, "graph": GRAPH}


def modules() -> list[Path]:
    return sorted(p for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py")


def imported(path: Path) -> set[tuple[str, ...]]:
    """The convgrad modules a file imports, as paths below the package."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "convgrad":
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "convgrad"}
    return {tuple(name.split(".")[1:]) for name in found}


def test_every_module_has_a_layer() -> None:
    assert {p.relative_to(ROOT).parts[0].removesuffix(".py") for p in modules()} == set(LAYERS)
    for package, inner in INNER.items():
        assert {p.stem for p in (ROOT / package).glob("*.py")} - {"__init__"} == set(inner)


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_arrows_run_one_way(path: Path) -> None:
    layer, *inner = (part.removesuffix(".py") for part in path.relative_to(ROOT).parts)
    for target in imported(path):
        if not target or target[0] not in LAYERS:  # the public names: for the command line only
            assert layer in ("cli", "__main__"), target
            continue
        assert LAYERS.index(target[0]) <= LAYERS.index(layer), target
        if layer == target[0] and layer in INNER and inner[0] != "__init__":
            assert INNER[layer].index(target[1]) < INNER[layer].index(inner[0]), target


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_import_is_light() -> None:
    loaded = python("import sys, convgrad; print(' '.join(sys.modules))").split()
    heavy = {"llvmlite", "torch", "jax", "scipy", "sklearn", "matplotlib", "safetensors", "argparse", "hypothesis"}
    assert not heavy & set(loaded)


def test_files_stay_small() -> None:
    sizes = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in modules()}
    assert {name: lines for name, lines in sizes.items() if lines > 400} == {}


def test_every_module_says_what_it_knows() -> None:
    for path in modules():
        text = ast.get_docstring(ast.parse(path.read_text()))
        assert text, path
        assert text.split("\n")[0].endswith((".", ":")), path
