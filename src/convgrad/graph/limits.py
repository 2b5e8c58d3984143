"""How large a graph may be: what a hostile file cannot exceed. Every limit is an argument."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The most of everything: bytes and nesting of a file, ops, bytes of one op and of all that is around the ops.

    ``memory_bytes`` are those that tensors, and computing an op, may take at one time, and what a file of tensors may
    expand to: what it announces is held against that.
    """

    file_bytes: int = 64 << 20
    nesting: int = 32
    ops: int = 100_000
    op_bytes: int = 8 << 20
    memory_bytes: int = 16 << 30


DEFAULT_LIMITS = Limits()
