"""Where in a file an array lies whose memory is the file's, and whether two arrays lie in the same bytes of one."""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from convgrad.engines.addresses import address_of, array_at

Array = NDArray[Any]


@dataclass(frozen=True)
class Part:
    """A file, and the byte at which an array's first element lies."""

    file: str
    first: int


class Place(NamedTuple):
    """The same of a file that need not have a name; and whether what is written there is written to the file."""

    device: str
    inode: int
    first: int
    is_shared: bool


_VIEWS, _MAPS = (np.ndarray, memoryview), (np.memmap, mmap.mmap)  # a union would be made anew in each call


def is_mapped(array: object) -> bool:
    """Return whether an array's memory is a file's, as far as the objects know that it views."""
    owner = _owner(array)
    while isinstance(owner, _VIEWS) and not isinstance(owner, np.memmap):
        owner = owner.obj if isinstance(owner, memoryview) else owner.base
    return isinstance(owner, _MAPS)


def _owner(array: Any) -> Any:
    """Return what the memory of an array is of, where that is not a NumPy array itself: then it is no file's."""
    while type(array) is np.ndarray:
        array = array.base
    return array


def part_of(array: object) -> Part | None:
    """Return where an array lies; None where that is no file, or one without a name."""
    owner = _memmap_of(array)
    if owner is None or not owner.filename:
        return None
    assert isinstance(array, np.ndarray), "what views a memmap is an array"
    return Part(os.path.realpath(str(owner.filename)), address_of(array) - address_of(owner) + owner.offset)


def _memmap_of(array: object) -> np.memmap[Any, Any] | None:
    """Return the memmap that an array is, or is a view of, which knows where in its file it begins."""
    while isinstance(array, np.ndarray) and not isinstance(array.base, mmap.mmap):
        array = array.base  # a view is a memmap too, but its offset is that of the first
    return array if isinstance(array, np.memmap) else None


def seen_from(out: Array, operands: Mapping[str, Array]) -> Mapping[str, Array]:
    """Return operands as they would lie if the file that ``out`` is a map of were mapped once; not to be read.

    An ``out`` that is no map, or a map that is not written to its file, shares no file with operands.
    """
    if out.base is None or not is_mapped(out):
        return operands
    others = {name: array for name, array in operands.items() if _owner(array) is not None}
    if not others:
        return operands
    to, *places = (_by_address if sys.platform == "linux" else _by_name)([out, *others.values()])
    if to is None or not to.is_shared:
        return operands
    return {
        **operands,
        **{name: _moved(others[name], out, to, place) for name, place in zip(others, places, strict=True)},
    }


def _moved(operand: Array, out: Array, to: Place, place: Place | None) -> Array:
    if place is None or place[:2] != to[:2]:
        return operand
    return array_at(address_of(out) + place.first - to.first, operand.shape, operand.strides, operand.dtype)


def _by_address(arrays: Sequence[Array]) -> list[Place | None]:
    """Return the places of arrays as Linux has them: whoever made the maps, whatever became of the files' names."""
    places: list[Place | None] = [None] * len(arrays)
    addresses = [address_of(array) for array in arrays]
    for line in Path("/proc/self/maps").read_bytes().splitlines():
        first, end = (int(each, 16) for each in line[: line.index(b" ")].split(b"-"))
        for at, address in enumerate(addresses):
            if first <= address < end:
                _, access, offset, device, inode, *_ = line.split(maxsplit=5)
                place = Place(device.decode(), int(inode), int(offset, 16) + address - first, access.endswith(b"s"))
                places[at] = place if place.inode else None  # 0: no file
    return places


def _by_name(arrays: Sequence[Array]) -> list[Place | None]:
    """Return the places of arrays that NumPy has mapped, as far as their files still have a name."""
    places: list[Place | None] = []
    for array in arrays:
        part, owner = part_of(array), _memmap_of(array)
        if part is None or owner is None or not Path(part.file).exists():
            places.append(None)
            continue
        status = os.stat(part.file)
        places.append(Place(str(status.st_dev), status.st_ino, part.first, owner.mode != "c"))
    return places
