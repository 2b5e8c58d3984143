"""Arrays that lie in files are opened as maps: the same values as read, where they lie, or refused."""

from __future__ import annotations

import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from convgrad import FileError, files
from tests.files.test_files import ARRAYS
from tests.support.file_makers import KINDS, ONES, header, zipped

MAPPED = [kind for kind in KINDS if kind != ".pt"]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}{a.shape}")
@pytest.mark.parametrize("kind", MAPPED)
def test_a_map_has_the_values_that_are_read(tmp_path: Path, array: np.ndarray, kind: str) -> None:
    path = tmp_path / f"a{kind}"
    if not files.KINDS[kind].keyed:
        if array.dtype == ml_dtypes.bfloat16:
            return
        files.write(str(path), array)
        place = str(path)
    else:
        if array.dtype == ml_dtypes.bfloat16 and not files.KINDS[kind].extensions:
            return
        files.write_all(str(path), {"before": ONES, "größe": array, "behind": ONES})
        place = f"{path}:größe"
    found, expected = files.mapped(place), files.read(place)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes() == array.tobytes()
    assert isinstance(found, np.memmap) == bool(array.size)
    assert not array.size or not found.flags.writeable


def test_orders_and_byte_orders_are_those_of_the_file(tmp_path: Path) -> None:
    array = np.arange(24, dtype=">f4").reshape(2, 3, 4)
    np.save(tmp_path / "a.npy", np.asfortranarray(array))
    found = files.mapped(str(tmp_path / "a.npy"))
    assert (found.dtype, found.flags.f_contiguous) == (array.dtype, True)
    assert np.array_equal(found, array)


def test_members_with_longer_headers_of_their_own(tmp_path: Path) -> None:
    """A member's own header may have extras, as zip tools add, that the archive's list has not."""
    files.write(str(tmp_path / "a.npz"), ONES)
    with zipfile.ZipFile(tmp_path / "b.npz", "w") as archive:
        info = zipfile.ZipInfo("a.npy")
        info.extra = b"\x55\x54\x05\x00\x01\x00\x00\x00\x00"
        with zipfile.ZipFile(tmp_path / "a.npz") as one:
            archive.writestr(info, one.read("output.npy"))
    assert np.array_equal(files.mapped(str(tmp_path / "b.npz:a")), ONES)


def test_what_does_not_lie_in_its_file_as_in_memory_is_refused_with_what_would_fit(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", a=ONES)
    with pytest.raises(FileError, match=r"a\.npz:a: must have the same bytes.*it is compressed; numpy\.savez stores"):
        files.mapped(f"{tmp_path / 'a.npz'}:a")
    files.write(str(tmp_path / "a.safetensors"), np.ones(3, np.int8))
    with pytest.raises(FileError, match=r"it holds I8, and not F32, BF16"):
        files.mapped(str(tmp_path / "a.safetensors"))


@pytest.mark.long
def test_a_pt_file_is_refused_too(tmp_path: Path) -> None:
    """In the long tier, as PyTorch takes a second to begin."""
    pytest.importorskip("torch")
    files.write(str(tmp_path / "a.pt"), ONES)
    with pytest.raises(FileError, match=r"\.pt file.*use \.safetensors"):
        files.mapped(str(tmp_path / "a.pt"))


def test_a_header_that_claims_other_bytes_than_there_are_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(header("(1000,)") + b"\0" * 16)
    with pytest.raises(FileError, match="announces 4000 bytes of data; the file has 16"):
        files.mapped(str(tmp_path / "a.npy"))
    (tmp_path / "a.npz").write_bytes(zipped([("a.npy", header("(1000,)") + b"\0" * 16)], zipfile.ZIP_STORED))
    with pytest.raises(FileError, match="announces 4000 bytes of data; the file has 16"):
        files.mapped(str(tmp_path / "a.npz"))
