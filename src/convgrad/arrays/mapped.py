"""The positions of memory-mapped arrays in their files. The positions show whether two arrays share bytes of a file."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from convgrad.array_types import Array
from convgrad.engines.addresses import address_of, array_at


@dataclass(frozen=True)
class FilePart:
    """The position of an array in a file: the file's path, and the offset in bytes of the array's first element."""

    file: str
    first: int


class FilePlace(NamedTuple):
    """The position of an array in a file that is identified by its device and inode.

    ``first`` is the offset in bytes of the array's first element. ``is_shared`` is whether a write to the array changes
    the file.
    """

    device: str
    inode: int
    first: int
    is_shared: bool


_PAGE_ENTRY, _OF_FILE = struct.Struct("=Q"), 1 << 61  # of a page of a file, or of shared memory
_VIEWS, _MAPS = (np.ndarray, memoryview), (np.memmap, mmap.mmap)  # isinstance with X | Y would be slower


def is_mapped(array: object) -> bool:
    """Return whether an array is a view of a memory-mapped file, according to its chain of base objects."""
    return isinstance(_last_owner(array), _MAPS)


def _may_be_mapped(array: Array) -> bool:
    """Return whether an array's memory may belong to a mapped file, also one that another library has mapped."""
    owner = _last_owner(array)
    if owner is None or isinstance(owner, _MAPS):
        return owner is not None
    return sys.platform == "linux" and array.size > 0 and _is_page_of_file(address_of(array))


def _is_page_of_file(address: int) -> bool:
    """Return whether Linux may have the page at an address from a file. Reading the list of maps would be slower."""
    ctypes.string_at(address, 1)  # only a page that was read has an entry
    try:
        with open("/proc/self/pagemap", "rb", buffering=0) as pages:
            pages.seek(address // mmap.PAGESIZE * _PAGE_ENTRY.size)
            (entry,) = _PAGE_ENTRY.unpack(pages.read(_PAGE_ENTRY.size))
    except (OSError, struct.error):  # not all systems have this file
        return True
    return bool(entry & _OF_FILE)


def _last_owner(array: object) -> Any:
    """Return the object that keeps an array's memory; None if it is a NumPy array that has allocated the memory."""
    owner = _owner(array)
    while isinstance(owner, _VIEWS) and not isinstance(owner, np.memmap):
        owner = owner.obj if isinstance(owner, memoryview) else owner.base
    return owner


def _owner(array: object) -> Any:
    """Return the first of an array's chain of base objects that is not a plain NumPy array; None if all are."""
    while type(array) is np.ndarray:
        array = array.base
    return array


def part_of(array: object) -> FilePart | None:
    """Return the position of an array in the file that NumPy has mapped; None if no file with a name is mapped."""
    owner = _memmap_of(array)
    if owner is None or not owner.filename:
        return None
    assert isinstance(array, np.ndarray), "a view of a memmap is an array"
    return FilePart(os.path.realpath(str(owner.filename)), address_of(array) - address_of(owner) + owner.offset)


def _memmap_of(array: object) -> np.memmap[Any, Any] | None:
    """Return the ``np.memmap`` that maps the file, if an array is this map or a view of it; else None."""
    while isinstance(array, np.ndarray) and not isinstance(array.base, mmap.mmap):
        array = array.base  # a view of a memmap is a memmap too, but its ``offset`` is wrong
    return array if isinstance(array, np.memmap) else None


def seen_from(out: Array, operands: Mapping[str, Array]) -> Mapping[str, Array]:
    """Return the operands. An operand that maps the same file as ``out`` gets the address in the map of ``out``.

    Use the returned arrays to test for overlap with ``out``, and do not read them. Operands from other files are not
    moved. If writes to ``out`` do not change a file, no operand is moved.
    """
    if out.base is None or not _may_be_mapped(out):
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


def _moved(operand: Array, out: Array, to: FilePlace, place: FilePlace | None) -> Array:
    if place is None or place[:2] != to[:2]:
        return operand
    return array_at(address_of(out) + place.first - to.first, operand.shape, operand.strides, operand.dtype)


def _by_address(arrays: Sequence[Array]) -> list[FilePlace | None]:
    """Return the places of arrays in files, from Linux's list of maps, which includes deleted files."""
    try:
        maps = Path("/proc/self/maps").read_bytes()
    except OSError:  # a process may have no /proc, or no right to read it
        return _by_name(arrays)
    places: list[FilePlace | None] = [None] * len(arrays)
    addresses = [address_of(array) for array in arrays]
    for line in maps.splitlines():
        first, end = (int(address, 16) for address in line[: line.index(b" ")].split(b"-"))
        for at, address in enumerate(addresses):
            if first <= address < end:
                _, access, offset, device, inode, *_ = line.split(maxsplit=5)
                place = FilePlace(device.decode(), int(inode), int(offset, 16) + address - first, access.endswith(b"s"))
                places[at] = place if place.inode else None  # an inode of 0: memory without a file
    return places


def _by_name(arrays: Sequence[Array]) -> list[FilePlace | None]:
    """Return the places of arrays in files that NumPy has mapped; None for other arrays and deleted files."""
    places: list[FilePlace | None] = []
    for array in arrays:
        part, owner = part_of(array), _memmap_of(array)
        if part is None or owner is None or not Path(part.file).exists():
            places.append(None)
            continue
        status = os.stat(part.file)
        places.append(FilePlace(str(status.st_dev), status.st_ino, part.first, owner.mode != "c"))
    return places
