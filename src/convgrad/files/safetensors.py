"""The .safetensors format, which can store bf16 and f8. The safetensors package checks that a file is complete."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from math import prod
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import numpy as np

from convgrad.array_types import Array, Dtype
from convgrad.errors import FileError
from convgrad.files.member import Member, Members, Stored
from convgrad.formats import Format, of_dtype, of_program

METADATA = "__metadata__"  # the key of the header's metadata, which is not a tensor
FORMATS = of_program("safetensors")
MAPPED = (*FORMATS, "I64")
_LENGTH_BYTES = 8  # the file begins with the header's length, a number of this size


@contextmanager
def members(file: IO[bytes], path: Path) -> Iterator[Members]:
    """Yield the arrays of a .safetensors file by key."""
    with package().safe_open(path, framework="np") as tensors:

        @cache
        def header() -> tuple[int, dict[str, Any]]:
            """Return the offset in bytes of all data, and the header's entries by key."""
            file.seek(0)
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            return _LENGTH_BYTES + length, json.loads(file.read(length))

        def extension(key: str, fmt: Format) -> Array:  # the package cannot return f8 or bf16 as NumPy arrays
            begin, entries = header()
            file.seek(begin + entries[key]["data_offsets"][0])
            shape = entries[key]["shape"]
            array: Array = np.fromfile(file, fmt.bits, prod(shape)).view(fmt.dtype).reshape(shape)
            return array

        def stored(key: str, fmt: Format | None, shape: tuple[int, ...]) -> Stored:
            begin, entries = header()
            return Stored(fmt.dtype if fmt else np.dtype("<i8"), shape, begin + entries[key]["data_offsets"][0])

        members_by_key = {}
        for key in tensors.keys():  # noqa: SIM118 - no mapping
            described = tensors.get_slice(key)
            dtype = described.get_dtype()
            fmt = FORMATS.get(dtype)
            read = partial(extension, key, fmt) if fmt and fmt.is_extension else partial(tensors.get_tensor, key)
            size, shape = _size_bytes(dtype, described.get_shape()), tuple(described.get_shape())
            if dtype in MAPPED:
                members_by_key[key] = Member(size, read, partial(stored, key, fmt, shape))
            else:
                members_by_key[key] = Member(size, read, why_not=f"it holds {dtype}, and not {', '.join(MAPPED)}")
        yield members_by_key


def metadata(path: Path) -> Mapping[str, str]:
    """Return the metadata of a file by key."""
    try:
        with package().safe_open(path, framework="np") as tensors:
            return tensors.metadata() or {}
    except FileError:
        raise
    except Exception as error:  # the package raises its own exception type
        raise FileError(f"{path}: cannot be read as .safetensors: {error}") from error


def _size_bytes(dtype: str, shape: list[int]) -> int:
    """Return the size of a tensor in bytes. A type's name contains its number of bits, except for BOOL.

    >>> _size_bytes("BF16", [2, 3]), _size_bytes("BOOL", [4])
    (12, 4)
    """
    bits = re.search(r"\d+", dtype)
    return prod(shape) * (int(bits[0]) if bits else 8) // 8


def header(key: str, shape: tuple[int, ...], dtype: Dtype) -> bytes:
    """Return the header of a file with one array, padded so that the numbers begin at a multiple of 8 bytes."""
    fmt = of_dtype(dtype)
    name = fmt.aliases["safetensors"] if fmt else "I64"
    described = {"dtype": name, "shape": list(shape), "data_offsets": [0, prod(shape) * dtype.itemsize]}
    text = json.dumps({key: described}, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text


def write(file: IO[bytes], arrays: Mapping[str, Array]) -> None:
    """Write arrays by key to a .safetensors file."""
    package()
    from safetensors.numpy import save  # noqa: PLC0415

    file.write(save({key: np.asarray(array, order="C") for key, array in arrays.items()}))


def package() -> ModuleType:
    """Return the safetensors package, or raise FileError with the command that installs it."""
    try:
        import safetensors  # noqa: PLC0415 - an extra, needed for these files only
    except ImportError as error:
        raise FileError("safetensors files need the safetensors package: pip install safetensors") from error
    return safetensors
