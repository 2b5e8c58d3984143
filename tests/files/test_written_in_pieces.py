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
    kept = Path(place).with_name("kept") if keep else None
    with files.written_in_pieces(place, SHAPE, np.dtype(dtype), kept=kept, force=force) as array:
        assert array.shape == SHAPE
        for plane in range(until)[::-1]:
            array[plane] = VALUES[plane]
        if until < len(VALUES):
            if kept and until:
                kept.write_text(f"{until}")
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
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npy.unfinished", "kept"]
    with pytest.raises(KeyboardInterrupt):
        put(place, until=0, keep=True)
    with files.written_in_pieces(place, SHAPE, np.dtype("f4"), kept=tmp_path / "kept") as array:
        assert np.array_equal(array[:2], VALUES[:2]), "left by the call that did nothing, too"
        array[2] = VALUES[2]
    assert np.array_equal(np.load(place), VALUES)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npy", "kept"]


def test_a_new_file_of_which_nothing_was_kept_leaves_no_trace(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("of another call")
    with pytest.raises(KeyboardInterrupt):
        put(f"{tmp_path}/a.npy", until=0, keep=True)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


@pytest.mark.parametrize("keep", [False, True])
def test_no_room_is_told_of_before_anything_is_written(tmp_path: Path, keep: bool) -> None:
    (tmp_path / "kept").write_text("of another call")
    kept = tmp_path / "kept" if keep else None
    with (
        pytest.raises(FileError, match=r"a\.npy: cannot be written: "),
        files.written_in_pieces(f"{tmp_path}/a.npy", (1 << 58,), np.dtype("f4"), kept=kept),
    ):
        pytest.fail("there is no such disk")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


@pytest.mark.parametrize("present", [0, 5, 128, 200])
def test_a_file_that_has_not_its_room_yet_is_begun_anew(tmp_path: Path, present: int) -> None:
    """As a call leaves it that was killed before it had written anything."""
    place = f"{tmp_path}/a.npy"
    put(place, keep=True)
    whole = (tmp_path / "a.npy").rename(tmp_path / "a.npy.unfinished").read_bytes()
    (tmp_path / "a.npy.unfinished").write_bytes(whole[:present])
    put(place, keep=True)
    assert (tmp_path / "a.npy").read_bytes() == whole


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


def test_kinds_that_cannot_be_written_so_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"only to \.npy or \.safetensors; got \.npz"):
        put(f"{tmp_path}/a.npz")
