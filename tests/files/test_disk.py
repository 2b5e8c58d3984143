"""Files on disk: what is written is whole, replaces nothing unasked, and keeps what a replaced file allowed."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from convgrad.disk import growing, opened, read_bytes, written
from convgrad.errors import FileError
from tests.support.file_makers import NOBODY


def put(path: Path, text: str = "new", force: bool = False) -> None:
    with written(path, force) as file:
        file.write(text.encode())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002], indirect=True, ids=oct)
def test_a_new_file_has_what_the_umask_leaves(tmp_path: Path, umask: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the umask, which all threads share, is not even looked at: that would change it for an instant."""
    monkeypatch.setattr(os, "umask", pytest.fail)
    put(tmp_path / "a")
    with growing(tmp_path / "b", force=False) as file:
        file.write("new")
    monkeypatch.undo()
    assert {mode(path) for path in tmp_path.iterdir()} == {0o666 & ~umask}


@pytest.mark.parametrize("before", [0o600, 0o640, 0o444, 0o666, 0o777], ids=oct)
def test_a_replaced_file_keeps_its_permissions(tmp_path: Path, before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(before)
    modes, plain_open = [], os.open
    monkeypatch.setattr(os, "open", lambda path, flags, mode: modes.append(mode) or plain_open(path, flags, mode))
    with written(path, force=True) as file:
        file.write(b"new")
        (temporary,) = set(tmp_path.iterdir()) - {path}
        assert {mode(temporary), *modes} == {before}  # at no time may more people open it
    assert (mode(path), path.read_text()) == (before, "new")


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser gives files away")
def test_a_replaced_file_keeps_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    os.chown(path, NOBODY, NOBODY)
    path.chmod(0o640)
    put(path, force=True)
    assert (path.stat().st_uid, path.stat().st_gid, mode(path)) == (NOBODY, NOBODY, 0o640)


def test_an_owner_that_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def chown(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o600)
    monkeypatch.setattr(os, "chown", chown)
    put(path, force=True)
    assert (mode(path), path.read_text()) == (0o600, "new")


@pytest.fixture(params=["hard links", "no hard links"])
def links(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    if request.param == "no hard links":
        monkeypatch.setattr(os, "link", link)


@pytest.mark.usefixtures("links")
def test_what_is_made_meanwhile_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a"
    writing = written(path, force=False)
    writing.__enter__().write(b"new")
    path.write_text("precious")
    with pytest.raises(FileError, match="a: the file exists; give --force"):
        writing.__exit__(None, None, None)
    assert path.read_text() == "precious"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.usefixtures("links")
def test_a_new_file_is_whole(tmp_path: Path) -> None:
    put(tmp_path / "a")
    assert (tmp_path / "a").read_text() == "new"
    assert ((tmp_path / "a").stat().st_nlink, os.listdir(tmp_path)) == (1, ["a"])


@pytest.mark.usefixtures("links")
@pytest.mark.parametrize("interruption", [KeyboardInterrupt, OSError, ValueError])
def test_an_interruption_leaves_no_trace(tmp_path: Path, interruption: type[BaseException]) -> None:
    def interrupted() -> None:
        with written(tmp_path / "a", force=False) as file:
            file.write(b"new")
            raise interruption

    with pytest.raises(FileError if interruption is OSError else interruption):
        interrupted()
    assert os.listdir(tmp_path) == []


def test_an_interruption_between_name_and_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "link", lambda *_: os.lseek(-1, 0, 0))
    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        put(tmp_path / "a")
    assert os.listdir(tmp_path) == []


def test_through_a_link_what_it_points_at_is_written(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    link, target = tmp_path / "link", tmp_path / "far" / "target"
    link.symlink_to("far/target")
    put(link)  # to nowhere, until now
    with pytest.raises(FileError, match="link: the file exists"):
        put(link)
    put(link, "newer", force=True)
    assert (link.is_symlink(), target.read_text()) == (True, "newer")
    with growing(link, force=True) as file:
        file.write("rows")
    assert (link.is_symlink(), target.read_text(), os.listdir(target.parent)) == (True, "rows", ["target"])
    assert read_bytes(link, 3) == b"row"


def test_a_growing_file_replaces_nothing_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    monkeypatch.setattr("convgrad.disk.check_new", lambda *_: path.write_text("precious"))
    with pytest.raises(FileError, match="a: the file exists"), growing(path, force=False):
        pass
    assert path.read_text() == "precious"


def test_errors_while_a_file_grows(tmp_path: Path) -> None:
    growth = growing(tmp_path / "a", force=False)
    growth.__enter__().write("row\n")
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(FileError, match="a: cannot be written: No space left on device"):
        growth.__exit__(OSError, full, None)
    assert (tmp_path / "a").read_text() == "row\n"


@pytest.mark.parametrize("name", ["a\0", "a\0.npy", ""])
def test_names_that_no_file_can_have(name: str) -> None:
    with pytest.raises(FileError, match="cannot be read"):
        opened(name)
    with pytest.raises(FileError, match="cannot be written"):
        put(Path(name), force=True)
