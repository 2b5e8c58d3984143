"""The .npz format: a zip archive of .npy members, whose sizes are checked before they are decompressed."""

from __future__ import annotations

import os
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np

from convgrad.array_types import Array
from convgrad.errors import FileError
from convgrad.files import npy
from convgrad.files.member import Member, Members, Stored

ENDING = ".npy"
# The largest accepted ratio of a member's size to its compressed size. Deflate reaches a ratio of about 1032.
EXPANSION = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 1100}
_ENCRYPTED = 1  # the bit of a member's flags that means encryption
_LENGTHS = range(26, 30)  # bytes in a member's 30-byte header: the lengths of its name and extras


@contextmanager
def members(file: IO[bytes], path: Path) -> Iterator[Members]:
    """Yield the arrays of an archive by key. A key is a member's name without .npy."""
    with zipfile.ZipFile(file) as archive:
        infos = archive.infolist()
        for info in infos:
            _check(info, f"{path}: {info.filename}")
        keys = [info.filename.removesuffix(ENDING) for info in infos]
        often, times = max(Counter(keys).items(), key=lambda pair: pair[1], default=("", 0))
        if times > 1:
            raise FileError(f"{path}: each member must have a name of its own; {times} are called {often}{ENDING}")
        packed, present = sum(info.compress_size for info in infos), os.fstat(file.fileno()).st_size
        if packed > present:
            raise FileError(f"{path}: the members announce {packed} bytes; the file has {present}")
        yield dict(zip(keys, (_member(archive, info, file, path) for info in infos), strict=True))


def _check(info: zipfile.ZipInfo, name: str) -> None:
    """Raise FileError if a member is not an array, cannot be read, or cannot expand to the size that it announces."""
    if not info.filename.endswith(ENDING):
        raise FileError(f"{name}: must be an array, with a name that ends in {ENDING}")
    if info.flag_bits & _ENCRYPTED:
        raise FileError(f"{name}: is encrypted; arrays must be readable without a password")
    if info.compress_type not in EXPANSION:
        raise FileError(f"{name}: must be stored or deflated, as NumPy writes it; got method {info.compress_type}")
    if info.file_size > EXPANSION[info.compress_type] * max(info.compress_size, 1):
        raise FileError(f"{name}: announces {info.file_size} bytes, but has only {info.compress_size}")


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, file: IO[bytes], path: Path) -> Member:
    """Return a member of the archive. A member can be mapped if it is not compressed."""
    read = partial(_array, archive, info, path)
    if info.compress_type != zipfile.ZIP_STORED:
        return Member(info.file_size, read, why_not="it is compressed; numpy.savez stores arrays as they are")
    return Member(info.file_size, read, partial(_stored, archive, info, file, path))


def _stored(archive: zipfile.ZipFile, info: zipfile.ZipInfo, file: IO[bytes], path: Path) -> Stored:
    """Return the position of an uncompressed array in the archive, after the member's header of variable length."""
    with archive.open(info) as member:  # open compares the member's header with the archive's directory
        inner = npy.stored(member, info.file_size, f"{path}:{info.filename}")
    file.seek(info.header_offset + _LENGTHS.start)
    lengths = np.frombuffer(file.read(len(_LENGTHS)), "<u2")
    return replace(inner, first_byte=info.header_offset + _LENGTHS.stop + int(lengths.sum()) + inner.first_byte)


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> Array:
    with archive.open(info) as member:
        return npy.array(member, info.file_size, f"{path}:{info.filename}")


def write(file: IO[bytes], arrays: Mapping[str, Array]) -> None:
    """Write arrays by key like ``numpy.savez``, but with any key, also "file" and "allow_pickle"."""
    with zipfile.ZipFile(file, "w") as archive:
        for key, array in arrays.items():
            with archive.open(f"{key}{ENDING}", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
