"""Limits of the size of graphs, against hostile files. Every limit is an argument."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The limits of a file: its bytes, its nesting, its ops, and the bytes of one op and of everything around the ops.

    ``memory_bytes`` limits the memory that tensors and the computation of an op take at one time. It also limits the
    expanded size of a file of tensors, as the file announces it.
    """

    file_bytes: int = 64 << 20
    nesting: int = 32
    ops: int = 100_000
    op_bytes: int = 8 << 20
    memory_bytes: int = 16 << 30


DEFAULT_LIMITS = Limits()
