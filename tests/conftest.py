"""What all tests need of the process they run in."""

from __future__ import annotations

import signal

# A shell has what it runs in the background ignore Ctrl-C, and children inherit that; tests interrupt themselves
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
