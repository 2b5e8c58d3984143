"""Folders of Zarr as operands: of both formats, by key, whole and in pieces; what is no number is refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import convgrad
from convgrad import FileError, files, scale
from convgrad.cli import main
from convgrad.formats import BF16

FORMATS = (2, 3)
Array = np.ndarray[Any, Any]
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def zarr() -> Any:
    return pytest.importorskip("zarr")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)

    def said(*arguments: str) -> tuple[int, str]:
        code = main(list(arguments))
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return said


def stored(zarr: Any, place: Path, array: Array, number: int) -> None:
    made = zarr.create_array(place, shape=array.shape, chunks=(1,) * array.ndim, dtype=array.dtype, zarr_format=number)
    made[...] = array


@pytest.mark.parametrize("number", FORMATS)
@pytest.mark.parametrize("dtype", ["f4", "f2", "f8", "i8", "u2", ">f4"])
def test_arrays(number: int, dtype: str, zarr: Any, tmp_path: Path) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    for name in ("a.zarr", "without_ending"):
        stored(zarr, tmp_path / name, array, number)
        for found in (files.read(f"{tmp_path / name}"), files.mapped(f"{tmp_path / name}")[...]):
            assert np.array_equal(found, array)
            assert found.dtype.newbyteorder("=") == array.dtype.newbyteorder("=")


@pytest.mark.parametrize("number", FORMATS)
def test_groups_have_keys(number: int, zarr: Any, tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "step.zarr", mode="w", zarr_format=number)
    for key in ("src", "layer/diff_dst"):
        made = group.create_array(key, shape=(2, 3), dtype="f4")
        made[...] = len(key)
    place = f"{tmp_path}/step.zarr"
    assert sorted(files.keys(Path(place))) == ["layer/diff_dst", "src"]
    assert files.read(f"{place}:layer/diff_dst")[0, 0] == 14
    assert sorted(files.read_all(place)) == ["layer/diff_dst", "src"]
    for wrong, message in (
        (f"{place}:x", "no array 'x'; the file has layer/diff_dst, src"),
        (place, "a key is needed"),
    ):
        with pytest.raises(FileError, match=message):
            files.read(wrong)
    with pytest.raises(FileError, match="2 arrays must fit 40 bytes"):
        files.read_all(place, 40)


def test_a_codec_that_unpickles_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """zarr 2 lets any array have such a codec; zarr 3 refuses most."""
    (tmp_path / ".zarray").write_text("{}")
    for described in (
        {"filters": ["Pickle()"], "compressor": None},
        {"metadata": SimpleNamespace(to_dict=lambda: {"c": "pickle"})},
    ):
        array = SimpleNamespace(shape=(1,), chunks=(1,), dtype=np.dtype("f4"), **described)
        library = SimpleNamespace(open=lambda path, mode, array=array: array, Group=dict)
        monkeypatch.setattr("convgrad.files.zarr.package", lambda library=library: library)
        with pytest.raises(FileError, match="its codec stores Python objects, which are never unpickled"):
            files.read(str(tmp_path))


CHUNKS: dict[str, tuple[dict[str, Any], int]] = {  # and the bytes of all chunks, which are decoded whole
    "longer than the array": ({"shape": (4,), "chunks": (1000,)}, 4000),
    "longer on one axis": ({"shape": (5, 2), "chunks": (1, 100)}, 2000),
    "cut at the end": ({"shape": (5, 7), "chunks": (2, 3)}, 6 * 9 * 4),
    "shards": ({"shape": (5, 7), "chunks": (2, 3), "shards": (4, 6)}, 8 * 12 * 4),
    "empty": ({"shape": (0, 7), "chunks": (2, 3)}, 0),
    "scalar": ({"shape": (), "chunks": ()}, 4),
}


@pytest.mark.parametrize(("layout", "size"), CHUNKS.values(), ids=CHUNKS)
def test_memory_is_that_of_whole_chunks(layout: dict[str, Any], size: int, zarr: Any, tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a.zarr", dtype="f4", **layout)[...] = 1
    assert np.array_equal(files.read(f"{tmp_path}/a.zarr", size), np.ones(layout["shape"], np.float32))
    with pytest.raises(FileError, match=f"must fit {size - 1} bytes .*; the size is {size}"):
        files.read(f"{tmp_path}/a.zarr", size - 1)


def test_chunks_and_groups_have_limits(zarr: Any, tmp_path: Path) -> None:
    """Small folders that take months otherwise: chunks that are not there, and links to groups with links."""
    zarr.create_array(tmp_path / "a.zarr", shape=(10**9,), chunks=(1,), dtype="f4")
    with pytest.raises(FileError, match=r"must have at most \d+ chunks to be read whole; it has 1000000000"):
        files.read(f"{tmp_path}/a.zarr")
    for number in range(30):
        zarr.open_group(tmp_path / f"{number}.zarr", mode="w")
        for name in "ab" if number < 29 else "":
            (tmp_path / f"{number}.zarr" / name).symlink_to(tmp_path / f"{number + 1}.zarr")
    with pytest.raises(FileError, match=r"groups must be at most \d+"):
        files.keys(tmp_path / "0.zarr")


def test_what_is_no_number_is_refused(zarr: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No codec unpickles, and the memory that an array announces is checked before it is read."""
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "a.zarr"
    stored(zarr, place, np.ones(4, np.float32), 2)
    described = json.loads((place / ".zarray").read_text())
    (place / "0").write_bytes(b"cos\nsystem\n(S'touch opened'\ntR.")
    for change, message in (
        ({"dtype": "|O", "filters": [{"id": "pickle"}], "fill_value": None}, r"a\.zarr"),
        ({"compressor": {"id": "pickle", "protocol": 5}}, r"a\.zarr"),
        ({"dtype": "<M8[s]", "fill_value": 0}, "must hold numbers; it holds datetime64"),
        ({"shape": [2**40], "chunks": [2**40]}, "must fit .* bytes"),
    ):
        (place / ".zarray").write_text(json.dumps(described | change))
        with pytest.raises(FileError, match=message):
            files.read(str(place), 1 << 30)
    assert not Path("opened").exists()
    (place / ".zarray").write_text("{")
    with pytest.raises(FileError, match=r"cannot be read as \.zarr"):
        files.read(str(place))
    for name in ("none.zarr", "folder.zarr"):
        (tmp_path / "folder.zarr").mkdir(exist_ok=True)
        with pytest.raises(FileError, match=r"must be a folder of Zarr, with one of zarr\.json, \.zarray, \.zgroup"):
            files.read(str(tmp_path / name))
    with pytest.raises(FileError, match=r"Zarr folders are read, not written; write \.npy, \.npz, \.safetensors, \.pt"):
        files.write(str(tmp_path / "b.zarr"), np.ones(3))


def test_bits_of_bf16(zarr: Any, tmp_path: Path) -> None:
    """Zarr has no bf16; raw records of two bytes, as NumPy stores them, have its bits."""
    array = np.arange(4).astype(ml_dtypes.bfloat16)
    place = tmp_path / "a.zarr"
    made = zarr.create_array(place, shape=(4,), dtype="V2", zarr_format=2)
    made[...] = array.view("V2")
    assert np.array_equal(files.read(str(place), fmt=BF16), array)
    with pytest.raises(FileError, match="raw records cannot be read in pieces"):
        files.mapped(str(place), BF16)


@pytest.mark.parametrize("number", FORMATS)
def test_calls_read_folders(number: int, zarr: Any, run: Run) -> None:
    """``convgrad run``, also in pieces, and ``scale.run`` have the bits of the call on arrays."""
    rng = np.random.default_rng(1)
    src, diff = (rng.standard_normal((8, 12, 10, channels)).astype(np.float32) for channels in (4, 6))
    for name, array in (("src.zarr", src), ("diff.zarr", diff)):
        made = zarr.create_array(name, shape=array.shape, chunks=(3, 5, 10, 4), dtype="f4", zarr_format=number)
        made[...] = array
    wanted = convgrad.convolution_backward_weights(src, diff, (3, 3, 4, 6), pads_begin=1, pads_end=1)
    layer = {"weights_shape": (3, 3, 4, 6), "pads_begin": 1, "pads_end": 1}
    for place in (Path("src.zarr"), "src.zarr"):
        got = scale.run("ConvolutionBackwardWeights", place, "diff.zarr", memory="100kB", **layer)
        assert got.tobytes() == wanted.tobytes()
    words = ["--attr", "weights_shape=3,3,4,6", "--attr", "pads_begin=1,1", "--attr", "pads_end=1,1"]
    words += ["--attr", "strides=1,1", "--attr", "dilations=1,1"]
    for more in ([], ["--memory", "100kB"]):
        code, said = run(
            "run", "ConvolutionBackwardWeights", "src.zarr", "diff.zarr", *words, *more, "-o", "w.npy", "--force"
        )
        assert (code, np.load("w.npy").tobytes() == wanted.tobytes()) == (0, True), said
    assert run("run", "ConvolutionBackwardWeights", "src.zarr", "diff.zarr", *words, "-o", "w.zarr")[0] == 3
    assert run("run", "src.zarr", "diff.zarr")[0] == 2


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    (tmp_path / "a.zarr").mkdir()
    (tmp_path / "a.zarr" / "zarr.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(FileError, match="Zarr folders need the zarr package: pip install zarr"):
        files.read(str(tmp_path / "a.zarr"))
    code, said = run("run", "BiasAddBackward", "a.zarr")
    assert (code, "pip install zarr" in said) == (3, True)
