"""Folders of Zarr, of format 2 or 3: one array, or a group of arrays by key. They are only read, also in pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from math import prod
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import numpy as np

from convgrad.array_types import Array
from convgrad.errors import FileError
from convgrad.files.member import RECORDS, Member, Members
from convgrad.words import printable

HEADS = ("zarr.json", ".zarray", ".zgroup")  # files of which a folder of Zarr has one
SLICED = "a Zarr folder has chunks"
READ_ONLY = "Zarr folders are read, not written"
_DEEPEST = 32  # groups within groups that are looked into
_NUMBERS = "fiub"


def is_zarr(path: Path) -> bool:
    """Return whether a path is a folder of Zarr, whatever its name."""
    return any((path / head).is_file() for head in HEADS)


@contextmanager
def members(file: IO[bytes] | None, path: Path) -> Iterator[Members]:
    """Yield the arrays of a folder by key; a single array has the key ""."""
    library = package()
    opened = library.open(str(path), mode="r")
    arrays = _arrays(opened, 0) if isinstance(opened, library.Group) else {"": opened}
    yield {key: _member(key, array, path) for key, array in arrays.items()}


def write(file: IO[bytes], arrays: Mapping[str, Array]) -> None:
    """Raise FileError, because folders are not written."""
    raise FileError(READ_ONLY)


def _arrays(group: Any, depth: int) -> dict[str, Any]:
    if depth > _DEEPEST:
        raise FileError(f"groups must be nested at most {_DEEPEST} deep")
    arrays = dict(group.arrays())
    for name, inner in group.groups():
        arrays |= {f"{name}/{key}": array for key, array in _arrays(inner, depth + 1).items()}
    return arrays


def _member(key: str, array: Any, path: Path) -> Member:
    dtype, place = np.dtype(array.dtype), f"{path}:{printable(key)}" if key else str(path)

    def checked() -> Any:
        if dtype.kind not in _NUMBERS and dtype not in RECORDS:
            raise FileError(f"{place}: must hold numbers; it holds {dtype}")
        if "pickle" in _codecs(array):
            raise FileError(f"{place}: its codec stores Python objects, which are never unpickled")
        return array

    def read() -> Array:
        return np.asarray(checked()[...])

    return Member(prod(array.shape) * dtype.itemsize, read, why_not=SLICED, sliced=partial(checked))


def _codecs(array: Any) -> str:
    """Return the codecs of an array as text, in lower case."""
    described = array.metadata.to_dict() if hasattr(array, "metadata") else {}
    said = [value for name, value in described.items() if name != "attributes"]
    said += [getattr(array, name) for name in ("filters", "compressor") if not described]  # zarr 2
    return str(said).lower()


def package() -> ModuleType:
    """Return the module ``zarr``, or raise FileError with the command that installs it."""
    try:
        import zarr  # noqa: PLC0415 - needed for these folders only
    except ImportError as error:
        raise FileError("Zarr folders need the zarr package: pip install zarr") from error
    module: ModuleType = zarr
    return module
