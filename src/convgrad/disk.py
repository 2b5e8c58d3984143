"""Reading and writing of files. Only regular files are read, and an existing file is replaced only with ``force``.

A new file has a temporary name until it is complete, except in ``growing``. Symbolic links are followed for reading and
writing.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO

from convgrad.errors import FileError

PERMISSIONS = 0o777
TEMPORARY = ".convgrad-"  # prefix of the temporary name of an incomplete file
UNFINISHED = ".unfinished"  # suffix of the name of an incomplete file that a later call can continue


def why(error: BaseException) -> str:
    """Return the message of an error. The message of an OSError is the system's text, without the file's name."""
    return getattr(error, "strerror", None) or str(error)


def opened(path: str | Path, links: bool = True) -> IO[bytes]:
    """Open a regular file for reading. A FIFO or a device is refused, because reading it may never end.

    If ``links`` is False, a symbolic link is refused too.
    """
    try:
        file = open(path, "rb", opener=_open_at_once if links else _open_no_link)  # noqa: SIM115 - the caller closes it
    except (OSError, ValueError) as error:  # open raises ValueError for a path that contains a NUL
        raise FileError(f"{path}: cannot be read: {why(error)}") from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise FileError(f"{path}: cannot be read: must be a regular file, or a link to one")
    return file


def read_bytes(path: str | Path, maximum: int) -> bytes:
    """Return the first bytes of a regular file, ``maximum`` bytes at most."""
    with opened(path) as file:
        try:
            return file.read(maximum)
        except OSError as error:
            raise FileError(f"{path}: cannot be read: {why(error)}") from error


def check_new(path: Path, force: bool, place: str = "") -> None:
    """Raise FileError if no file can be written at a path, or if ``force`` is False and the file exists."""
    name = place or str(path)
    try:
        target = _target(path)
        there = _status(target)
    except (OSError, ValueError) as error:
        raise FileError(f"{name}: cannot be written: {why(error)}") from error
    if there and not stat.S_ISREG(there.st_mode):
        kind = "a directory" if stat.S_ISDIR(there.st_mode) else "not a regular file"
        raise FileError(f"{name}: cannot be written: it is {kind}")
    if there and not force:
        raise _exists(name)
    if not os.path.isdir(target.parent):
        raise FileError(f"{name}: no such directory")
    if not os.access(target.parent, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise FileError(f"{name}: cannot be written: no permission")


@contextmanager
def written(path: Path, force: bool, place: str = "", mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Yield a temporary file to write, which is renamed to ``path`` at the end. After an error, the file is deleted.

    Without ``force``, no file is replaced, not even one that is created in the meantime. A file that replaces
    another gets the old file's permissions and, if the system permits, the old file's owner. A file that replaces none
    has the permissions of ``mode`` that the umask allows.
    """
    name = place or str(path)
    check_new(path, force, place)
    target = _target(path)
    temporary = target.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
    try:
        before = _status(target)
        mode = before.st_mode & PERMISSIONS if before else mode
        try:
            with open(temporary, "xb", opener=partial(os.open, mode=mode)) as file:
                if before:
                    _give(temporary, before)
                yield file
            _take_name(temporary, target, force)
        finally:
            temporary.unlink(missing_ok=True)
    except FileExistsError as error:
        raise _exists(name) from error
    except OSError as error:
        raise FileError(f"{name}: cannot be written: {why(error)}") from error


@contextmanager
def left(path: Path, force: bool, kept: Path, place: str = "") -> Iterator[IO[bytes]]:
    """Yield a file to read and write, which is renamed to ``path`` at the end. After an error, the file remains.

    The name of an unfinished file ends in ``UNFINISHED``, and the next call yields the same file. ``kept`` is the path
    of another file, which records the finished parts. If ``kept`` was not written before the error, an unfinished file
    that this call has created is deleted.
    """
    name = place or str(path)
    check_new(path, force, place)
    target = _target(path)
    unfinished = target.with_name(target.name + UNFINISHED)
    try:
        check_new(unfinished, force=True)
        is_new, mark = not unfinished.exists(), _mark(kept)
        try:
            with open(unfinished, "x+b" if is_new else "r+b") as file:
                yield file
        except BaseException:
            if is_new and _mark(kept) == mark:
                unfinished.unlink(missing_ok=True)
            raise
        if before := _status(target):
            _give(unfinished, before)
        _take_name(unfinished, target, force)
        unfinished.unlink(missing_ok=True)
    except FileExistsError as error:
        raise _exists(name) from error
    except OSError as error:
        raise FileError(f"{name}: cannot be written: {why(error)}") from error


@contextmanager
def growing(path: Path, force: bool) -> Iterator[IO[str]]:
    """Yield a text file with its final name from the start, so that an interruption keeps the rows written before."""
    check_new(path, force)
    try:
        with open(_target(path), "w" if force else "x", newline="", encoding="utf-8") as file:
            yield file
    except FileExistsError as error:
        raise _exists(str(path)) from error
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {why(error)}") from error


def _open_at_once(path: str, flags: int) -> int:
    """Open a path, and do not wait for a writer if the path is a FIFO. Regular files are not affected."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _open_no_link(path: str, flags: int) -> int:
    """Open a path like ``_open_at_once``, but raise an error if it is a symbolic link."""
    return _open_at_once(path, flags | getattr(os, "O_NOFOLLOW", 0))


def _target(path: Path) -> Path:
    """Return a path with all symbolic links resolved. If the links form a cycle, return one of these links."""
    return Path(os.path.realpath(path))


def _status(target: Path) -> os.stat_result | None:
    """Return the status of a file; None if it does not exist."""
    try:
        return os.stat(target)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _mark(path: Path) -> tuple[int, int] | None:
    """Return a value that changes whenever a file is written; None if the file does not exist."""
    there = _status(_target(path))
    return (there.st_ino, there.st_mtime_ns) if there else None


def _exists(name: str) -> FileError:
    return FileError(f"{name}: the file exists; give --force to replace it")


def _give(temporary: Path, before: os.stat_result) -> None:
    """Give a new file the group, owner and permissions of the file to be replaced, if the system permits."""
    for owner, group in ((-1, before.st_gid), (before.st_uid, -1)):
        with suppress(OSError):
            os.chown(temporary, owner, group)
    os.chmod(temporary, before.st_mode & PERMISSIONS)


def _take_name(temporary: Path, target: Path, force: bool) -> None:
    """Give a complete file its final name atomically. Without ``force``, raise FileExistsError if the name is used."""
    if force:
        os.replace(temporary, target)
        return
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:  # no hard links: create an empty file to reserve the name, then replace this file
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        try:
            os.replace(temporary, target)
        except BaseException:
            target.unlink(missing_ok=True)
            raise
