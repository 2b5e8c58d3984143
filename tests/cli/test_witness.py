"""A crash of a function that is not isolated: the name of its case."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from convgrad.verify import cases as readers
from tests.support.places import FOREIGN, SOURCES
from tests.support.verify_helpers import LINES, call, here  # noqa: F401 - fixture


def test_a_crash_without_isolation_names_its_case() -> None:
    command = [sys.executable, "-m", "convgrad", "verify", "cases.txt", *call("segfault_once")]
    search = {"PYTHONPATH": os.pathsep.join([str(SOURCES.parent), str(FOREIGN)])}
    ended = subprocess.run(command, env=os.environ | search, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGSEGV
    name = next(readers.read(LINES[0])).name
    assert f"convgrad: the process ended in the case {name}; use --isolate" in ended.stderr
    command[-1] = "foreign_functions:right"
    ended = subprocess.run(command, env=os.environ | search, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
