"""All files of this folder need PyTorch, which is an extra."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("torch") else ["test_*.py"]


@pytest.fixture(scope="module")
def installed() -> Iterator[None]:
    """Keep the kernels installed, so that entering `same_bits` takes no time."""
    from convgrad.torch.training.context import _installation  # noqa: PLC0415 - this file is read without PyTorch

    _installation.acquire()
    yield
    _installation.release()
