"""The OpenMP runtime that the process has loaded, as PyTorch's wheels do: its functions, which nothing here loads."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from typing import NamedTuple


class Runtime(NamedTuple):
    """The functions of the runtime."""

    parallel: Callable[[int, int, int, int], None]  # function, argument, threads, flags: calls it on so many threads
    threads: Callable[[], int]  # how many this thread's regions have unless told
    cores: Callable[[], int]  # that this thread's regions may run on, wherever threads are bound
    inside: Callable[[], int]  # whether this thread is in a region
    number: int  # address of the function that returns a thread's number in its team


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
    if sys.platform != "linux":
        return None
    free, held = ctypes.CDLL(None), ctypes.PyDLL(None)  # the second keeps the interpreter's lock: quick answers
    try:
        parallel, number = free.GOMP_parallel, free.omp_get_thread_num
        answers = held.omp_get_max_threads, held.omp_get_num_procs, held.omp_in_parallel
    except AttributeError:
        return None
    parallel.restype, parallel.argtypes = None, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    return Runtime(parallel, *answers, number=ctypes.cast(number, ctypes.c_void_p).value or 0)
