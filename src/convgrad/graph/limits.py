"""Limits on the size of graphs and cases, as a protection against hostile files. You can change every limit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The limits of a file.

    Args:
        file_bytes: The largest number of bytes of the file, and of all files that it includes. Default: 64 << 20.
        nesting: The largest depth of nested values. Default: 32.
        ops: The largest number of ops. Default: 100_000.
        op_bytes: The largest number of bytes of one op, and of the text without its ops. Default: 8 << 20.
        memory_bytes: The largest number of bytes that tensors and the computation of an op take at one time, and of the
            uncompressed size of a file of tensors. Default: 16 << 30.
        cases: The largest number of cases that the descriptors and knobs of benchdnn's files stand for, also of cases
            that ``--match`` skips. Default: 2_000_000.
    """

    file_bytes: int = 64 << 20
    nesting: int = 32
    ops: int = 100_000
    op_bytes: int = 8 << 20
    memory_bytes: int = 16 << 30
    cases: int = 2_000_000


DEFAULT_LIMITS = Limits()
