"""convgrad.jax in processes of their own: on several devices, in many large calls, at the end, without JAX."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
CALLS = TESTS / "jax_calls.py"


def run(*words: object, **environment: str) -> str:
    command = [sys.executable, "-W", "error", *map(str, words)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=240, env=os.environ | environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_jax_the_error_names_the_extra(tmp_path: Path) -> None:
    (tmp_path / "jax.py").write_text("raise ImportError('no jax')\n")
    code = "import convgrad\ntry: import convgrad.jax\nexcept ImportError as error: print(error)"
    paths = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    assert "pip install 'convgrad[jax]'" in run("-c", code, PYTHONPATH=paths)


def test_a_jax_that_is_too_old_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "jax.py").write_text("__version__, __version_info__ = '0.8.3', (0, 8, 3)\n")
    code = "try: import convgrad.jax\nexcept ImportError as error: print(error)"
    paths = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    assert "needs JAX 0.9 or later; got 0.8.3" in run("-c", code, PYTHONPATH=paths)


needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="needs JAX")


@needs_jax
@pytest.mark.long
def test_devices_agree() -> None:
    run(TESTS / "jax_devices.py")


@needs_jax
@pytest.mark.long
@pytest.mark.parametrize("number", [1, 2])
def test_large_calls_do_not_wait_for_each_other(number: int) -> None:
    """On one core, or two, XLA has as many threads."""
    cores = sorted(os.sched_getaffinity(0))[:number]
    begin = f"import os, runpy; os.sched_setaffinity(0, {cores}); "
    assert run("-c", begin + f"runpy.run_path({str(CALLS)!r}, run_name='__main__')").count("500 calls of 100 MB") == 3


@needs_jax
@pytest.mark.long
def test_a_process_may_end_while_calls_are_outstanding() -> None:
    for _ in range(5):
        assert "20 outstanding" in run(CALLS, "--calls", 20, "--leave")
