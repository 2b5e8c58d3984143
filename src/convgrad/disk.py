"""Files on disk: only regular files are read; a new file gets its name when it is complete.

Without ``force`` no file is replaced. A symbolic link is followed for reading and writing, as in a shell.
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
TEMPORARY = ".convgrad-"  # prefix of the name of an incomplete file
UNFINISHED = ".unfinished"  # suffix of the name of a file that an interruption leaves


def why(error: BaseException) -> str:
    """Return the message of an error, the system's own message if it has one."""
    return getattr(error, "strerror", None) or str(error)


def opened(path: str | Path, links: bool = True) -> IO[bytes]:
    """Open a regular file for reading. A FIFO or a device is refused, because reading it may never end.

    A symbolic link is refused too unless ``links``.
    """
    try:
        file = open(path, "rb", opener=_open_at_once if links else _open_no_link)  # noqa: SIM115 - the caller closes it
    except (OSError, ValueError) as error:  # a ValueError for a path with a NUL in it
        raise FileError(f"{path}: cannot be read: {why(error)}") from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise FileError(f"{path}: cannot be read: must be a regular file, or a link to one")
    return file


def read_bytes(path: str | Path, maximum: int) -> bytes:
    """Return the start of a regular file: at most ``maximum`` bytes."""
    with opened(path) as file:
        try:
            return file.read(maximum)
        except OSError as error:
            raise FileError(f"{path}: cannot be read: {why(error)}") from error


def check_new(path: Path, force: bool, place: str = "") -> None:
    """Raise FileError if a path cannot be written to or, without ``force``, if its file exists."""
    name = place or str(path)
    try:
        target = _target(path)
        there = _status(target)
    except (OSError, ValueError) as error:
        raise FileError(f"{name}: cannot be written: {why(error)}") from error
    if there and not stat.S_ISREG(there.st_mode):
        kind = "a directory" if stat.S_ISDIR(there.st_mode) else "no regular file"
        raise FileError(f"{name}: cannot be written: it is {kind}")
    if there and not force:
        raise _exists(name)
    if not os.path.isdir(target.parent):
        raise FileError(f"{name}: no such directory")
    if not os.access(target.parent, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise FileError(f"{name}: cannot be written: no permission")


@contextmanager
def written(path: Path, force: bool, place: str = "", mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Yield a file to write, which gets its name when it is complete; an error leaves no trace.

    Without ``force`` nothing is replaced, not even a file made meanwhile. A replaced file keeps its permissions, and
    its owner if the system permits; a new one has the permissions of ``mode`` that the umask allows.
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
    """Yield a file to read and write, which gets its name when it is complete; an error leaves it as it is.

    Until then its name ends in ``UNFINISHED``, and the next try gets the same file. ``kept`` is the file that records
    its finished parts: if an error comes before the first record, a new unfinished file is removed.
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
    """Yield a text file that has its name from the start, so that an interruption leaves the written rows."""
    check_new(path, force)
    try:
        with open(_target(path), "w" if force else "x", newline="", encoding="utf-8") as file:
            yield file
    except FileExistsError as error:
        raise _exists(str(path)) from error
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {why(error)}") from error


def _open_at_once(path: str, flags: int) -> int:
    """Open without waiting for the writer of a FIFO; regular files are not affected."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _open_no_link(path: str, flags: int) -> int:
    """Open without waiting, and do not follow a link."""
    return _open_at_once(path, flags | getattr(os, "O_NOFOLLOW", 0))


def _target(path: Path) -> Path:
    """Return the path without links; if the links form a cycle, the first link that is met again."""
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
    """Give a file the group, owner and permissions of the one that it replaces, as far as permitted."""
    for owner, group in ((-1, before.st_gid), (before.st_uid, -1)):
        with suppress(OSError):
            os.chown(temporary, owner, group)
    os.chmod(temporary, before.st_mode & PERMISSIONS)


def _take_name(temporary: Path, target: Path, force: bool) -> None:
    """Give the complete file its name in one step; without ``force`` only if the name is free."""
    if force:
        os.replace(temporary, target)
        return
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:  # without hard links, an empty file reserves the name and is then replaced
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        try:
            os.replace(temporary, target)
        except BaseException:
            target.unlink(missing_ok=True)
            raise
