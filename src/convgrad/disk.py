"""Files on disk: regular ones are read; what is written takes its name when it is whole, and replaces nothing unasked.

Through a symbolic link, what it points at is read and written, as a shell does.
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
TEMPORARY = ".convgrad-"  # what the name of a file begins with that is not whole yet
UNFINISHED = ".unfinished"  # what the name of a file ends in that an interruption leaves


def why(error: BaseException) -> str:
    """Return the words of an error, those of the system alone where it has some."""
    return getattr(error, "strerror", None) or str(error)


def opened(path: str | Path, links: bool = True) -> IO[bytes]:
    """Open a regular file for reading; a FIFO or a device, which may keep its reader for ever, is refused.

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


def read_bytes(path: str | Path, most: int) -> bytes:
    """Return the start of a regular file: at most so many bytes."""
    with opened(path) as file:
        try:
            return file.read(most)
        except OSError as error:
            raise FileError(f"{path}: cannot be read: {why(error)}") from error


def check_new(path: Path, force: bool, place: str = "") -> None:
    """Refuse a path that no file can be written to, or, without ``force``, one that has a file."""
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
    """Give a file to write, which takes its name when all of it is there; what fails leaves no trace.

    Without ``force`` nothing is replaced, not even what was made meanwhile. A replaced file keeps its permissions, and
    its owner where we may give files away; a new one has those of ``mode`` that the umask leaves.
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
    """Give a file to read and write, which takes its name when all of it is there; what fails leaves it as it is.

    It lies beside its name, with ``UNFINISHED`` behind that, and is given again by the next try. ``kept`` is the file
    that tells what of it is finished: a new one, of which that was told nothing, leaves no trace.
    """
    name = place or str(path)
    check_new(path, force, place)
    target = _target(path)
    unfinished = target.with_name(target.name + UNFINISHED)
    try:
        check_new(unfinished, force=True)
        is_new, told = not unfinished.exists(), _mark(kept)
        try:
            with open(unfinished, "x+b" if is_new else "r+b") as file:
                yield file
        except BaseException:
            if is_new and _mark(kept) == told:
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
    """Give a text file that stands under its name from the start, so that an interruption leaves what was written."""
    check_new(path, force)
    try:
        with open(_target(path), "w" if force else "x", newline="", encoding="utf-8") as file:
            yield file
    except FileExistsError as error:
        raise _exists(str(path)) from error
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {why(error)}") from error


def _open_at_once(path: str, flags: int) -> int:
    """Open without waiting for what writes to a FIFO; regular files know no difference."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _open_no_link(path: str, flags: int) -> int:
    """Open without waiting, and only what the path itself names."""
    return _open_at_once(path, flags | getattr(os, "O_NOFOLLOW", 0))


def _target(path: Path) -> Path:
    """Return the path without links; where they run in a circle, the first that is met again."""
    return Path(os.path.realpath(path))


def _status(target: Path) -> os.stat_result | None:
    """Return what the system says of a file; nothing where there is none."""
    try:
        return os.stat(target)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _mark(path: Path) -> tuple[int, int] | None:
    """Return what is another whenever a file was written; nothing where there is none."""
    there = _status(_target(path))
    return (there.st_ino, there.st_mtime_ns) if there else None


def _exists(name: str) -> FileError:
    return FileError(f"{name}: the file exists; give --force to replace it")


def _give(temporary: Path, before: os.stat_result) -> None:
    """Give a file the group, owner and permissions of the one it replaces, as far as we may."""
    for owner, group in ((-1, before.st_gid), (before.st_uid, -1)):
        with suppress(OSError):
            os.chown(temporary, owner, group)
    os.chmod(temporary, before.st_mode & PERMISSIONS)


def _take_name(temporary: Path, target: Path, force: bool) -> None:
    """Give the whole file its name: at once, and without ``force`` only where nobody else has taken it."""
    if force:
        os.replace(temporary, target)
        return
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links: an empty file takes the name, and is ours to replace
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        try:
            os.replace(temporary, target)
        except BaseException:
            target.unlink(missing_ok=True)
            raise
