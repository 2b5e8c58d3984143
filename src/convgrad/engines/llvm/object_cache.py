"""The kernel cache: files of object code. A file that is damaged, or that other users could write, is not used."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import convgrad.words as package
from convgrad.disk import TEMPORARY, opened, why, written
from convgrad.errors import FileError
from convgrad.host import BEGUN_S
from convgrad.plan.machine import Isa

MAX_BYTES = 256 << 20  # the size of all files of a directory above which old files are removed
PRUNED_BYTES = 192 << 20  # the largest size of all files after old files are removed
UNUSED_S = 86400.0  # a file that is read gets a new time stamp if the old one is older than this
LINE = b"convgrad object code 1\n"
SUFFIX = ".kernel"
Objects = Mapping[bytes, bytes]  # the object code of each function of a kernel, by the digest of the function's IR
_SHARED = stat.S_IWGRP | stat.S_IWOTH
_DIGEST_BYTES = hashlib.sha256().digest_size
_LENGTH = struct.Struct("<Q")
_VALUE = hashlib.sha256(b"value").digest()  # the name of a value of ``write_value``, in place of a function's
_refused: set[Path] = set()  # files and directories about which this process has warned


def key(isa: Isa, compiler: str, module: Callable[..., object], described: Sequence[object]) -> str | None:
    """Return the file name of a kernel without its suffix, or None if the kernel cannot be cached.

    The name is a digest of everything that determines the object code. ``module`` makes the IR from the values
    ``described``. So the digest covers these values and convgrad's sources instead of the IR.

    A kernel cannot be cached if a local function, or a function outside convgrad, makes its IR. Nor can it be cached if
    convgrad's source files differ from those that this process has loaded.
    """
    makers: list[Any] = [module, *(value for value in described if callable(value))]
    known = all(maker.__module__.startswith("convgrad.") and "<locals>" not in maker.__qualname__ for maker in makers)
    sources = _sources()
    if not sources or not known:
        return None
    parts = [sources, compiler, repr(isa), *map(_described, (module, *described))]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _described(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}" if callable(value) else repr(value)


@cache
def _sources() -> str:
    """Return a digest of convgrad's source files; empty if one is unreadable or newer than this process."""
    root, hashed = Path(package.__file__).parent, hashlib.sha256()
    paths = sorted(root.rglob("*.py"))
    try:
        for path in paths:
            with open(path, "rb") as file:
                status = os.fstat(file.fileno())
                if max(status.st_mtime, status.st_ctime) > BEGUN_S:  # installers may keep the time of a modification
                    return ""
                hashed.update(f"{path.relative_to(root)}\0".encode() + hashlib.sha256(file.read()).digest())
    except OSError:
        return ""
    return hashed.hexdigest() if paths else ""


class KernelStore:
    """A directory of kernels. If it cannot be used, kernels are compiled; ``trouble`` is the latest reason."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.trouble = ""
        self._bytes: int | None = None  # the size of all files at the last count, plus that of files written since

    def read(self, name: str) -> Objects | None:
        """Return a kernel, or None if its file is missing or damaged or if other users could write to it."""
        path = self.directory / (name + SUFFIX)
        try:
            if not self._is_ours():
                return None
            with opened(path, links=False) as file:
                status = os.fstat(file.fileno())
                if refusal := _refusal(status):
                    self._refuse(path, refusal)
                    return None
                text = file.read()
                if time.time() - status.st_mtime > UNUSED_S and os.utime in os.supports_fd:
                    with suppress(OSError):  # the file system may be read-only
                        os.utime(file.fileno())
        except FileError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                self._refuse(path, "is a symbolic link" if path.is_symlink() else str(error).partition(": ")[2])
            return None
        except OSError as error:
            self.trouble = f"cannot be read: {why(error)}"
            return None
        return _unpacked(name, text)

    def read_value(self, name: str) -> Any:
        """Return a value that ``write_value`` has written; None if the file is missing, damaged or not used.

        The caller checks the value: whoever may write to the directory may have written any.
        """
        try:
            return json.loads((self.read(name) or {})[_VALUE])
        except (KeyError, ValueError, RecursionError):
            return None

    def write_value(self, name: str, value: object) -> None:
        """Write a value of JSON, like a kernel."""
        self.write(name, {_VALUE: json.dumps(value).encode()})

    def write(self, name: str, objects: Objects) -> None:
        """Write a kernel, and remove the least recently used kernels if the directory exceeds MAX_BYTES."""
        path, text = self.directory / (name + SUFFIX), _packed(name, objects)
        try:
            if missing := _missing_home(self.directory):
                self.trouble = missing
                return
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if path in _refused or not self._is_ours():
                return
            with written(path, force=True, mode=0o600) as file:
                file.write(text)
            self._bytes = (
                sum(status.st_size for _, status in self.files()) if self._bytes is None else self._bytes + len(text)
            )
            if self._bytes > MAX_BYTES:
                self._prune()
            self.trouble = ""
        except (FileError, OSError) as error:
            self.trouble = f"cannot be written: {why(error.__cause__ or error)}"

    def state(self) -> str:
        """Return why a kernel could not be written at present, or the empty string if it could."""
        try:
            refusal = _refusal(_status(self.directory))
            there = self.directory
        except FileNotFoundError:
            refusal = _missing_home(self.directory)
            there = next(folder for folder in self.directory.absolute().parents if folder.exists())
        except OSError as error:
            return why(error)
        if not refusal and not os.access(there, os.W_OK | os.X_OK):
            refusal = "cannot be written: no permission"
        return refusal or self.trouble

    def files(self) -> list[tuple[Path, os.stat_result]]:
        """Return the files that may be removed and their status: kernels, and temporary files of failed writes."""
        files = []
        with suppress(OSError), os.scandir(self.directory) as entries:
            for entry in entries:
                if entry.name.endswith(SUFFIX) or entry.name.startswith(TEMPORARY):
                    with suppress(FileNotFoundError):  # another process may remove the file meanwhile
                        files.append((Path(entry.path), entry.stat(follow_symlinks=False)))
        return files

    def _prune(self) -> None:
        files = sorted(self.files(), key=lambda file: file[1].st_mtime)
        self._bytes = sum(status.st_size for _, status in files)
        for path, status in files:
            if self._bytes <= PRUNED_BYTES:
                return
            path.unlink(missing_ok=True)
            self._bytes -= status.st_size

    def _is_ours(self) -> bool:
        """Return whether the directory exists and no other user may write to it; warn if another user may."""
        try:
            refusal = _refusal(_status(self.directory))
        except FileNotFoundError:
            return False
        if refusal:
            self._refuse(self.directory, refusal)
        return not refusal

    def _refuse(self, path: Path, reason: str) -> None:
        """Warn that a file or directory is not used, because other users could have written code.

        A process warns once per directory: all files of a directory may have the same reason.
        """
        self.trouble = reason
        if not any(self.directory in (folder, folder.parent) for folder in _refused):
            warnings.warn(
                f"{path} is not used as a kernel cache, kernels are compiled in memory: {reason}", stacklevel=2
            )
        _refused.add(path)


@cache
def store(directory: Path) -> KernelStore:
    """Return the one ``KernelStore`` that this process has for a directory."""
    return KernelStore(directory)


def _status(directory: Path) -> os.stat_result:
    if not hasattr(os, "O_DIRECTORY"):
        return os.stat(directory)
    opened_directory = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return os.fstat(opened_directory)
    finally:
        os.close(opened_directory)


def _refusal(status: os.stat_result) -> str:
    """Return why other users could have written a file or directory, or the empty string if they could not."""
    if not hasattr(os, "geteuid"):  # Windows: the directory is in the user's profile
        return ""
    if status.st_uid != os.geteuid():
        return f"belongs to user {status.st_uid}, not to user {os.geteuid()} of this process"
    if status.st_mode & _SHARED:
        return f"others may write to it: its mode is {stat.S_IMODE(status.st_mode):o}; use chmod go-w"
    return ""


def _missing_home(directory: Path) -> str:
    """Return why a directory is not created: it is in a home directory that does not exist. Return "" for others."""
    try:
        home = Path.home()
    except RuntimeError:
        return ""
    there = Path(os.path.abspath(directory))
    inside = home in (there, *there.parents)
    return f"the home directory {home} does not exist" if inside and not home.exists() else ""


def _packed(name: str, objects: Objects) -> bytes:
    parts = b"".join(digest + _LENGTH.pack(len(code)) + code for digest, code in objects.items())
    return LINE + hashlib.sha256(name.encode() + parts).digest() + parts


def _unpacked(name: str, text: bytes) -> Objects | None:
    """Return the object code in the text of a file, or None if the file is damaged or of another kernel."""
    begin = len(LINE) + _DIGEST_BYTES
    if text[:begin] != LINE + hashlib.sha256(name.encode() + text[begin:]).digest():
        return None
    objects = {}
    while begin < len(text):
        digest, begin = text[begin : begin + _DIGEST_BYTES], begin + _DIGEST_BYTES
        if begin + _LENGTH.size > len(text):
            return None
        (length,) = _LENGTH.unpack_from(text, begin)
        begin += _LENGTH.size
        objects[digest], begin = text[begin : begin + length], begin + length
    return objects if begin == len(text) else None
