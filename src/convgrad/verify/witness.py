"""A small process that prints the name of the present case if this process crashes in a foreign function.

Compared with ``isolate.py``, calls take no longer, and the function can be debugged. But a crash ends the run.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from types import TracebackType

_WATCH = """
import sys
name = ""
for line in sys.stdin:
    name = line.strip()
    if not name:  # not only the end of the pipe, which a process that the function started may keep open
        break
if name:
    print(f"convgrad: the process ended in the case {name}; use --isolate to judge the other cases", file=sys.stderr)
"""


class Witness:
    """The process that watches this one; ``note`` sets the name of the present case."""

    def __enter__(self) -> Witness:
        self._child: subprocess.Popen[str] | None = None
        with suppress(OSError):  # the run needs no witness
            command = [sys.executable, "-S", "-E", "-c", _WATCH]
            self._child = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)
        return self

    def note(self, name: str) -> None:
        """Set the name to print if this process ends now; an empty name ends the watching process."""
        if self._child is not None and self._child.stdin is not None:
            with suppress(OSError):
                self._child.stdin.write(f"{' '.join(name.split())}\n")
                self._child.stdin.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.note("")
        if self._child is not None:
            with suppress(OSError):
                self._child.communicate()
