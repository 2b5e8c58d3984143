"""The host's processor and environment variables, and the cores on which threads may run."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

BEGUN_S = time.time()  # when this process imported convgrad, whose other modules it may load much later


def cpu_fields() -> Mapping[str, str]:
    """Return the fields of /proc/cpuinfo for the first core; {} if the file cannot be read."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    fields = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)
    return {name.strip(): value.strip() for name, value in fields.items()}


def cpu_model() -> str:
    """Return the model name of the processor, or "unknown"."""
    return cpu_fields().get("model name") or platform.processor() or "unknown"


def cache_bytes(level: int, caches: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int:
    """Return the size of the data cache of a level, as Linux describes the first core, or 0 if it is unknown."""
    units = {"K": 1 << 10, "M": 1 << 20}
    for index in caches.glob("index*"):
        try:
            level_text, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        if level_text == str(level) and kind != "Instruction" and size[:-1].isdigit():
            return int(size[:-1]) * units.get(size[-1], 0)
    return 0


def usable_cores() -> tuple[int, ...]:
    """Return the numbers of the cores that this thread may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def core_count() -> int:
    """Return the number of cores that this thread may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _getenv() -> Callable[[bytes], bytes | None] | None:
    """Return the C library's ``getenv``, which reads an environment variable; None if the system is not POSIX."""
    if os.name != "posix":
        return None
    getenv = ctypes.PyDLL(None).getenv  # PyDLL keeps the interpreter's lock, so no thread can set a variable
    getenv.argtypes, getenv.restype = [ctypes.c_char_p], ctypes.c_char_p
    return getenv


def environment(name: bytes, default: str = "") -> str:
    """Return a variable of the environment, or ``default`` if it is not set.

    The function takes a quarter of the time of a look-up in ``os.environ``. Variables that
    were set through ``os.environ`` are found, because ``os.environ`` also sets the variables of the process.

    >>> environment(b"CONVGRAD_NOTHING_OF_THE_KIND")
    ''
    """
    function = _getenv()
    if function is None:
        return os.environ.get(os.fsdecode(name), default)
    text = function(name)
    return default if text is None else os.fsdecode(text)


def cache_directory() -> Path | None:
    """Return the directory for the caches of this user; None if the user has no home directory."""
    directory = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME", "")
    if sys.platform != "darwin" and os.path.isabs(directory):  # XDG's specification says to ignore relative paths
        return Path(directory)
    try:
        home = Path.home()
    except RuntimeError:
        return None
    places = {"darwin": home / "Library" / "Caches", "win32": home / "AppData" / "Local"}
    return places.get(sys.platform, home / ".cache")


@cache
def _getcpu() -> Callable[[], int] | None:
    """Return the C library's ``sched_getcpu``, which returns the calling thread's core; None if there is none."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    getcpu: Callable[[], int] | None = getattr(ctypes.PyDLL(None), "sched_getcpu", None)
    return getcpu


def present_core() -> int | None:
    """Return the number of the core that this thread runs on at present; None if the system does not report it."""
    function = _getcpu()
    return None if function is None else function()


# Errors of sched_setaffinity: no core is available any more, the thread has ended, or a sandbox forbids the call.
_NOT_MOVED = (errno.EINVAL, errno.ESRCH, errno.EPERM, errno.ENOSYS)


def move_thread(thread: threading.Thread, cores: Collection[int]) -> None:
    """Restrict a running thread of this process to ``cores``, if the system can. An empty ``cores`` has no effect."""
    if cores and thread.native_id is not None and hasattr(os, "sched_setaffinity"):
        try:
            os.sched_setaffinity(thread.native_id, cores)
        except OSError as error:
            if error.errno not in _NOT_MOVED:
                raise


@contextmanager
def staying_on(cores: Collection[int]) -> Iterator[None]:
    """Restrict this thread, and threads that it starts in the context, to ``cores``, if the system can.

    An empty ``cores`` has no effect.
    """
    before = usable_cores()
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, before)
