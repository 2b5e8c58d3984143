"""Arrays in files: .npy, .npz, .safetensors; read without pickle once their headers were checked, written atomically.

A place is ``file.npy``, ``file.npz:key`` or ``file.safetensors:key``; a key may be left out of a file with one array.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import IO, Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from convgrad.errors import FileError

Array = NDArray[Any]

KINDS = (".npy", ".npz", ".safetensors")
_DEFLATE_LIMIT = 1100  # deflate cannot expand further than about 1032 : 1
_BF16 = np.dtype(ml_dtypes.bfloat16)


def split_place(place: str) -> tuple[Path, str | None]:
    """Return the file and the key of a place.

    >>> split_place("step.npz:src")
    (PosixPath('step.npz'), 'src')
    """
    head, colon, key = place.rpartition(":")
    if colon and head.lower().endswith(KINDS):
        return Path(head), key or None
    return Path(place), None


def read(place: str) -> Array:
    """Return the array at a place."""
    path, key = split_place(place)
    kind = _kind(path)
    if not path.is_file():
        raise FileError(f"{place}: no such file")
    try:
        return _READERS[kind](path, key)
    except FileError:
        raise
    except Exception as error:  # NumPy and zipfile answer damaged headers with almost any exception
        raise FileError(f"{place}: cannot be read as {kind}: {error}") from error


def read_all(path: str) -> dict[str, Array]:
    """Return every array of a .npz or .safetensors file by its key."""
    kind = _kind(Path(path))
    if kind not in _KEYS:
        raise FileError(f"{path}: arrays by key come from {' or '.join(_KEYS)}; got {kind}")
    if not Path(path).is_file():
        raise FileError(f"{path}: no such file")
    try:
        return {key: _READERS[kind](Path(path), key) for key in _KEYS[kind](Path(path))}
    except FileError:
        raise
    except Exception as error:  # as damaged as a header can be
        raise FileError(f"{path}: cannot be read as {kind}: {error}") from error


def check_target(place: str, array_dtype: np.dtype[Any], force: bool) -> None:
    """Refuse, before any work, a place that cannot be written: unknown kind, existing file, bf16 as .npy or .npz."""
    path, key = split_place(place)
    if _kind(path) == ".npy" and key is not None:
        raise FileError(f"{place}: a .npy file has one array and no keys; got key {key!r}")
    if _kind(path) != ".safetensors" and array_dtype == _BF16:
        raise FileError(f"{place}: bf16 cannot be kept in {_kind(path)} files, which lose the type; write .safetensors")
    check_new(path, place, force)
    if _kind(path) == ".safetensors":
        _safetensors()


def check_new(path: Path, place: str, force: bool) -> None:
    """Refuse a path that no file can be written to, or that has one which is not to be replaced."""
    if path.exists() and not force:
        raise FileError(f"{place}: the file exists; give --force to replace it")
    directory = path.absolute().parent
    if not directory.is_dir():
        raise FileError(f"{place}: no such directory")
    if path.is_dir() or not os.access(directory, os.W_OK):
        raise FileError(f"{place}: cannot be written: {'a directory' if path.is_dir() else 'no permission'}")


def write(place: str, array: Array, force: bool = False) -> None:
    """Write one array to a place, through a temporary file beside it that replaces the target at once."""
    check_target(place, array.dtype, force)
    path, key = split_place(place)
    _write(path, {key or "output": array})


def check_target_of_all(path: str, dtypes: Sequence[np.dtype[Any]], force: bool) -> None:
    """Refuse, before any work, a file that arrays of these types cannot be written to by key."""
    if _kind(Path(path)) not in _KEYS:
        raise FileError(f"{path}: arrays by key go to {' or '.join(_KEYS)}; got {_kind(Path(path))}")
    for dtype in dtypes:
        check_target(path, dtype, force)


def write_all(path: str, arrays: Mapping[str, Array], force: bool = False) -> None:
    """Write arrays by key to a .npz or .safetensors file, through a temporary file that replaces the target at once."""
    check_target_of_all(path, [array.dtype for array in arrays.values()], force)
    _write(Path(path), arrays)


def _write(path: Path, arrays: Mapping[str, Array]) -> None:
    try:
        with _replacing(path) as file:
            _WRITERS[_kind(path)](file, arrays)
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror or error}") from error


def _kind(path: Path) -> str:
    kind = path.suffix.lower()
    if kind not in KINDS:
        raise FileError(f"{path}: the name must end in {', '.join(KINDS)}; got {kind or 'no ending'}")
    return kind


# -- reading ---------------------------------------------------------------------------------------------------------


def _read_npy(path: Path, key: str | None) -> Array:
    if key is not None:
        raise FileError(f"{path}: a .npy file has one array and no keys; got key {key!r}")
    with path.open("rb") as file:
        _check_npy_header(file, os.fstat(file.fileno()).st_size, str(path))
        file.seek(0)
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def _read_npz(path: Path, key: str | None) -> Array:
    with zipfile.ZipFile(path) as archive:
        members = {name.removesuffix(".npy"): name for name in archive.namelist()}
        member = archive.getinfo(members[_one_key(path, key, list(members))])
        if member.file_size > _DEFLATE_LIMIT * max(member.compress_size, 1):
            raise FileError(f"{path}: {member.filename} claims {member.file_size} bytes in {member.compress_size}")
        with archive.open(member) as file:
            _check_npy_header(file, member.file_size, f"{path}:{member.filename}")
        with archive.open(member) as file:
            return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def _check_npy_header(file: IO[bytes], size: int, name: str) -> None:
    """Compare what the header announces with the bytes there are, before anything is allocated."""
    version = np.lib.format.read_magic(file)
    read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(
        version
    )
    if read_header is None:
        raise FileError(f"{name}: version {version} of the .npy format is not supported")
    shape, _, dtype = read_header(file)
    if dtype.hasobject:
        raise FileError(f"{name}: holds Python objects, which are never unpickled")
    announced, present = prod(shape) * dtype.itemsize, size - file.tell()
    if announced != present:
        raise FileError(f"{name}: the header announces {announced} bytes of data; the file has {present}")
    if dtype.kind == "V":
        raise FileError(f"{name}: holds raw {dtype.itemsize}-byte records; bf16 arrays belong in .safetensors files")


def _read_safetensors(path: Path, key: str | None) -> Array:
    safetensors = _safetensors()
    try:
        with safetensors.safe_open(path, framework="np") as file:  # checks the header against the file's size
            name = _one_key(path, key, list(file.keys()))
            if file.get_slice(name).get_dtype() != "BF16":
                return np.asarray(file.get_tensor(name))
        entry = dict(safetensors.deserialize(path.read_bytes()))[name]  # the NumPy side of the package lacks bf16
        return np.asarray(np.frombuffer(entry["data"], np.uint16).view(_BF16).reshape(entry["shape"]))
    except safetensors.SafetensorError as error:
        raise FileError(f"{path}: cannot be read as .safetensors: {error}") from error


def _one_key(path: Path, key: str | None, keys: list[str]) -> str:
    if key is None and len(keys) == 1:
        return keys[0]
    if key not in keys:
        wanted = "a key is needed" if key is None else f"no array {key!r}"
        raise FileError(f"{path}: {wanted}; the file has {', '.join(sorted(keys)) or 'no arrays'}")
    return key


_READERS: dict[str, Callable[[Path, str | None], Array]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".safetensors": _read_safetensors,
}


def _npz_keys(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


def _safetensors_keys(path: Path) -> list[str]:
    with _safetensors().safe_open(path, framework="np") as file:
        return list(file.keys())


_KEYS: dict[str, Callable[[Path], list[str]]] = {".npz": _npz_keys, ".safetensors": _safetensors_keys}

# -- writing ---------------------------------------------------------------------------------------------------------


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    handle, temporary = tempfile.mkstemp(dir=path.absolute().parent, prefix=".convgrad-")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _write_npy(file: IO[bytes], arrays: Mapping[str, Array]) -> None:
    (array,) = arrays.values()
    np.save(file, array, allow_pickle=False)


def _write_npz(file: IO[bytes], arrays: Mapping[str, Array]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for key, array in arrays.items():
            with archive.open(f"{key}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)


def _write_safetensors(file: IO[bytes], arrays: Mapping[str, Array]) -> None:
    _safetensors()
    from safetensors.numpy import save  # noqa: PLC0415

    file.write(save({key: np.asarray(array, order="C") for key, array in arrays.items()}))


_WRITERS: dict[str, Callable[[IO[bytes], Mapping[str, Array]], None]] = {
    ".npy": _write_npy,
    ".npz": _write_npz,
    ".safetensors": _write_safetensors,
}


def _safetensors() -> Any:
    try:
        import safetensors  # noqa: PLC0415 - an extra, needed for these files only
    except ImportError as error:
        raise FileError("safetensors files need the safetensors package: pip install 'convgrad[files]'") from error
    return safetensors
