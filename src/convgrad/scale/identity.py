"""The identity of a call in pieces: its problem and the files of its arrays, as named texts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import numpy as np

from convgrad import __version__
from convgrad.arrays.mapped import part_of
from convgrad.disk import why
from convgrad.errors import FileError
from convgrad.spec.operators import find
from convgrad.spec.problem import Problem

Words = Mapping[str, str]


def identity_of(problem: Problem, inputs: Sequence[object], out: object = None) -> Words:
    """Return texts that identify a call, by name: its problem, and the location of each array.

    For a mapped operand, the texts contain its file's name, size, time of change and mapped part. For a mapped ``out``,
    they contain only the file's name, because the call changes the file. The contents of arrays are not included,
    because then all arrays would be read. The cut, threads and kernels are not included, because bits do not depend on
    these.
    """
    names = [port.name for port in find(problem.operator).operands if not port.is_shape]
    return {
        "convgrad": __version__,
        "operator": problem.operator,
        **{field.name: str(getattr(problem.geometry, field.name)) for field in fields(problem.geometry)},
        "layouts": ", ".join(problem.layouts),
        "types": f"{problem.operand_format} to {problem.output_format}",
        "accumulate": str(problem.accumulate),
        **{
            word: text
            for name, array in zip(names, inputs, strict=False)
            for word, text in _described(name, array, True)
        },
        **dict(_described("out", out, False)),
    }


def _described(name: str, array: Any, read: bool) -> Iterator[tuple[str, str]]:
    """Yield an array's location. For a mapped operand, also yield facts that show whether its file has changed."""
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
    """Return a file's time as a text that is the same in every time zone.

    >>> _time(1_500_000_000_000_000_070)
    '2017-07-14 02:40:00.000000070 UTC'
    """
    seconds, ns = divmod(since_ns, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{ns:09} UTC"


def difference(earlier: Words, current: Words) -> str:
    """Return a text about the first difference between the identities of two calls; empty if there is no difference.

    >>> difference({"strides": "1", "pads": "0"}, {"strides": "1", "pads": "2"})
    'pads was 0 and is 2'
    """
    for name in dict.fromkeys((*earlier, *current)):
        was, now = earlier.get(name, "absent"), current.get(name, "absent")
        if was != now:
            return f"{name} was {was} and is {now}"
    return ""
