"""How large a graph may be: what a hostile file cannot exceed. Every limit is an argument."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The most of everything: bytes and nesting of a file, ops, and the bytes that tensors may take at one time.

    What a file of tensors may expand to is ``memory_bytes``, too: what it announces is held against that.
    """

    file_bytes: int = 64 << 20
    nesting: int = 32
    ops: int = 100_000
    memory_bytes: int = 16 << 30


DEFAULT_LIMITS = Limits()
