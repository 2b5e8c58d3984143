"""A crash of a function that is not isolated: the name of its case."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from convgrad.verify import cases as readers
from tests.support.places import FOREIGN, SOURCES
from tests.support.verify_helpers import LINES, call, here  # noqa: F401 - fixture

SEARCH = {"PYTHONPATH": os.pathsep.join([str(SOURCES.parent), str(FOREIGN)])}


def test_a_crash_without_isolation_names_its_case() -> None:
    command = [sys.executable, "-m", "convgrad", "verify", "cases.txt", *call("segfault_once")]
    ended = subprocess.run(command, env=os.environ | SEARCH, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGSEGV
    name = next(readers.read(LINES[0])).name
    assert f"convgrad: the process ended in the case {name}; use --isolate" in ended.stderr
    command[-1] = "foreign_functions:right"
    ended = subprocess.run(command, env=os.environ | SEARCH, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_run_ends_before_the_processes_that_a_function_forks() -> None:
    """And when a SIGTERM ends these, they leave the report of the run as it is."""
    command = [sys.executable, "-m", "convgrad", "verify", LINES[0], *call("forks"), "--junit", "a.xml", "--force"]
    ended = subprocess.run(command, env=os.environ | SEARCH, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr.count("wrote")) == (0, 1)
    assert "interrupted" not in Path("a.xml").read_text() + ended.stdout
