"""What all tests need of the process they run in."""

from __future__ import annotations

import gc
import importlib.util
import os
import signal
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from convgrad.engines import pool
from tests.support.functions import prepare_folder, share_functions
from tests.support.tiers import collects_quick_alone, leave_long, leave_samples

# A shell has what it runs in the background ignore Ctrl-C, and children inherit that; tests interrupt themselves
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What is collected stays to the end: looking for garbage among it was half of the time that collecting took
gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if collects_quick_alone(metafunc.config):
        leave_long(metafunc)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not collects_quick_alone(config):
        leave_samples(items)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish() -> None:
    """Link before xdist's hook says that this worker is ready, upon which the others start tests and children."""
    gc.freeze()
    gc.enable()
    if os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0" and MODULES in os.environ:
        link_compiled(os.environ[MODULES])


def link_compiled(directory: str) -> None:
    """Let children find the compiled modules of packages that this process has loaded, and all of PyTorch's."""
    paths = [getattr(module, "__file__", None) or "" for module in [*sys.modules.values()]]
    folders = {os.path.dirname(path) for path in paths if path.endswith(".py")}
    for name in ("torch", "sympy"):  # which PyTorch loads when it first compiles
        found = importlib.util.find_spec(name) if "torch" in sys.modules else None
        for place in (found and found.submodule_search_locations) or ():
            folders |= {folder for folder, folders, _ in os.walk(place) if "__pycache__" in folders}
    for folder in folders:
        with suppress(FileNotFoundError), os.scandir(os.path.join(folder, "__pycache__")) as entries:
            made = directory + folder
            os.makedirs(made, exist_ok=True)
            for entry in entries:
                if entry.name.endswith(f".{sys.implementation.cache_tag}.pyc"):
                    with suppress(FileExistsError):
                        os.symlink(entry.path, os.path.join(made, entry.name))


MODULES = "CONVGRAD_TESTS_MODULES"
SESSION = tempfile.TemporaryDirectory(prefix="convgrad-tests-") if "PYTEST_XDIST_WORKER" not in os.environ else None


def pytest_configure(config: pytest.Config) -> None:
    """Keep kernels and compiled modules in a directory of this session, of which workers and children are told.

    So nothing is written to the user's directory or beside the sources, and children compile no module again. Such a
    directory hides the compiled modules of installed packages, and to compile those of PyTorch and JAX takes 13 s:
    workers have no such directory, and ``link_compiled`` puts links to these modules there.
    """
    if SESSION:
        os.environ["CONVGRAD_CACHE_DIR"] = os.path.join(SESSION.name, "kernels")
        os.environ[MODULES] = os.path.join(SESSION.name, "modules")
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    if SESSION and getattr(config, "cache", None):
        prepare_folder(config.cache.mkdir("convgrad-functions"))
    share_functions()
    if not SESSION or config.getoption("dist", "no") == "no":  # this process runs tests
        os.environ["PYTHONPYCACHEPREFIX"] = os.environ[MODULES]
        del os.environ["PYTHONDONTWRITEBYTECODE"]


def pytest_unconfigure() -> None:
    if SESSION:
        SESSION.cleanup()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the seconds of the slowest files, and of each room."""
    files, rooms = Counter[str](), Counter[str]()
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        if hasattr(report, "duration"):
            path = report.nodeid.partition("::")[0]
            files[path] += report.duration
            rooms["/".join(path.split("/")[:2])] += report.duration
    if len(files) > 1:
        terminalreporter.section("seconds per file and room")
        for spent in (files.most_common(15), rooms.most_common()):
            terminalreporter.line(", ".join(f"{name.removeprefix('tests/')} {seconds:.1f}" for name, seconds in spent))


@pytest.fixture
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let eight threads run a driver, however many cores there are, and whatever calls have learnt."""
    monkeypatch.setattr(pool, "usable_cores", lambda: tuple(range(8)))
    monkeypatch.setattr(pool.Patience, "alone", lambda _: False)
    monkeypatch.setattr(pool, "MIN_WAKE_MS", 0.0)
    monkeypatch.setattr(pool, "LOOKS", 200)  # there are fewer cores than threads that look
