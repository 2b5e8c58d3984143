"""A file of a JSON text and f32 arrays that is found whole or refused: it takes its name when it lies on the disk.

It is a line that names it, the length of the text, the text, the numbers of all arrays, and the SHA-256 of all that.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.disk import opened, why, written
from convgrad.errors import FileError

Array = NDArray[Any]

NUMBER = np.dtype("<f4")
_LENGTH_BYTES, _DIGEST_BYTES = 8, hashlib.sha256().digest_size


def write(path: Path, line: bytes, text: Any, arrays: Sequence[Array]) -> None:
    """Write the file, in place of the one before, whatever interrupts this."""
    head = json.dumps(text).encode()
    parts: list[Array] = [np.frombuffer(line + len(head).to_bytes(_LENGTH_BYTES, "little") + head, np.uint8)]
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


def read(path: Path, line: bytes) -> tuple[Any, Array]:
    """Return the text and the numbers of a file, or say what is wrong with it."""
    with opened(path) as file:
        try:
            if (found := file.read(len(line))) != line:
                raise FileError(f"{path}: must begin with {line.decode()!r}; got {found!r}")
            size = os.fstat(file.fileno()).st_size
            counted = file.read(_LENGTH_BYTES)
            length = int.from_bytes(counted, "little")
            numbers_bytes = size - len(line) - _LENGTH_BYTES - length - _DIGEST_BYTES
            if numbers_bytes < 0 or numbers_bytes % NUMBER.itemsize:
                raise FileError(f"{path}: is damaged: its {size} bytes are not what it announces")
            head = file.read(length)
            numbers = np.fromfile(file, NUMBER, numbers_bytes // NUMBER.itemsize)
            digest = file.read()
        except OSError as error:
            raise FileError(f"{path}: cannot be read: {why(error)}") from error
    hashed = hashlib.sha256(line + counted + head)
    hashed.update(numbers.data)
    if digest != hashed.digest():
        raise FileError(f"{path}: is damaged: its SHA-256 is not what it announces")
    return json.loads(head), numbers


def _sync(directory: Path) -> None:
    """Have a directory's names on the disk, where the system can be asked for that."""
    if hasattr(os, "O_DIRECTORY"):
        opened_directory = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(opened_directory)
        finally:
            os.close(opened_directory)
