"""A child process as its parent sees it: what it printed last, and the most memory it held while it ran."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EVERY_S = 0.01
KINDS = ("RssAnon", "RssFile", "VmData")  # pages of its own; of files; what RLIMIT_DATA counts, touched or not


@dataclass(frozen=True)
class Watched:
    """The last line that a child printed, as JSON, and the most bytes of each kind among so many samples."""

    told: Any
    peaks: dict[str, int]
    samples: int


def held(pid: int | str = "self") -> dict[str, int]:
    """Return the bytes of each kind that a process holds now; none of one that is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return {}
    named = (line.partition(":") for line in lines)
    return {name: int(words.split()[0]) << 10 for name, _, words in named if name in KINDS}


def watched(script: Path, arguments: Sequence[str], timeout_s: float) -> Watched:
    """Run a Python program and return what it told; its standard error is this process's.

    A child that fails, or is not done in time, is an error, and is gone.
    """
    peaks, samples, printed = dict.fromkeys(KINDS, 0), 0, []
    with subprocess.Popen([sys.executable, str(script), *arguments], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        listener = threading.Thread(target=lambda lines=child.stdout: printed.extend(lines))  # type: ignore[misc]
        listener.start()
        try:
            begin = time.monotonic()
            while child.poll() is None:
                for kind, number in held(child.pid).items():
                    peaks[kind] = max(peaks[kind], number)
                samples += 1
                if time.monotonic() - begin > timeout_s:
                    raise TimeoutError(f"{script.name} {' '.join(arguments)} was not done in {timeout_s:g} s")
                time.sleep(EVERY_S)
        finally:
            child.kill()
            child.wait()
            listener.join()
    if child.returncode:
        raise RuntimeError(f"{script.name} {' '.join(arguments)} ended with exit code {child.returncode}")
    return Watched(json.loads(printed[-1]), peaks, samples)
