"""Array files: what is written reads back; damaged, hostile and mistaken ones are refused before they cost memory."""

from __future__ import annotations

import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors as package

from convgrad import FileError, files
from tests.support.file_makers import KINDS, ZEROS, claiming, header, npy, safetensors, tensor, zipped

ARRAYS = [
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.array(3.5),
    np.zeros((0, 4), np.float16),
    np.arange(24, dtype=np.float64).reshape(2, 3, 4).transpose(2, 0, 1),
    np.arange(4).astype(ml_dtypes.bfloat16),
]


@pytest.mark.every(2)
@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}{a.shape}")
@pytest.mark.parametrize(
    "name", [*(f"a{kind}" for kind in KINDS), *(f"a{kind}:key" for kind in KINDS if kind != ".npy")]
)
def test_round_trip(tmp_path: Path, array: np.ndarray, name: str) -> None:
    place = str(tmp_path / name)
    if array.dtype == ml_dtypes.bfloat16 and "np" in name:
        with pytest.raises(FileError, match=r"bf16 cannot be kept in \.np[yz] files"):
            files.write(place, array)
        return
    files.write(place, array)
    again = files.read(place)
    assert again.dtype == array.dtype
    assert again.shape == array.shape
    assert again.tobytes() == array.tobytes()
    assert [p.name for p in tmp_path.iterdir()] == [name.partition(":")[0]]


def test_an_existing_file_is_kept_unless_forced(tmp_path: Path) -> None:
    place = str(tmp_path / "a.npy")
    files.write(place, ARRAYS[0])
    with pytest.raises(FileError, match="give --force"):
        files.write(place, ARRAYS[1])
    assert files.read(place).shape == (2, 3)
    files.write(place, ARRAYS[1], force=True)
    assert files.read(place).shape == ()


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = str(tmp_path / "a.npy")
    files.write(place, ARRAYS[0])

    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(np.lib.format, "write_array", fail)
    with pytest.raises(FileError, match="cannot be written: disk full"):
        files.write(place, ARRAYS[1], force=True)
    assert files.read(place).shape == (2, 3)
    assert len(list(tmp_path.iterdir())) == 1


class Thing:
    pass


UNSAFE: dict[str, Callable[[Any, Path], object]] = {
    "an object": lambda torch, path: torch.save({"a": Thing()}, path),
    "a module": lambda torch, path: torch.save(torch.nn.Linear(1, 1), path),
    "a function": lambda torch, path: torch.save(print, path),
    "an array": lambda torch, path: torch.save({"a": np.ones(3)}, path),
    "a broken pickle": lambda torch, path: path.write_bytes(bytes(zipped([("a/data.pkl", b"x"), ("a/version", b"3")]))),
    "a legacy file": lambda torch, path: torch.save(torch.ones(2), path, _use_new_zipfile_serialization=False),
    "text": lambda torch, path: path.write_text("hello"),
}


@pytest.mark.parametrize("name", UNSAFE)
def test_refusals_of_pt_files_advise_nothing_unsafe(name: str, tmp_path: Path) -> None:
    """PyTorch's own error advises to load the file with weights_only=False, which runs its code."""
    path = tmp_path / "a.pt"
    UNSAFE[name](pytest.importorskip("torch"), path)
    with pytest.raises(FileError) as caught:
        files.read(str(path))
    said = str(caught.value)
    assert "weights_only" not in said
    assert "torch.load" not in said
    assert len(said) < 300
    if name in ("an object", "a module", "a function", "an array"):
        assert "must hold only tensors, because code in a pickle is never run. Save a tensor, or tensors by key" in said


OBJECTS = npy(np.array([{}], object))
HOSTILE = {
    "truncated.npy": (npy(ARRAYS[0])[:-1], "the header announces 24 bytes of data; the file has 23"),
    "longer.npy": (npy(ARRAYS[0]) + b"x", "announces 24 bytes"),
    "huge.npy": (header("(1000000000000000000,)"), "announces 4000000000000000000 bytes"),
    "version.npy": (header("(1,)", version=9), "only support format version|version"),
    "empty.npy": (b"", "cannot be read as .npy"),
    "objects.npy": (OBJECTS, "never unpickled"),
    "bf16.npy": (npy(ARRAYS[4]), "which NumPy makes of bf16 arrays; say that it is bf16"),
    **{f"text{kind}": (b"hello, this is no array", f"cannot be read as {kind}") for kind in KINDS if kind != ".pt"},
    "truncated.npz": (bytes(zipped([("a.npy", npy(ARRAYS[0]))])[:-30]), "cannot be read as .npz"),
    "short.npz": (bytes(zipped([("a.npy", npy(ARRAYS[0])[:-4])])), "announces 24 bytes of data; the file has 20"),
    "bomb.npz": (claiming("a.npy", header("(400000000,)"), 1_600_000_128), "announces 1600000128 bytes"),
    "objects.npz": (bytes(zipped([("a.npy", OBJECTS)])), "never unpickled"),
    "short.safetensors": (safetensors(f"{{{tensor('a')}}}", b"12"), "cannot be read as .safetensors"),
    "long_header.safetensors": (struct.pack("<Q", 2**60), "cannot be read as .safetensors"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(tmp_path: Path, name: str) -> None:
    content, message = HOSTILE[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FileError, match=message):
        files.read(str(tmp_path / name))


def test_an_archive_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many arrays it has: opening reads the whole list of members."""
    arrays = {f"{key}": np.full(2, key, np.float32) for key in range(50)}
    opened = []
    archive, safe_open = zipfile.ZipFile, package.safe_open
    monkeypatch.setattr(zipfile, "ZipFile", lambda *a, **k: opened.append(a) or archive(*a, **k))
    monkeypatch.setattr(package, "safe_open", lambda *a, **k: opened.append(a) or safe_open(*a, **k))
    for kind, dtype in ((".npz", np.float32), (".safetensors", np.float32), (".safetensors", ml_dtypes.bfloat16)):
        place = str(tmp_path / f"a{kind}")
        files.write_all(place, {key: array.astype(dtype) for key, array in arrays.items()}, force=True)
        opened.clear()
        again = files.read_all(place)
        assert len(opened) == 1
        assert {key: array.tolist() for key, array in again.items()} == {k: a.tolist() for k, a in arrays.items()}
        assert all(array.dtype == dtype and array.flags.writeable for array in again.values())


def test_what_a_file_announces_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """The sum of all members counts, each of which is within what deflate can do."""
    place = tmp_path / "bomb.npz"
    place.write_bytes(zipped([(f"{key}.npy", ZEROS) for key in range(64)]))
    assert place.stat().st_size < len(ZEROS)
    limit = 63 * len(ZEROS)
    files.read(str(tmp_path / "bomb.npz:7"), len(ZEROS))
    tracemalloc.start()
    try:
        with pytest.raises(FileError, match=rf"64 arrays must fit {limit} bytes \(memory_bytes\); the size is"):
            files.read_all(str(place), limit)
        assert tracemalloc.get_traced_memory()[1] < len(ZEROS)
    finally:
        tracemalloc.stop()
    assert len(files.read_all(str(place), 64 * len(ZEROS))) == 64


def test_a_header_is_no_way_around_the_limit(tmp_path: Path) -> None:
    """One that says it is 4 GB long is not read to its end."""
    long_header = b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + bytes(1 << 24)
    (tmp_path / "a.npz").write_bytes(zipped([("a.npy", long_header)]))
    tracemalloc.start()
    try:
        with pytest.raises(FileError, match=r"cannot be read as .npz: EOF: reading array header"):
            files.read(str(tmp_path / "a.npz"))
        assert tracemalloc.get_traced_memory()[1] < 1 << 21
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.bool_, ml_dtypes.bfloat16], ids=lambda d: d.__name__)
def test_the_limit_is_what_an_array_takes(tmp_path: Path, kind: str, dtype: type) -> None:
    if dtype == ml_dtypes.bfloat16 and not files.KINDS[kind].extensions:
        return
    array = np.ones((3, 5), dtype)
    place = str(tmp_path / f"a{kind}")
    files.write(place, array)
    taken = array.nbytes + (128 if kind in (".npy", ".npz") else 0)  # these count their headers
    assert files.read(place, taken).tobytes() == array.tobytes()
    with pytest.raises(FileError, match=rf"must fit {taken - 1} bytes \(memory_bytes\); the size is {taken}"):
        files.read(place, taken - 1)


def test_members_that_lie_over_each_other(tmp_path: Path) -> None:
    """Many entries for the same bytes, as the densest of archives have, announce more than the file holds."""
    raw = bytes(zipped([("a.npy", ZEROS)], zipfile.ZIP_STORED))
    begin, end = raw.index(b"PK\x01\x02"), raw.index(b"PK\x05\x06")
    entry = raw[begin:end]
    entries = b"".join(entry.replace(b"a.npy", f"{key}.npy".encode()) for key in "bcde")
    tail = bytearray(raw[end:])
    tail[8:12] = struct.pack("<HH", 4, 4)
    tail[12:16] = struct.pack("<I", len(entries))
    (tmp_path / "over.npz").write_bytes(raw[:begin] + entries + tail)
    with pytest.raises(FileError, match=r"the members announce 4194816 bytes; the file has 1048965"):
        files.read_all(str(tmp_path / "over.npz"))


MISTAKEN = {
    "two.npz": "a key is needed; the file has a, b",
    "two.npz:c": "no array 'c'; the file has a, b",
    "one.npy:a": "no keys; got key 'a'",
    "a.txt": "must end in",
    "a": "no ending",
    "no.npy": "No such file",
}


@pytest.mark.parametrize("place", MISTAKEN)
def test_mistaken_places_and_keys(tmp_path: Path, place: str) -> None:
    np.savez(tmp_path / "two.npz", a=ARRAYS[0], b=ARRAYS[1])
    files.write(f"{tmp_path}/one.npy", ARRAYS[0])
    assert files.read(f"{tmp_path}/two.npz:b") == 3.5
    with pytest.raises(FileError, match=MISTAKEN[place]):
        files.read(f"{tmp_path}/{place}")


@pytest.mark.parametrize("key", ["a\x1b[2J", "a\nb", "\udcff", "k" * 256, "__metadata__"])
def test_keys_that_are_not_written(tmp_path: Path, key: str) -> None:
    for kind in (".npz", ".safetensors"):
        with pytest.raises(FileError, match="a key to write must be at most 255 printable characters"):
            files.write_all(str(tmp_path / f"a{kind}"), {"a": ARRAYS[0], key: ARRAYS[0]})
    assert list(tmp_path.iterdir()) == []


def test_no_directory() -> None:
    with pytest.raises(FileError, match="no such directory"):
        files.write("/nonexistent/a.npy", ARRAYS[0])


def test_random_damage_is_refused_or_read(tmp_path: Path) -> None:
    """Flipped bytes anywhere give an array or a FileError, nothing else."""
    rng = np.random.default_rng(0)
    for kind in KINDS:
        place = tmp_path / f"a{kind}"
        files.write(str(place), ARRAYS[0], force=True)
        whole = place.read_bytes()
        for _ in range(150):
            damaged = bytearray(whole)
            for at in rng.integers(0, len(whole), rng.integers(1, 5)):
                damaged[at] = rng.integers(256)
            place.write_bytes(damaged[: rng.integers(1, len(whole) + 1)] if rng.random() < 0.3 else damaged)
            try:
                files.read(str(place))
            except FileError:
                continue
