"""Folders of Zarr, of format 2 or 3: one array, or a group of arrays by key. They are only read, also in pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
_MAXIMUM_GROUPS = 1024  # links can make one group many
_MAXIMUM_PARTS = 1 << 18  # the chunks of an array that is read whole; each takes about a millisecond
_NUMBERS = "fiub"


def is_zarr(path: Path) -> bool:
    """Return whether a path is a folder of Zarr, whatever its name."""
    return any((path / head).is_file() for head in HEADS)


@contextmanager
def members(file: IO[bytes] | None, path: Path) -> Iterator[Members]:
    """Yield the arrays of a folder by key; a single array has the key ""."""
    library = package()
    opened = library.open(str(path), mode="r")
    arrays = _arrays(opened) if isinstance(opened, library.Group) else {"": opened}
    yield {key: _member(key, array, path) for key, array in arrays.items()}


def write(file: IO[bytes], arrays: Mapping[str, Array]) -> None:
    """Raise FileError, because folders are not written."""
    raise FileError(READ_ONLY)


def _arrays(outermost: Any) -> dict[str, Any]:
    """Return the arrays of a group and of the groups within it, by key."""
    arrays: dict[str, Any] = {}
    groups = [("", outermost)]
    for prefix, group in groups:
        if prefix.count("/") > _DEEPEST:
            raise FileError(f"groups must be nested at most {_DEEPEST} deep")
        if len(groups) > _MAXIMUM_GROUPS:
            raise FileError(f"groups must be at most {_MAXIMUM_GROUPS}, of which links count each time")
        arrays |= {f"{prefix}{key}": array for key, array in group.arrays()}
        groups += [(f"{prefix}{name}/", inner) for name, inner in group.groups()]
    return arrays


def _member(key: str, array: Any, path: Path) -> Member:
    dtype, place = np.dtype(array.dtype), f"{path}:{printable(key)}" if key else str(path)

    def checked() -> Any:
        if dtype.kind not in _NUMBERS and dtype not in RECORDS:
            raise FileError(f"{place}: must hold numbers; it holds {dtype}")
        if "pickle" in _codecs(array):
            raise FileError(f"{place}: its codec stores Python objects, which are never unpickled")
        return array

    parts = (getattr(array, name, None) for name in ("shards", "chunks"))  # what is decoded as a whole
    whole = [extent or 1 for extent in next(filter(None, parts), ())]
    counts = [-(-extent // chunk) for extent, chunk in zip(array.shape, whole, strict=True)]

    def read() -> Array:
        if prod(counts) > _MAXIMUM_PARTS:
            raise FileError(
                f"{place}: must have at most {_MAXIMUM_PARTS} chunks to be read whole; it has {prod(counts)}"
            )
        return np.asarray(checked()[...])

    return Member(prod(counts) * prod(whole) * dtype.itemsize, read, why_not=SLICED, sliced=checked)


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
