"""Every example in a docstring, as the installed package has it; every public function has one."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil

import pytest

import convgrad

MODULES = sorted(m.name for m in pkgutil.walk_packages(convgrad.__path__, "convgrad.", onerror=lambda _: None))
FUNCTIONS = [name for name in convgrad.__all__ if inspect.isfunction(getattr(convgrad, name))]
PEERS = {"convgrad.cli.bench.torch_peer": "torch", "convgrad.cli.bench.jax_peer": "jax"}
ADAPTERS = {"convgrad.torch": "torch", "convgrad.jax": "jax", "convgrad.dask": "dask.array"}


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name: str) -> None:
    pytest.importorskip(PEERS.get(name) or ADAPTERS.get(".".join(name.split(".")[:2]), "convgrad"))
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
