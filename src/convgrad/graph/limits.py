"""Limits on the size of graphs, as a protection against hostile files. You can change every limit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The limits of a file: its bytes, its nesting depth, and its number of ops.

    ``op_bytes`` limits the bytes of one op, and of the text without its ops. ``memory_bytes`` limits the memory that
    tensors and the computation of an op take at one time, and the uncompressed size of a file of tensors.
    """

    file_bytes: int = 64 << 20
    nesting: int = 32
    ops: int = 100_000
    op_bytes: int = 8 << 20
    memory_bytes: int = 16 << 30


DEFAULT_LIMITS = Limits()
