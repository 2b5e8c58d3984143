"""What tells one call in pieces from another: its problem and the files its arrays lie in, as words by name."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from convgrad import __version__
from convgrad.disk import why
from convgrad.errors import FileError
from convgrad.scale.source import place_of
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
        **{name: _lies(array, read=True) for name, array in zip(names, inputs, strict=False)},
        "out": _lies(out, read=False),
    }


def _lies(array: Any, read: bool) -> str:
    """Return where an array lies, and of one that is read what tells that it is as it was."""
    place = place_of(array)
    if place is None:
        return "nothing" if array is None else "in memory" if isinstance(array, np.ndarray) else type(array).__name__
    name, byte = place
    if not read:
        return name
    try:
        status = os.stat(name)
    except OSError as error:
        raise FileError(f"{name}: is mapped, and cannot be found: {why(error)}") from error
    return f"{name} of {status.st_size} bytes, changed at {status.st_mtime_ns} ns, from byte {byte} by {array.strides}"


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
