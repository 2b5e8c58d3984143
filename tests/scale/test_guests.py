"""Arrays of zarr and Dask, read in pieces that are whole chunks, and written to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import scale
from convgrad.scale.cut import Cut
from tests.scale.sources import memories
from tests.support.helpers import assert_same_bits

zarr = pytest.importorskip("zarr")
dask_array = pytest.importorskip("dask.array")
Array = np.ndarray
KERNEL = {"weights_shape": (3, 3, 3, 5), "auto_pad": "same_upper"}
CHUNKS = (4, 10, 18)


def data() -> tuple[Array, Array]:
    rng = np.random.default_rng(6)
    src, diff_dst = (rng.standard_normal((24, 20, 18, channels)).astype(np.float32) for channels in (3, 5))
    return src, diff_dst


def stored(path: Path, array: Array) -> Any:
    made = zarr.create_array(path, shape=array.shape, chunks=(*CHUNKS, array.shape[-1]), dtype=array.dtype)
    made[...] = array
    return made


def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often each chunk is read."""
    read: Counter[str] = Counter()
    get = zarr.storage.LocalStore.get

    async def counted(self: Any, key: str, *rest: Any, **more: Any) -> Any:
        read[f"{self.root}/{key}"] += "c/" in key
        return await get(self, key, *rest, **more)

    monkeypatch.setattr(zarr.storage.LocalStore, "get", counted)
    return read


@pytest.mark.parametrize("cut", [Cut(4), Cut(8), Cut(24)])
def test_zarr_is_read_chunk_by_chunk_once(cut: Cut, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = data()
    sources = [stored(tmp_path / str(n), array) for n, array in enumerate(given)]
    memory = memories("ConvolutionBackwardWeights", *sources, **KERNEL)[cut]
    read = reads(monkeypatch)
    got = scale.run("ConvolutionBackwardWeights", *sources, memory=memory, threads=1, **KERNEL)
    assert_same_bits(got, convgrad.convolution_backward_weights(*given, **KERNEL), cut)
    assert sorted(number for number in read.values() if number) == [1] * (2 * 6 * 2)


def test_zarr_is_written_to_in_whole_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    src, diff_dst = data()
    weights = np.random.default_rng(1).standard_normal((3, 3, 3, 5)).astype(np.float32)
    expected = convgrad.convolution(src, weights, auto_pad="same_upper")
    source, out = stored(tmp_path / "src", src), stored(tmp_path / "out", np.full_like(diff_dst, np.nan))
    found = memories("Convolution", source, weights, auto_pad="same_upper", out=out)
    read = reads(monkeypatch)
    options = {"memory": found[Cut(4)], "out": out, "auto_pad": "same_upper", "threads": 1}
    assert scale.run("Convolution", source, weights, **options) is out
    assert not any(number for name, number in read.items() if str(tmp_path / "out") in name)
    assert_same_bits(out[...], expected, "written")


@pytest.mark.parametrize("is_name", [True, False])
def test_a_result_is_not_written_to_the_stored_array_of_an_operand(is_name: bool, tmp_path: Path) -> None:
    path, weights = tmp_path / "both.zarr", np.ones((1, 1, 5, 5), np.float32)
    out, other = stored(path, data()[1]), stored(tmp_path / "other.zarr", data()[1])
    src = str(path) if is_name else zarr.open_array(path)
    with pytest.raises(convgrad.InvalidShapeError, match=r"out must not overlap an operand; got .*src.* \[D4\]$"):
        scale.run("Convolution", src, weights, out=out)
    scale.run("Convolution", src, weights, out=other)


def test_dask_arrays_are_read_slab_by_slab() -> None:
    given = data()
    sources = [dask_array.from_array(array, chunks=(*CHUNKS, array.shape[-1])) for array in given]
    memory = memories("ConvolutionBackwardWeights", *sources, **KERNEL)[Cut(8)]
    got = scale.run("ConvolutionBackwardWeights", *sources, memory=memory, threads=1, **KERNEL)
    assert type(got) is np.ndarray
    assert_same_bits(got, convgrad.convolution_backward_weights(*given, **KERNEL), "dask")
