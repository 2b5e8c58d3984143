"""What tells one call in pieces from another: its problem and the files its arrays lie in, as words by name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import numpy as np

from convgrad import __version__
from convgrad.disk import why
from convgrad.errors import FileError
from convgrad.mapped import part_of
from convgrad.spec.operators import find
from convgrad.spec.problem import Problem

Words = Mapping[str, str]


def identity_of(problem: Problem, inputs: Sequence[Any], out: Any = None) -> Words:
    """Return the words of a call: they differ where its result does, or may.

    Of a map of a file they have its name, size and time of change, of ``out`` the name alone, as it is written to; of
    other arrays shapes and types, as to look into them is to read them. Nothing of how it is cut, or by how many
    threads or which kernels it is computed: the bits are the same.
    """
    names = [port.name for port in find(problem.operator).operands if not port.is_shape]
    return {
        "convgrad": __version__,
        "operator": problem.operator,
        **{field.name: str(getattr(problem.geometry, field.name)) for field in fields(problem.geometry)},
        "layouts": ", ".join(problem.layouts),
        "types": f"{problem.operand_format} to {problem.output_format}",
        "accumulate": str(problem.accumulate),
        **{word: text for name, array in zip(names, inputs, strict=False) for word, text in _lies(name, array, True)},
        **dict(_lies("out", out, False)),
    }


def _lies(name: str, array: Any, read: bool) -> Iterator[tuple[str, str]]:
    """Yield where an array lies, and of one that is read what tells that it is as it was."""
    part = part_of(array)
    if part is None:
        yield (
            name,
            "nothing" if array is None else "in memory" if isinstance(array, np.ndarray) else type(array).__name__,
        )
        return
    yield name, part.file
    if read:
        try:
            status = os.stat(part.file)
        except OSError as error:
            raise FileError(f"{part.file}: is mapped, and cannot be found: {why(error)}") from error
        yield f"the size of {name}'s file", f"{status.st_size} bytes"
        yield f"the time of change of {name}'s file", _time(status.st_mtime_ns)
        yield f"the part of {name}'s file that is mapped", f"from byte {part.first} by {array.strides}"


def _time(since_ns: int) -> str:
    """Return a file's time as a text that does not depend on where it is read.

    >>> _time(1_500_000_000_000_000_070)
    '2017-07-14 02:40:00.000000070 UTC'
    """
    seconds, ns = divmod(since_ns, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{ns:09} UTC"


def difference(one: Words, other: Words) -> str:
    """Return the first name under which two calls differ, and how; nothing where they are the same.

    >>> difference({"strides": "1", "pads": "0"}, {"strides": "1", "pads": "2"})
    'pads was 0 and is 2'
    """
    for name in dict.fromkeys((*one, *other)):
        was, now = one.get(name, "absent"), other.get(name, "absent")
        if was != now:
            return f"{name} was {was} and is {now}"
    return ""
