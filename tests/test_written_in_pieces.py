"""Files that are written in any order: they take their name when whole, and what was left is gone on with."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from convgrad import FileError, files

SHAPE = (3, 4, 5)
VALUES = np.arange(60, dtype=np.float32).reshape(SHAPE)


def put(place: str, dtype: type = np.float32, until: int = 3, keep: bool = False, force: bool = False) -> None:
    """Write some planes, last first; leave by an exception where there are more."""
    with files.written_in_pieces(place, SHAPE, np.dtype(dtype), keep=keep, force=force) as array:
        assert array.shape == SHAPE
        for plane in range(until)[::-1]:
            array[plane] = VALUES[plane]
        if until < len(VALUES):
            raise KeyboardInterrupt


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [("a.npy", np.float32), ("a.npy", np.float16), ("a.safetensors:dst", ml_dtypes.bfloat16), ("a.safetensors", "f8")],
)
def test_it_is_the_file_that_is_written_at_once(tmp_path: Path, name: str, dtype: type, keep: bool) -> None:
    put(f"{tmp_path}/{name}", dtype, keep=keep)
    files.write(f"{tmp_path}/once-{name}", VALUES.astype(dtype))
    file, once = (tmp_path / f"{prefix}{name.partition(':')[0]}" for prefix in ("", "once-"))
    assert file.read_bytes() == once.read_bytes()
    assert sorted(tmp_path.iterdir()) == [file, once]


def test_what_fails_leaves_no_trace_or_all_that_was_written(tmp_path: Path) -> None:
    place = f"{tmp_path}/a.npy"
    with pytest.raises(KeyboardInterrupt):
        put(place, until=2)
    assert not list(tmp_path.iterdir())
    with pytest.raises(KeyboardInterrupt):
        put(place, until=2, keep=True)
    assert [path.name for path in tmp_path.iterdir()] == ["a.npy.unfinished"]
    with files.written_in_pieces(place, SHAPE, np.dtype("f4"), keep=True) as array:
        assert np.array_equal(array[:2], VALUES[:2])
        array[2] = VALUES[2]
    assert np.array_equal(np.load(place), VALUES)
    assert [path.name for path in tmp_path.iterdir()] == ["a.npy"]


def test_what_another_call_left_is_refused(tmp_path: Path) -> None:
    place = f"{tmp_path}/a.npy"
    with pytest.raises(KeyboardInterrupt):
        put(place, until=1, keep=True)
    for dtype in (np.float64, np.int32):
        with pytest.raises(FileError, match=r"a\.npy\.unfinished: was left by another call, whose result is no"):
            put(place, dtype, keep=True)


def test_nothing_is_replaced_unasked(tmp_path: Path) -> None:
    place = f"{tmp_path}/a.npy"
    files.write(place, VALUES[0])
    for keep in (False, True):
        with pytest.raises(FileError, match="give --force"):
            put(place, keep=keep)
    assert files.read(place).shape == (4, 5)
    (tmp_path / "a.npy").chmod(0o600)
    put(place, keep=True, force=True)
    assert np.array_equal(files.read(place), VALUES)
    assert (tmp_path / "a.npy").stat().st_mode & 0o777 == 0o600, "as the file that was replaced"


def test_no_room_is_told_of_before_anything_is_written(tmp_path: Path) -> None:
    with (
        pytest.raises(FileError, match=r"a\.npy: cannot be written: "),
        files.written_in_pieces(f"{tmp_path}/a.npy", (1 << 58,), np.dtype("f4")),
    ):
        pytest.fail("there is no such disk")
    assert not list(tmp_path.iterdir())


def test_kinds_that_cannot_be_written_so_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"goes to \.npy or \.safetensors; got \.npz"):
        put(f"{tmp_path}/a.npz")
