"""Processes that a judged function starts: they end with the function's own, however that ends, and leave no zombie."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convgrad.errors import UnsupportedError
from convgrad.verify import Verdict
from convgrad.verify.isolate import Isolated
from tests.support.places import FOREIGN
from tests.support.tiers import tiers
from tests.support.verify_helpers import here  # noqa: F401 - a fixture

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
ONES = (np.ones((1, 3, 1), np.float32), np.ones((1, 1, 1), np.float32))
LAYER = {"strides": [1], "dilations": [1]}
STARTED = 5  # processes: see foreign_functions.starts_processes


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch: pytest.MonkeyPatch, here: None) -> None:  # noqa: F811
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(FOREIGN), os.environ.get("PYTHONPATH", ""))))


def pids() -> list[int]:
    return [int(path.name) for path in Path("started").iterdir()]


def left() -> list[int]:
    """The processes that are there, also as zombies."""
    return [pid for pid in pids() if Path(f"/proc/{pid}").exists()]


def answer(name: str, timeout: float | None = None) -> Any:
    with Isolated(f"foreign_functions:{name}", timeout) as child:
        result = child.answer("Convolution", ONES, LAYER)
        assert len(pids()) == STARTED
        return result


def interrupted() -> bool:
    with suppress(KeyboardInterrupt), Isolated("foreign_functions:starts_processes") as child:
        child.answer("Convolution", ONES, LAYER)
        assert len(left()) == STARTED
        raise KeyboardInterrupt
    return True


ENDS: dict[str, Callable[[], bool]] = {
    "a result": lambda: answer("starts_processes").tolist() == [[[1], [1], [1]]],
    "an error": lambda: answer("starts_processes_and_raises").defects == ("raised an error",),
    "a crash": lambda: answer("starts_processes_and_crashes").reason == "it crashed with SIGSEGV",
    "an exit code": lambda: answer("starts_processes_and_exits").reason == "it ended its process with exit code 7",
    "a timeout": lambda: answer("starts_processes_and_hangs", 0.5).defects == ("did not return",),
    "Ctrl-C": interrupted,
}


@tiers("end", list(ENDS), every=10)
def test_what_a_function_starts_ends_with_it(end: str) -> None:
    """Its child, a child that it stops, a program, a session of its own, and an orphan of such a session."""
    assert ENDS[end]()
    assert left() == []


@pytest.mark.long
def test_what_an_import_starts_ends_if_it_fails() -> None:
    Path("broken.py").write_text("import foreign_functions\nforeign_functions.starts_processes('Convolution')\n1 / 0\n")
    with pytest.raises(UnsupportedError, match="ZeroDivisionError"), Isolated("broken:f"):
        pass
    assert (len(pids()), left()) == (STARTED, [])


@tiers("how", [signal.SIGKILL, signal.SIGHUP], every=2)
def test_what_a_function_starts_ends_with_a_killed_command(how: signal.Signals) -> None:
    words = "verify cases.txt --isolate --call foreign_functions:starts_processes_and_hangs"
    with subprocess.Popen(
        [sys.executable, "-m", "convgrad", *shlex.split(words)], stdout=subprocess.DEVNULL
    ) as command:
        while not (Path("started").exists() and len(pids()) == STARTED):
            assert command.poll() is None
            time.sleep(0.01)
        command.send_signal(how)
    while left():  # nobody waits for the end any more
        time.sleep(0.01)


def test_a_function_gets_no_keys_and_no_standard_input() -> None:
    with Isolated("foreign_functions:its_session") as child:
        found = child.answer("Convolution", ONES, LAYER)
    assert not isinstance(found, Verdict)
    assert found.tolist() == [1, 0, 1]  # it leads a session without a terminal, and reads nothing
