"""The words of a mailbox, in which a thread of the pool looks for work, and its states."""

from __future__ import annotations

MAIL = ("state", "kernel", "arguments", "scratch", "scratch_bytes", "pending")
AWAY, READY, POSTED, CLAIMED, LEAVE = range(5)
