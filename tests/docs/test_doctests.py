"""Every example in a docstring, as the installed package has it; every public function has one."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from importlib.util import find_spec
from pathlib import Path

import pytest

import convgrad

MODULES = sorted(m.name for m in pkgutil.walk_packages(convgrad.__path__, "convgrad.", onerror=lambda _: None))
FUNCTIONS = [name for name in convgrad.__all__ if inspect.isfunction(getattr(convgrad, name))]
PEERS = {"convgrad.cli.bench.torch_peer": "torch", "convgrad.cli.bench.jax_peer": "jax"}
ADAPTERS = {"convgrad.torch": "torch", "convgrad.jax": "jax", "convgrad.dask": "dask.array"}


def needed(name: str) -> str:
    """Return the library that a module needs."""
    return PEERS.get(name) or ADAPTERS.get(".".join(name.split(".")[:2]), "convgrad")


def has_examples(name: str) -> bool:
    path = Path(convgrad.__path__[0], *name.split(".")[1:])
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return file.is_file() and ">>> " in file.read_text(encoding="utf-8")


def test_modules_without_examples_are_imported() -> None:
    for name in MODULES:
        if not has_examples(name) and find_spec(needed(name).partition(".")[0]):
            importlib.import_module(name)


@pytest.mark.parametrize("name", list(filter(has_examples, MODULES)))
def test_docstring_examples(name: str) -> None:
    pytest.importorskip(needed(name))
    runner = doctest.DocTestRunner()
    for found in doctest.DocTestFinder().find(importlib.import_module(name)):
        if found.examples:  # a run of no examples takes as long: it looks whether any file has changed
            runner.run(found)
    assert runner.failures == 0


@pytest.mark.parametrize("name", FUNCTIONS)
def test_public_functions_are_documented(name: str) -> None:
    text = inspect.getdoc(getattr(convgrad, name)) or ""
    assert ">>>" in text
    assert "Follows" in text or name in ("threads", "max_error", "kernel_cache", "tune")  # which are no operators
    assert "aises" in text or "errors are those of" in text
