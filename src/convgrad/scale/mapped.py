"""Where in a file an array lies whose memory is the file's: which file, and which byte of it is the first."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.engines.addresses import address_of


@dataclass(frozen=True)
class Part:
    """A file, and the byte at which an array's first element lies."""

    file: str
    first: int


def part_of(array: object) -> Part | None:
    """Return where an array lies; None where that is no file, or one without a name."""
    owner = array
    while isinstance(owner, np.ndarray) and not isinstance(owner.base, mmap.mmap):
        owner = owner.base  # a view is a memmap too, but its offset is that of the first
    if not isinstance(array, np.ndarray) or not isinstance(owner, np.memmap) or not owner.filename:
        return None
    return Part(os.path.realpath(str(owner.filename)), address_of(array) - address_of(owner) + owner.offset)


def seen_from(out: object, operand: NDArray[Any]) -> NDArray[Any]:
    """Return an operand as it would lie if a file that it shares with ``out`` were mapped once; not to be read."""
    to, from_ = part_of(out), part_of(operand)
    if to is None or from_ is None or not os.path.samefile(to.file, from_.file):
        return operand
    assert isinstance(out, np.ndarray), "what is part of a file is an array"
    lies = operand.__array_interface__ | {"data": (address_of(out) + from_.first - to.first, True)}
    return np.asarray(SimpleNamespace(__array_interface__=lies))
