"""Other processes that keep the cores busy, for as long as they are wanted and no longer."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

STARTED_S = 0.3
SPIN = """
import os, sys
while os.getppid() == int(sys.argv[1]):  # nobody else ends them where their parent is killed
    for _ in range(1_000_000):
        pass
"""


@contextmanager
def busy(count: int) -> Iterator[list[int]]:
    """Keep so many other processes busy in a ``with`` block, or as long as this process lives; yield their ids."""
    with ExitStack() as stack:
        others = []
        for _ in range(count):  # in a group of its own, where Ctrl-C is not heard: they end here
            command = [sys.executable, "-c", SPIN, str(os.getpid())]
            others.append(subprocess.Popen(command, process_group=0))
            stack.callback(others[-1].wait)
            stack.callback(others[-1].kill)
        time.sleep(STARTED_S * bool(count))
        yield [other.pid for other in others]
