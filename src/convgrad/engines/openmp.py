"""The OpenMP runtime that the process has loaded, for example with PyTorch. Nothing is loaded here."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

GETTID = {"x86_64": 186, "aarch64": 178}  # the system call of Linux, by architecture
AT_ONCE_S = 5e-3  # calls in succession: threads spin for about as long after a region


class Runtime(NamedTuple):
    """The functions of the runtime."""

    parallel: Callable[[int, int, int, int], None]  # function, argument, threads, flags: calls it on so many threads
    threads: Callable[[], int]  # how many this thread's regions have by default
    cores: Callable[[], int]  # that this thread's regions may run on, wherever threads are bound
    inside: Callable[[], int]  # whether this thread is in a region
    number: int  # address of the function that returns a thread's number in its team,
    system_call: int  # and of the one that makes a system call
    gettid: int  # the number of the system call by which a thread learns its own number


_process = os.getpid()
_found: list[Runtime] = []


def runtime() -> Runtime | None:
    """Return the functions; None where ``why_not`` has a reason.

    The calling thread is one of each region's threads. The others belong to it, wait for its next region, and spin for
    some milliseconds before they sleep: a region that follows one of PyTorch's has its threads at once.
    """
    if os.getpid() != _process:
        return None
    if not _found and (found := _look()) is not None:
        _found.append(found)
    return _found[0] if _found else None


def why_not() -> str:
    """Return why drivers cannot run on the runtime's threads; the empty string where they can."""
    if sys.platform != "linux":
        return "the OpenMP runtimes of this system have not been tried"
    if os.getpid() != _process:
        return "this process was forked, and the threads of OpenMP stayed behind"
    return "" if runtime() else "no OpenMP runtime is loaded; PyTorch's wheels bring one, so import torch first"


def _look() -> Runtime | None:
    """Look where the linker looks for PyTorch: among what is loaded for all, which PyTorch's own runtime is."""
    if sys.platform != "linux" or platform.machine() not in GETTID:
        return None
    free, held = ctypes.CDLL(None), ctypes.PyDLL(None)  # the second keeps the interpreter's lock: quick answers
    try:
        parallel = free.GOMP_parallel
        number, system_call = map(_address, (free.omp_get_thread_num, free.syscall))
        answers = held.omp_get_max_threads, held.omp_get_num_procs, held.omp_in_parallel
    except AttributeError:
        return None
    parallel.restype, parallel.argtypes = None, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    return Runtime(parallel, *answers, number, system_call, GETTID[platform.machine()])


def _address(function: object) -> int:
    """Return where a function of C begins."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]


class _Team(threading.local):
    """The team of this thread, as the last region of ours met it."""

    member = 0  # the system's number of one of its other threads
    asked = 0.0  # when this thread last asked whether they sleep,
    asleep = False  # and the answer


_team = _Team()


def met(member: int) -> None:
    """Remember a thread of the team that this thread has just had."""
    _team.member = member


def rests() -> bool:
    """Return whether this thread's team sleeps, and the call that asks is the first for a while: then it goes without.

    The system often wakes the others on the core of the thread that wakes them, and that thread spins until they have
    ended: a call of 1 ms took 4 to 8 ms. Calls that follow one another are worth it. The processor time of a thread
    that spins grows from one reading to the next.
    """
    before, _team.asked = _team.asked, time.perf_counter()
    _team.asleep = False
    if _team.member and _team.asked - before > AT_ONCE_S:
        clock = ~_team.member << 3 | 6  # Linux's number for the processor time of a thread
        try:
            _team.asleep = time.clock_gettime_ns(clock) == time.clock_gettime_ns(clock)
        except OSError:  # the thread has ended, and PyTorch has another team by now
            _team.member = 0
    return _team.asleep


def rested() -> bool:
    """Return the last answer of ``rests``."""
    return _team.asleep
