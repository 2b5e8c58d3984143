"""What the session of tests keeps for its processes."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

CODE = "import os, numpy; print(os.path.islink(numpy.__spec__.cached), numpy.__spec__.cached)"


def test_children_read_the_compiled_modules_of_installed_packages() -> None:
    """To compile those of PyTorch and JAX takes 13 s."""
    installed = os.path.join(
        os.path.dirname(np.__file__), "__pycache__", f"__init__.{sys.implementation.cache_tag}.pyc"
    )
    if not os.path.exists(installed):
        pytest.skip("NumPy's modules are not compiled where they are installed")
    done = subprocess.run([sys.executable, "-c", CODE], check=True, capture_output=True, text=True)
    is_link, path = done.stdout.split()
    assert is_link == "True"
    assert os.readlink(path) == installed
