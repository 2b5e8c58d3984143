"""Array files: what is written reads back; damaged, hostile and mistaken ones are refused before they cost memory."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from convgrad import FileError, files

ARRAYS = [
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.array(3.5),
    np.zeros((0, 4), np.float16),
    np.arange(24, dtype=np.float64).reshape(2, 3, 4).transpose(2, 0, 1),
    np.arange(4).astype(ml_dtypes.bfloat16),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}{a.shape}")
@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.npz:key", "a.safetensors", "a.safetensors:key"])
def test_round_trip(tmp_path: Path, array: np.ndarray, name: str) -> None:
    place = str(tmp_path / name)
    if array.dtype == ml_dtypes.bfloat16 and "safetensors" not in name:
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

    monkeypatch.setattr(np, "save", fail)
    with pytest.raises(FileError, match="cannot be written: disk full"):
        files.write(place, ARRAYS[1], force=True)
    assert files.read(place).shape == (2, 3)
    assert len(list(tmp_path.iterdir())) == 1


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def header(shape: str, version: int = 1) -> bytes:
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(text)) + text.encode()


def zipped(name: str, data: bytes, claim: int | None = None) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    raw = bytearray(buffer.getvalue())
    if claim is not None:
        for signature, offset in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
            at = raw.index(signature) + offset
            raw[at : at + 4] = struct.pack("<I", claim)
    return bytes(raw)


def safetensors(header_text: str, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header_text)) + header_text.encode() + data


HOSTILE = {
    "truncated.npy": (npy(ARRAYS[0])[:-1], "the header announces 24 bytes of data; the file has 23"),
    "longer.npy": (npy(ARRAYS[0]) + b"x", "announces 24 bytes"),
    "huge.npy": (header("(1000000000000000000,)"), "announces 4000000000000000000 bytes"),
    "version.npy": (header("(1,)", version=9), "only support format version|version"),
    "empty.npy": (b"", "cannot be read as .npy"),
    "text.npy": (b"hello, this is no array at all", "cannot be read as .npy"),
    "objects.npy": (npy(np.array([{}], object)), "never unpickled"),
    "bf16.npy": (npy(ARRAYS[4]), "bf16 arrays belong in .safetensors"),
    "text.npz": (b"hello, this is no archive", "cannot be read as .npz"),
    "truncated.npz": (zipped("a.npy", npy(ARRAYS[0]))[:-30], "cannot be read as .npz"),
    "short.npz": (zipped("a.npy", npy(ARRAYS[0])[:-4]), "announces 24 bytes of data; the file has 20"),
    "bomb.npz": (zipped("a.npy", header("(400000000,)"), claim=1_600_000_128), "claims 1600000128 bytes"),
    "objects.npz": (zipped("a.npy", npy(np.array([{}], object))), "never unpickled"),
    "text.safetensors": (b"hello, this is no tensor file", "cannot be read as .safetensors"),
    "short.safetensors": (
        safetensors('{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,36]}}', b"1234"),
        "cannot be read as .safetensors",
    ),
    "long_header.safetensors": (struct.pack("<Q", 2**60), "cannot be read as .safetensors"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(tmp_path: Path, name: str) -> None:
    content, message = HOSTILE[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FileError, match=message):
        files.read(str(tmp_path / name))


def test_keys(tmp_path: Path) -> None:
    np.savez(tmp_path / "two.npz", a=ARRAYS[0], b=ARRAYS[1])
    assert files.read(f"{tmp_path}/two.npz:b") == 3.5
    with pytest.raises(FileError, match="a key is needed; the file has a, b"):
        files.read(f"{tmp_path}/two.npz")
    with pytest.raises(FileError, match="no array 'c'; the file has a, b"):
        files.read(f"{tmp_path}/two.npz:c")
    files.write(f"{tmp_path}/one.npy", ARRAYS[0])
    with pytest.raises(FileError, match="no keys; got key 'a'"):
        files.read(f"{tmp_path}/one.npy:a")


@pytest.mark.parametrize(
    ("place", "message"), [("a.txt", "must end in"), ("a", "no ending"), ("no.npy", "no such file")]
)
def test_mistaken_places(place: str, message: str) -> None:
    with pytest.raises(FileError, match=message):
        files.read(place)


def test_no_directory() -> None:
    with pytest.raises(FileError, match="no such directory"):
        files.write("/nonexistent/a.npy", ARRAYS[0])


def test_random_damage_is_refused_or_read(tmp_path: Path) -> None:
    """Flipped bytes anywhere give an array or a FileError, nothing else."""
    rng = np.random.default_rng(0)
    for kind in files.KINDS:
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
