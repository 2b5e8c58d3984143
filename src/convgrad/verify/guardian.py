"""A process between convgrad and a judged function: it ends all processes that the function starts."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of Linux's prctl: orphans below this process become its children
ENDS_WITH_PARENT = 1  # PR_SET_PDEATHSIG: this process gets a signal when its parent ends
ENDS_WITHIN_S = 5.0  # the time in which killed processes end
LOOKS_EVERY_S = 0.002  # the interval between looks at processes that were killed


def guarded(work: Callable[[], None], leash: Connection, *pipes: Connection) -> None:
    """Call ``work`` in a child of this process. End with it, or when the leash is let go, and kill what it has started.

    The caller holds the other end of the leash. It lets go by closing this end, and also by ending in any way. Only
    ``work`` uses ``pipes``. The child has a session of its own, so that Ctrl-C reaches only the caller, and no standard
    input. Processes that leave the session, and those whose parent ends, are killed on Linux, where they become
    children of this process. Elsewhere, those of the session are killed; without ``fork``, the child alone.

    This process ends with the exit code or the signal of the child.
    """
    if not hasattr(os, "fork"):
        work()
        return
    _prctl(SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a BLAS library may have threads, and handles forks
        child = os.fork()
    if child == 0:
        leash.close()
        _prctl(ENDS_WITH_PARENT, signal.SIGKILL)
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        work()
        return
    for pipe in pipes:
        pipe.close()
    status = _status(child, leash)
    _kill_all(child)
    _end_as(signal.SIGKILL if status is None else status)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _status(child: int, leash: Connection) -> int | None:
    """Wait for the end of the child, and return its status, or None if the leash is let go first."""
    signals: list[int] = []
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
    while not signals:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:  # orphans end too
            if ended[0] == child:
                return ended[1]
        ready, _, _ = select.select([leash.fileno(), woken], [], [])
        if leash.fileno() in ready:
            return None
        os.read(woken, 1 << 12)
    return None


def _kill_all(child: int) -> None:
    """Kill the processes of the child's session, and all children, until there are none."""
    end = time.monotonic() + ENDS_WITHIN_S
    while time.monotonic() < end:
        with suppress(OSError):
            os.killpg(child, signal.SIGKILL)
        for pid in _children():
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(LOOKS_EVERY_S)


def _children() -> list[int]:
    """Return the children of this process, on Linux; orphans below it are among them."""
    children = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            parent = path.read_bytes().rpartition(b")")[2].split()[1]
            if int(parent) == os.getpid():
                children.append(int(path.parent.name))
    return children


def _end_as(status: int) -> None:
    """End this process with a status of ``waitpid``, without a core dump or a traceback."""
    number = status & 0x7F
    if number == 0:
        os._exit(status >> 8)
    import resource  # noqa: PLC0415 - Windows has none

    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(1)
