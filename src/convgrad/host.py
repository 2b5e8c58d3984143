"""The host, in words: its processor and the cores this process may use."""

from __future__ import annotations

import os
import platform
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


def cpu_fields() -> Mapping[str, str]:
    """Return what the system says about its first core, by field; nothing where it keeps no such list."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    found = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)
    return {name.strip(): value.strip() for name, value in found.items()}


def cpu_model() -> str:
    """Return the processor's name."""
    return cpu_fields().get("model name") or platform.processor() or "unknown"


def usable_cores() -> tuple[int, ...]:
    """Return the numbers of the cores this thread may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


@contextmanager
def staying_on(cores: Collection[int]) -> Iterator[None]:
    """Keep this thread, and threads it starts meanwhile, on these cores where the system can; none are all it had."""
    before = usable_cores()
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, before)
