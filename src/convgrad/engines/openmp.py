"""The OpenMP runtime that this process has already loaded, for example with PyTorch. This module loads none."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

GETTID = {"x86_64": 186, "aarch64": 178}  # the number of Linux's system call ``gettid``, by architecture
FORKED = 0x40  # Linux's flag of a process that was forked and has not executed a program: PF_FORKNOEXEC
AT_ONCE_S = 5e-3  # threads of the runtime spin for about this time after a parallel region, before they sleep


class Runtime(NamedTuple):
    """The functions of the OpenMP runtime and of the C library that this engine calls."""

    parallel: Callable[[int, int, int, int], None]  # (function, argument, threads, flags): run a parallel region
    threads: Callable[[], int]  # the default number of threads of a region that this thread starts
    cores: Callable[[], int]  # the number of cores that such a region may use
    inside: Callable[[], int]  # whether this thread is inside a parallel region
    number: int  # the address of the function that returns a thread's number in its team
    system_call: int  # the address of the C library's function ``syscall``
    gettid: int  # the number of the system call that returns the system's number of the calling thread


def _was_forked(stat: Path = Path("/proc/self/stat")) -> bool:
    """Return whether this process was forked and has not executed a program since; True if Linux does not say.

    The ninth field has the flags of the process. The second is the name of its program, in parentheses, which may
    itself contain spaces and parentheses.
    """
    try:
        return bool(int(stat.read_bytes().rpartition(b")")[2].split()[6]) & FORKED)
    except (OSError, IndexError, ValueError):
        return True


# The process that imported this module, unless it was forked: its parent's runtime may have started threads before.
_process = os.getpid() if sys.platform == "linux" and not _was_forked() else None
_runtimes: list[Runtime] = []


def runtime() -> Runtime | None:
    """Return the functions of the runtime, or None if ``why_not`` returns a reason.

    A region runs on the thread that starts it and on a team of other threads, which belongs to that thread. After a
    region the team spins for some milliseconds before it sleeps. So a region soon after one of PyTorch's regions starts
    without waiting for threads to wake up.
    """
    if os.getpid() != _process:
        return None
    if not _runtimes and (loaded := _look()) is not None:
        _runtimes.append(loaded)
    return _runtimes[0] if _runtimes else None


def why_not() -> str:
    """Return why drivers cannot run on the threads of the OpenMP runtime, or the empty string if they can."""
    if sys.platform != "linux":
        return "convgrad has not been tested with the OpenMP runtimes of this system"
    if os.getpid() != _process:
        return "this process was forked, and OpenMP's threads may be only in the parent process"
    return "" if runtime() else "no OpenMP runtime is loaded; PyTorch's wheels bring one, so import torch first"


def _look() -> Runtime | None:
    """Return the functions from the libraries that are loaded globally, as PyTorch's runtime is, or None."""
    if sys.platform != "linux" or platform.machine() not in GETTID:
        return None
    free, held = ctypes.CDLL(None), ctypes.PyDLL(None)  # PyDLL does not release the interpreter's lock
    try:
        parallel = free.GOMP_parallel
        number, system_call = map(_address, (free.omp_get_thread_num, free.syscall))
        answers = held.omp_get_max_threads, held.omp_get_num_procs, held.omp_in_parallel
    except AttributeError:
        return None
    parallel.restype, parallel.argtypes = None, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    return Runtime(parallel, *answers, number, system_call, GETTID[platform.machine()])


def _address(function: object) -> int:
    """Return the address of a C function."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]


class _Team(threading.local):
    """The OpenMP team of this thread, as of convgrad's last parallel region on this thread."""

    member = 0  # the system's number of a thread of the team that is not the caller; 0 if unknown
    asked = 0.0  # the time of the last call of ``rests`` on this thread
    asleep = False  # the result of that call


_team = _Team()


def record_member(member: int) -> None:
    """Record the system's number of a thread in the team of the calling thread."""
    _team.member = member


def rests() -> bool:
    """Return whether this thread's team sleeps and this function was not called in the last AT_ONCE_S seconds.

    If so, the caller runs its kernel without the team. Linux often wakes the team's threads on the core of the calling
    thread, which then spins until they have ended: a call of 1 ms took 4 to 8 ms. Only calls in close succession are
    worth this delay.

    A team is awake if the processor time of one of its threads grows between two readings.
    """
    before, _team.asked = _team.asked, time.perf_counter()
    _team.asleep = False
    if _team.member and _team.asked - before > AT_ONCE_S:
        clock = ~_team.member << 3 | 6  # Linux's number for the processor time of a thread
        try:
            _team.asleep = time.clock_gettime_ns(clock) == time.clock_gettime_ns(clock)
        except OSError:  # the thread has ended, so PyTorch has a new team
            _team.member = 0
    return _team.asleep


def rested() -> bool:
    """Return the result of the last call of ``rests`` on this thread."""
    return _team.asleep
