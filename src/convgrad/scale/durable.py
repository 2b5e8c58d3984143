"""Files with a JSON text and f32 arrays. A file gets its name after it is complete on disk. A damaged file is refused.

A file begins with a line that names the format, the length of the text, and the number of elements per array, which is
equal for all arrays. Then follow the text, the arrays, and the SHA-256 of everything before.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from convgrad.array_types import Array
from convgrad.disk import opened, why, written
from convgrad.errors import FileError

NUMBER = np.dtype("<f4")
_LENGTHS = struct.Struct("<QQ")
_DIGEST_BYTES = hashlib.sha256().digest_size


def write(path: Path, line: bytes, text: object, arrays: Sequence[Array]) -> None:
    """Write the file, or replace it. An interrupted write leaves the old file unchanged."""
    head = json.dumps(text).encode()
    lengths = _LENGTHS.pack(len(head), arrays[0].size if arrays else 0)
    parts: list[Array] = [np.frombuffer(line + lengths + head, np.uint8)]
    parts += [np.ascontiguousarray(array, NUMBER) for array in arrays]
    hashed = hashlib.sha256()
    with written(path, force=True) as file:
        for part in parts:
            hashed.update(part.data)
            file.write(part.data)
        file.write(hashed.digest())
        file.flush()
        os.fsync(file.fileno())
    try:
        _sync(Path(os.path.realpath(path)).parent)
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {why(error)}") from error


def read(path: Path, line: bytes) -> tuple[Any, list[Array]]:
    """Return the text and the arrays, each flat and in its own memory. Raise FileError if the file is damaged."""
    with opened(path) as file:
        try:
            if (first_line := file.read(len(line))) != line:
                raise FileError(f"{path}: must begin with {line.decode()!r}; got {first_line!r}")
            size = os.fstat(file.fileno()).st_size
            lengths = file.read(_LENGTHS.size)
            damaged = FileError(f"{path}: is damaged: its size of {size} bytes contradicts its first bytes")
            if len(lengths) < _LENGTHS.size:
                raise damaged
            length, array_size = _LENGTHS.unpack(lengths)
            numbers, odd = divmod(size - len(line) - len(lengths) - length - _DIGEST_BYTES, NUMBER.itemsize)
            if numbers < 0 or odd or (numbers % array_size if array_size else numbers):
                raise damaged
            head = file.read(length)
            hashed = hashlib.sha256(line + lengths + head)
            arrays = []
            for _ in range(numbers // max(1, array_size)):
                arrays.append(np.fromfile(file, NUMBER, array_size))
                hashed.update(arrays[-1].data)
            digest = file.read()
        except OSError as error:
            raise FileError(f"{path}: cannot be read: {why(error)}") from error
    if digest != hashed.digest():
        raise FileError(f"{path}: is damaged: its contents contradict its SHA-256")
    try:
        return json.loads(head), arrays
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}: its text is not JSON: {error}") from error


def _sync(directory: Path) -> None:
    """Flush the names of a directory's files to the disk, if the system supports this."""
    if hasattr(os, "O_DIRECTORY"):
        opened_directory = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(opened_directory)
        finally:
            os.close(opened_directory)
