"""The host, in words: its processor and the cores this process may use."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
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


def usable_cores() -> int:
    """Return how many cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
