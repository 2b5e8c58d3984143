"""Reading and writing of arrays in .npy, .npz, .safetensors and .pt files, and reading of folders of Zarr.

A **place** names an array: ``file.npy``, ``file.npz:key``, ``file.safetensors:key``, ``file.pt:key`` or
``folder.zarr:key``. The key is optional if the file has only one array. Code in pickles is never run. Readers refuse
arrays that need more memory than a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import numpy as np

from convgrad.array_types import Array, Dtype
from convgrad.disk import check_new, left, opened, written
from convgrad.errors import FileError
from convgrad.files import npy, npz, pt, safetensors, zarr
from convgrad.files.member import RECORDS, Members
from convgrad.files.room import room
from convgrad.formats import FORMATS, Format, of_dtype
from convgrad.graph.limits import DEFAULT_LIMITS
from convgrad.words import printable

OUTPUT = pt.ALONE  # the key of an array that is written to a place without a key
LONGEST_KEY = 255
LONGEST_LIST = 500
LONGEST_BITS = 2  # bytes of numbers whose bits programs store as unsigned integers


@dataclass(frozen=True)
class Kind:
    """A file format: the functions that find and write arrays, and whether arrays have keys.

    ``extensions`` is whether the format can store bf16 and f8. ``header`` returns the bytes before an array's numbers,
    from the array's key, shape and type. If ``header`` is None, no array can be written in parts. A format that
    ``is_folder`` is only read.
    """

    members: Callable[[Any, Path], AbstractContextManager[Members]]
    write: Callable[[IO[bytes], Mapping[str, Array]], None]
    keyed: bool
    extensions: bool = False
    header: Callable[[str, tuple[int, ...], Dtype], bytes] | None = None
    package: Callable[[], object] = lambda: None  # imports the package for the format, or raises an error
    is_folder: bool = False


KINDS: Mapping[str, Kind] = {
    ".npy": Kind(npy.members, npy.write, keyed=False, header=npy.header),
    ".npz": Kind(npz.members, npz.write, keyed=True),
    ".safetensors": Kind(
        safetensors.members,
        safetensors.write,
        keyed=True,
        extensions=True,
        header=safetensors.header,
        package=safetensors.package,
    ),
    ".pt": Kind(pt.members, pt.write, keyed=True, extensions=True, package=pt.package),
    ".zarr": Kind(zarr.members, zarr.write, keyed=True, package=zarr.package, is_folder=True),
}
_KEYED = " or ".join(ending for ending, kind in KINDS.items() if kind.keyed)
_WRITTEN = ", ".join(ending for ending, kind in KINDS.items() if not kind.is_folder)


def split_place(place: str) -> tuple[Path, str | None]:
    """Return the file of a place, and its key or None.

    >>> split_place("step.npz:src")
    (PosixPath('step.npz'), 'src')
    """
    head, colon, key = place.rpartition(":")
    if colon and head.lower().endswith(tuple(KINDS)):
        return Path(head), key or None
    return Path(place), None


def read(place: str, memory_bytes: int = DEFAULT_LIMITS.memory_bytes, fmt: Format | None = None) -> Array:
    """Return the array at a place. Raise FileError, before allocating, if it needs more than ``memory_bytes``.

    ``fmt`` is the expected number format. ``fmt`` is needed for bf16 and f8_e4m3 in .npy and .npz files, where NumPy
    stores raw records without the format's name. Unsigned integers become the bits of ``fmt`` if it has 8 or 16 bits.
    """
    path, key = split_place(place)
    _check_key(place, path, key)
    with _members(path) as members:
        name = _one_key(path, key, members) if _kind(path).keyed else next(iter(members))
        return _arrays(path, {name: members[name]}, memory_bytes, {name: fmt})[name]


def check_numbers(place: str, array: Array, option: str) -> None:
    """Raise FileError if an array has the type of bits, with ``option`` as the way to name the format of these bits."""
    bits = [name for name, fmt in FORMATS.items() if fmt.bits == array.dtype and fmt.bits.itemsize <= LONGEST_BITS]
    if bits:
        wanted = f"must hold numbers; it holds {array.dtype}. If these are the bits of {' or '.join(bits)}"
        raise FileError(f"{place}: {wanted}, pass {option}, for example {option} {bits[0]}")


def is_place(text: str) -> bool:
    """Return whether a text names an array in a file or folder of a known format.

    >>> is_place("step.npz:src"), is_place("src")
    (True, False)
    """
    path, _ = split_place(text)
    return path.suffix.lower() in KINDS or zarr.is_zarr(path)


def mapped(place: str, fmt: Format | None = None) -> Any:
    """Return the array at a place as a memory map of its file, or as an array of Zarr. Only the header is read.

    Raises FileError if the array cannot be read in pieces, for example because its file is compressed. ``fmt`` is the
    same as in ``read``.
    """
    path, key = split_place(place)
    _check_key(place, path, key)
    with _members(path) as members:
        name = _one_key(path, key, members) if _kind(path).keyed else next(iter(members))
        member = members[name]
        if member.sliced is not None:
            array = member.sliced()
            if np.dtype(array.dtype) in RECORDS:
                raise FileError(f"{place}: raw records cannot be read in pieces; store the values as .safetensors")
            return array
        if member.stored is None:
            raise FileError(
                f"{place}: must have the same bytes in its file as in memory, to be read in pieces; {member.why_not}"
            )
        stored = member.stored()
        if prod(stored.shape) == 0:
            return _typed(np.empty(stored.shape, stored.dtype), fmt, place)
        return _typed(np.memmap(path, stored.dtype, "r", stored.first_byte, stored.shape, stored.order), fmt, place)


def read_all(
    path: str,
    memory_bytes: int = DEFAULT_LIMITS.memory_bytes,
    formats: Mapping[str, Format | None] = MappingProxyType({}),
) -> dict[str, Array]:
    """Return all arrays of a .npz, .safetensors or .pt file, by key.

    Raises FileError, before reading an array, if all arrays together need more than ``memory_bytes``. ``formats`` maps
    keys to expected number formats, like ``fmt`` of ``read``.
    """
    if not _kind(Path(path)).keyed:
        raise FileError(f"{path}: arrays by key are read from {_KEYED}; got {Path(path).suffix}")
    with _members(Path(path)) as members:
        return _arrays(Path(path), members, memory_bytes, formats)


def keys(path: Path) -> tuple[str, ...]:
    """Return the keys of all arrays in a file."""
    with _members(path) as members:
        return tuple(members)


def check_target(place: str, array_dtype: Dtype, force: bool) -> None:
    """Raise FileError if a place cannot store arrays of this type, or if its file exists and ``force`` is False."""
    path, key = split_place(place)
    _check_key(place, path, key)
    fmt = of_dtype(array_dtype)
    if _kind(path).is_folder:
        raise FileError(f"{place}: {zarr.READ_ONLY}; write {_WRITTEN}")
    if fmt is not None and fmt.is_extension and not _kind(path).extensions:
        raise FileError(
            f"{place}: {fmt} cannot be kept in {path.suffix} files, which lose the type; write .safetensors"
        )
    _check_new_key(path, key or OUTPUT)
    check_new(path, force, place)
    _kind(path).package()


def write(place: str, array: Array, force: bool = False) -> None:
    """Write one array to a place. With ``force``, an existing file is replaced when the new file is complete."""
    check_target(place, array.dtype, force)
    path, key = split_place(place)
    with written(path, force, place) as file:
        _kind(path).write(file, {key or OUTPUT: array})


@contextmanager
def written_in_pieces(
    place: str, shape: tuple[int, ...], dtype: Dtype, *, force: bool = False, kept: Path | None = None
) -> Iterator[Array]:
    """Yield an array to write in any order, which is a map of a new file. The file gets its name at the end.

    ``kept`` is the path of another file, which records the finished parts. After an error, the unfinished file is
    deleted, except if ``kept`` has recorded a part. The next call continues an unfinished file.
    """
    check_target(place, dtype, force)
    path, key = split_place(place)
    head = _kind(path).header
    if head is None:
        endings = " or ".join(ending for ending, kind in KINDS.items() if kind.header)
        raise FileError(f"{place}: an array is written in pieces only to {endings}; got {path.suffix}")
    with left(path, force, kept, place) if kept else written(path, force, place) as file:
        array = room(file, head(key or OUTPUT, shape, dtype), shape, dtype)
        yield array
        if isinstance(array, np.memmap):
            array.flush()


def check_target_of_all(path: str, dtypes: Sequence[Dtype], force: bool) -> None:
    """Raise FileError if arrays of these types cannot be written to a file by key."""
    if not _kind(Path(path)).keyed:
        raise FileError(f"{path}: arrays by key are written to {_KEYED}; got {Path(path).suffix}")
    for dtype in dtypes:
        check_target(path, dtype, force)


def write_all(path: str, arrays: Mapping[str, Array], force: bool = False) -> None:
    """Write arrays by key to a .npz, .safetensors or .pt file. The file gets its name when it is complete."""
    check_target_of_all(path, [array.dtype for array in arrays.values()], force)
    for key in arrays:
        _check_new_key(Path(path), key)
    with written(Path(path), force) as file:
        _kind(Path(path)).write(file, arrays)


def _kind(path: Path) -> Kind:
    ending = ".zarr" if zarr.is_zarr(path) else path.suffix.lower()
    if ending not in KINDS:
        got = "a directory" if path.is_dir() else ending or "no ending"
        raise FileError(f"{path}: the name must end in {', '.join(KINDS)}; got {got}")
    return KINDS[ending]


def _check_key(place: str, path: Path, key: str | None) -> None:
    if key is not None and not _kind(path).keyed:
        raise FileError(f"{place}: a {path.suffix} file has one array and no keys; got key {key!r:.200}")


def _check_new_key(path: Path, key: str) -> None:
    if not key.isprintable() or len(key) > LONGEST_KEY or key == safetensors.METADATA:
        wanted = f"at most {LONGEST_KEY} printable characters, and not {safetensors.METADATA}"
        raise FileError(f"{path}: a key to write must be {wanted}; got {printable(key)}")


@contextmanager
def _members(path: Path) -> Iterator[Members]:
    """Open a file and yield its arrays, which are not yet read. Exceptions within the context become FileError."""
    kind = _kind(path)
    if kind.is_folder and not zarr.is_zarr(path):
        raise FileError(f"{path}: must be a folder of Zarr, with one of {', '.join(zarr.HEADS)}; it is none")
    with nullcontext() if kind.is_folder else opened(path) as file:
        try:
            with kind.members(file, path) as members:
                yield members
        except (FileError, MemoryError):
            raise
        except Exception as error:  # NumPy and zipfile may raise almost any exception for damaged headers
            raise FileError(f"{path}: cannot be read as {path.suffix}: {error}") from error


def _arrays(path: Path, members: Members, memory_bytes: int, formats: Mapping[str, Format | None]) -> dict[str, Array]:
    announced = sum(member.size_bytes for member in members.values())
    if announced > memory_bytes:
        arrays = "the array" if len(members) == 1 else f"{len(members)} arrays"
        raise FileError(f"{path}: {arrays} must fit {memory_bytes} bytes (memory_bytes); the size is {announced}")
    places = {key: f"{path}:{key}" if key else str(path) for key in members}
    return {key: _typed(member.read(), formats.get(key), places[key]) for key, member in members.items()}


def _typed(array: Array, fmt: Format | None, place: str) -> Array:
    """Return an array in which raw records are converted to ``fmt``. Raise FileError if ``fmt`` does not match."""
    name = RECORDS.get(array.dtype)
    if name is None:
        is_bits = fmt is not None and array.dtype == fmt.bits and fmt.bits.itemsize <= LONGEST_BITS
        return array.view(fmt.dtype) if fmt is not None and is_bits else array
    if fmt is None or fmt.name != name:
        fault = f"holds raw {array.dtype.itemsize}-byte records, which NumPy makes of {name} arrays"
        raise FileError(
            f"{place}: {fault}{f'; its type must be {fmt}' if fmt else ''}; say that it is {name} "
            f"(--type or --dtype {name}, or a case of {name}), or write .safetensors"
        )
    return array.view(fmt.dtype)


def _one_key(path: Path, key: str | None, members: Members) -> str:
    if key is None and len(members) == 1:
        return next(iter(members))
    if key is None or key not in members:
        wanted = "a key is needed" if key is None else f"no array {key!r:.200}"
        listed = printable(", ".join(sorted(members)), LONGEST_LIST) or "no arrays"
        raise FileError(f"{path}: {wanted}; the file has {listed}")
    return key
