"""Conversions between numbers of bytes and texts such as "512MiB"."""

from __future__ import annotations

import re
from decimal import Decimal

from convgrad.spec.check import as_integer
from convgrad.spec.rules import refuse

DEFAULT = "1GiB"  # fixed, so that a call is cut in the same way on every machine
UNITS = {"": 1} | {
    prefix + middle: base**power for power, prefix in enumerate("KMGT", 1) for middle, base in (("", 1000), ("i", 1024))
}
_TEXT = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*([KMGT]I?)?B?\s*", re.IGNORECASE | re.ASCII)


def bytes_of(memory: object, operator: str) -> int:
    """Return the number of bytes that a number or a text means, by rule M1; None means ``DEFAULT``.

    >>> bytes_of("1GB", "run"), bytes_of("1.5 MiB", "run"), bytes_of(None, "run") == 1 << 30
    (1000000000, 1572864, True)
    """
    size = DEFAULT if memory is None else memory
    if isinstance(size, str):
        said = _TEXT.fullmatch(size)
        unit = ((said[2] or "").upper()).replace("I", "i") if said else ""
        number = int(Decimal(said[1]) * UNITS[unit]) if said else None
    else:
        number = as_integer(size)
    if number is None or number <= 0:  # M1
        must = 'memory must be a positive number of bytes, or a text such as "1GB" or "512MiB"'
        way = f". Use {int(memory)}" if isinstance(memory, float) and memory.is_integer() and memory > 0 else ""
        refuse("M1", operator, f"{must}; got {memory!r:.200}{way}")
    return number


def words(number: int) -> str:
    """Return a number of bytes as a text, rounded to three digits, with units that are powers of 1000.

    >>> words(512), words(67_108_864), words(999_999_999)
    ('512 B', '67.1 MB', '1 GB')
    """
    for prefix, unit in (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 1000)):
        if number >= 0.9995 * unit:  # rounded to three digits, the number is at least one unit
            return f"{number / unit:.3g} {prefix}B"
    return f"{number} B"
