"""The kernel cache: object code in files, found whole and written by this user, or compiled again."""

from __future__ import annotations

import hashlib
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
from convgrad.plan.machine import Isa

MAX_BYTES = 256 << 20  # of all files of a directory,
PRUNED_BYTES = 192 << 20  # and what is left of them when there are more
UNUSED_S = 86400.0  # after which a file that is read is marked as used: its time is the present one
LINE = b"convgrad object code 1\n"
SUFFIX = ".kernel"
Objects = Mapping[bytes, bytes]  # the code of each function of a kernel, by the digest of its text
_BEGUN_S = time.time()
_SHARED = stat.S_IWGRP | stat.S_IWOTH
_DIGEST_BYTES = hashlib.sha256().digest_size
_LENGTH = struct.Struct("<Q")
_refused: set[Path] = set()  # what this process was warned of


def key(isa: Isa, compiler: str, module: Callable[..., str], described: Sequence[object]) -> str | None:
    """Return the name under which a kernel is kept: a digest of all that determines its code, but not of its IR.

    The IR is a function of convgrad's own sources and of what the kernel is specialised on. None if a local function
    takes part in making it, or a function of others, or if the sources are not those that this process runs.
    """
    makers: list[Any] = [module, *(each for each in described if callable(each))]
    known = all(one.__module__.startswith("convgrad.") and "<locals>" not in one.__qualname__ for one in makers)
    sources = _sources()
    if not sources or not known:
        return None
    parts = [sources, compiler, repr(isa), *map(_described, (module, *described))]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _described(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}" if callable(value) else repr(value)


@cache
def _sources() -> str:
    """Return a digest of the package's sources; empty where they cannot be read, or changed since they were loaded."""
    root, hashed = Path(package.__file__).parent, hashlib.sha256()
    paths = sorted(root.rglob("*.py"))
    try:
        for path in paths:
            with open(path, "rb") as file:
                if os.fstat(file.fileno()).st_mtime > _BEGUN_S:
                    return ""
                hashed.update(f"{path.relative_to(root)}\0".encode() + hashlib.sha256(file.read()).digest())
    except OSError:
        return ""
    return hashed.hexdigest() if paths else ""


class Store:
    """A directory of kernels. No trouble with it keeps a kernel from being compiled; ``trouble`` is the latest."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.trouble = ""
        self._bytes: int | None = None  # of all files, as counted last and written since

    def read(self, name: str) -> Objects | None:
        """Return a kernel; None if there is none, or none that is whole and only ours."""
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
                    with suppress(OSError):  # a file system that is only read
                        os.utime(file.fileno())
        except FileError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                self._refuse(path, "is a symbolic link" if path.is_symlink() else str(error).partition(": ")[2])
            return None
        except OSError as error:
            self.trouble = f"cannot be read: {why(error)}"
            return None
        return _unpacked(name, text)

    def write(self, name: str, objects: Objects) -> None:
        """Keep a kernel, and remove the least recently used ones if there is no room."""
        path, text = self.directory / (name + SUFFIX), _packed(name, objects)
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if path in _refused or not self._is_ours():
                return
            with written(path, force=True, mode=0o600) as file:
                file.write(text)
            self._bytes = (
                sum(each.st_size for _, each in self.files()) if self._bytes is None else self._bytes + len(text)
            )
            if self._bytes > MAX_BYTES:
                self._prune()
            self.trouble = ""
        except (FileError, OSError) as error:
            self.trouble = f"cannot be written: {why(error.__cause__ or error)}"

    def state(self) -> str:
        """Return why a kernel would not be kept at present; the empty string if it would."""
        try:
            refusal = _refusal(_status(self.directory))
            there = self.directory
        except FileNotFoundError:
            refusal, there = "", next(each for each in self.directory.absolute().parents if each.exists())
        except OSError as error:
            return why(error)
        if not refusal and not os.access(there, os.W_OK | os.X_OK):
            refusal = "cannot be written: no permission"
        return refusal or self.trouble

    def files(self) -> list[tuple[Path, os.stat_result]]:
        """Return the files that are ours to remove, kernels and what was left of writing them."""
        found = []
        with suppress(OSError), os.scandir(self.directory) as entries:
            for entry in entries:
                if entry.name.endswith(SUFFIX) or entry.name.startswith(TEMPORARY):
                    with suppress(FileNotFoundError):  # another process removed it
                        found.append((Path(entry.path), entry.stat(follow_symlinks=False)))
        return found

    def _prune(self) -> None:
        files = sorted(self.files(), key=lambda each: each[1].st_mtime)
        self._bytes = sum(status.st_size for _, status in files)
        for path, status in files:
            if self._bytes <= PRUNED_BYTES:
                return
            path.unlink(missing_ok=True)
            self._bytes -= status.st_size

    def _is_ours(self) -> bool:
        """Return whether the directory is there and nobody else may write to it; refuse it if somebody may."""
        try:
            refusal = _refusal(_status(self.directory))
        except FileNotFoundError:
            return False
        if refusal:
            self._refuse(self.directory, refusal)
        return not refusal

    def _refuse(self, path: Path, reason: str) -> None:
        """Warn once: code that others may have written is not run."""
        self.trouble = reason
        if path not in _refused:
            _refused.add(path)
            warnings.warn(
                f"{path} is not used as a kernel cache, kernels are compiled in memory: {reason}", stacklevel=2
            )


@cache
def store(directory: Path) -> Store:
    """Return this process's view of a directory of kernels."""
    return Store(directory)


def _status(directory: Path) -> os.stat_result:
    if not hasattr(os, "O_DIRECTORY"):
        return os.stat(directory)
    opened_directory = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return os.fstat(opened_directory)
    finally:
        os.close(opened_directory)


def _refusal(status: os.stat_result) -> str:
    """Return why a file or a directory may hold what others wrote; the empty string where nobody else may write."""
    if not hasattr(os, "geteuid"):  # Windows: the directory is in the user's profile
        return ""
    if status.st_uid != os.geteuid():
        return f"belongs to user {status.st_uid}, not to user {os.geteuid()} of this process"
    if status.st_mode & _SHARED:
        return f"others may write to it: its mode is {stat.S_IMODE(status.st_mode):o}; use chmod go-w"
    return ""


def _packed(name: str, objects: Objects) -> bytes:
    parts = b"".join(digest + _LENGTH.pack(len(code)) + code for digest, code in objects.items())
    return LINE + hashlib.sha256(name.encode() + parts).digest() + parts


def _unpacked(name: str, text: bytes) -> Objects | None:
    """Return the content of a file; None if it is not whole, or of another kernel."""
    begin = len(LINE) + _DIGEST_BYTES
    if text[:begin] != LINE + hashlib.sha256(name.encode() + text[begin:]).digest():
        return None
    objects = {}
    while begin < len(text):
        digest, begin = text[begin : begin + _DIGEST_BYTES], begin + _DIGEST_BYTES
        (length,) = _LENGTH.unpack_from(text, begin)
        begin += _LENGTH.size
        objects[digest], begin = text[begin : begin + length], begin + length
    return objects
