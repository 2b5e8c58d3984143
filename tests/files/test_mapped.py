"""Where in a file an array lies, and that ``out`` is not in the bytes of an operand's file, however both are mapped."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import InvalidShapeError
from convgrad.arrays import mapped
from convgrad.arrays.mapped import part_of

NUMBERS = np.arange(4 * 5 * 6, dtype="<f4").reshape(4, 5, 6)
VIEWS = {
    "all": lambda a: a,
    "later images": lambda a: a[2:],
    "of views": lambda a: a[1:][1:, 2:][:, :, ::2],
    "backwards": lambda a: a[::-1, 1:, ::-2],
    "no memmap": lambda a: a.view(np.ndarray)[1:].transpose(2, 0, 1),
    "broadcast": lambda a: np.broadcast_to(a[1], (3, 5, 6)),
    "none": lambda a: a[4:],
}


@pytest.mark.parametrize("offset", [0, 5000])
@pytest.mark.parametrize("view", VIEWS)
def test_the_bytes_of_a_view_are_those_at_its_numbers(view: str, offset: int, tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(b"\0" * offset + NUMBERS.tobytes())
    array = VIEWS[view](np.memmap(path, "<f4", "r", offset, NUMBERS.shape))
    part = part_of(array)
    assert part is not None
    assert part.file == str(path.resolve())
    if array.size:
        at = offset + 4 * array.astype(int)  # each number is its own place
        assert part.first == at.flat[0]


def test_what_lies_in_no_file_has_no_part() -> None:
    assert part_of(NUMBERS) is None
    assert part_of(NUMBERS[1:]) is None
    assert part_of(None) is None


SHAPE = (4, 6, 2)
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the file of an address")


def file_of_ones(folder: Path) -> Path:
    np.save(folder / "a.npy", np.ones(SHAPE, np.float32))
    return folder / "a.npy"


def loaded(path: Path, mode: Any) -> Any:
    return np.load(path, mmap_mode=mode)


def map_of(path: Path, mode: str) -> mmap.mmap:
    """Return a map that NumPy did not make."""
    access = {"r": mmap.ACCESS_READ, "r+": mmap.ACCESS_WRITE}[mode]
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), 0, access=access)


def from_buffer(path: Path, mode: str) -> Any:
    return np.frombuffer(map_of(path, mode), np.float32, offset=128).reshape(SHAPE)


def in_a_map(path: Path, mode: str) -> Any:
    return np.ndarray(SHAPE, np.float32, map_of(path, mode), 128)


def added(src: Any, out: Any) -> Any:
    return convgrad.bias_add(src, np.ones(2, np.float32), out=out)


MAPS = [pytest.param(loaded), pytest.param(from_buffer, marks=LINUX), pytest.param(in_a_map, marks=LINUX)]


@pytest.mark.parametrize("of_out", MAPS)
@pytest.mark.parametrize("of_src", MAPS)
def test_an_out_in_the_file_of_an_operand_is_refused(of_src: Any, of_out: Any, tmp_path: Path) -> None:
    path = file_of_ones(tmp_path)
    src, out = of_src(path, "r"), of_out(path, "r+")
    for one, other in ((src, out), (src[1:, 2:], out[:3, :4]), (src[:, ::-1], out), (src[:2], out[1:3])):
        with pytest.raises(InvalidShapeError, match=r"got memory shared with src \[D4\]$"):
            added(one, other)
    assert (np.load(path) == 1).all()
    added(src[:2], out[2:])
    added(src[:, :3], out[:, 3:])
    assert np.load(path).ravel().tolist() == ([1] * 6 + [2] * 6) * 2 + ([2] * 6 + [3] * 6) * 2


CALLS: dict[str, Callable[..., Any]] = {
    "function": lambda src, bias, out: convgrad.bias_add(src, bias, out=out),
    "run": lambda src, bias, out: convgrad.run("BiasAdd", src, bias, out=out),
    "compile": lambda src, bias, out: convgrad.compile("BiasAdd", src, bias)(src, bias, out=out),
}


@pytest.mark.parametrize("call", CALLS)
def test_every_door_looks_at_files(call: str, tmp_path: Path) -> None:
    path = file_of_ones(tmp_path)
    out = np.lib.format.open_memmap(path, "r+")
    with pytest.raises(InvalidShapeError, match=r"shared with src \[D4\]$"):
        CALLS[call](loaded(path, "r"), np.ones(2, np.float32), out)


def test_gradients_of_one_call_are_not_in_one_file(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones((3, 2, 2), np.float32))
    outs = {name: loaded(tmp_path / "a.npy", "r+") for name in ("src", "weights")}
    src, weights, diff_dst = (np.ones(shape, np.float32) for shape in ((3, 2, 2), (3, 2, 2), (3, 2, 2)))
    with pytest.raises(InvalidShapeError, match=r"shared with the out of src \[D4\]$"):
        convgrad.convolution_backward(src, weights, diff_dst, pads_begin=1, pads_end=1, out=outs)


def test_a_hard_link_is_the_same_file(tmp_path: Path) -> None:
    path = file_of_ones(tmp_path)
    (tmp_path / "link.npy").hardlink_to(path)
    with pytest.raises(InvalidShapeError, match=r"\[D4\]$"):
        added(loaded(tmp_path / "link.npy", "r"), loaded(path, "r+"))


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_what_is_not_written_back_is_no_file(platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A map that is copied where it is written to leaves the file as it is."""
    if platform == "linux" and sys.platform != platform:
        pytest.skip("has no /proc/self/maps")
    monkeypatch.setattr(mapped, "sys", SimpleNamespace(platform=platform))
    path = file_of_ones(tmp_path)
    assert (added(loaded(path, "r"), loaded(path, "c")) == 2).all()
    with pytest.raises(InvalidShapeError, match=r"\[D4\]$"):
        added(loaded(path, "c"), loaded(path, "r+"))
    with pytest.raises(InvalidShapeError, match=r"\[D4\]$"):
        added(loaded(path, "r"), loaded(path, "r+")[:, ::-1])
    assert (added(np.ones(SHAPE, np.float32), loaded(path, "r+")) == 2).all()


@LINUX
def test_a_file_that_has_lost_its_name(tmp_path: Path) -> None:
    """It is another than the one that has the name now, and the same as itself."""
    path = file_of_ones(tmp_path)
    out, src = loaded(path, "r+"), loaded(path, "r")
    path.unlink()
    with pytest.raises(InvalidShapeError, match=r"\[D4\]$"):
        added(src, out)
    assert (added(loaded(file_of_ones(tmp_path), "r"), out) == 2).all()


@LINUX
@pytest.mark.long
def test_tensors_in_a_file_are_operands_and_outs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the long tier, as PyTorch takes a second to begin."""
    torch = pytest.importorskip("torch")
    path = file_of_ones(tmp_path)

    def arrays() -> list[Any]:
        of_file = torch.from_file(str(path), True, 80)[32:].reshape(SHAPE)
        return [loaded(path, "r+"), torch.from_numpy(loaded(path, "r+")), of_file, of_file.clone()]

    *srcs, apart = arrays()
    for src, out in product(srcs, arrays()[:-1]):
        with pytest.raises(InvalidShapeError, match=r"got memory shared with src \[D4\]$"):
            added(src, out)
    monkeypatch.setattr(mapped, "_by_address", None)
    assert (added(srcs[0], apart) == 2).all()


def test_a_process_without_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of NumPy's maps are known all the same."""

    def refused(*_: Any, **__: Any) -> Any:
        raise PermissionError

    path = file_of_ones(tmp_path)
    src, out, other = loaded(path, "r"), loaded(path, "r+"), in_a_map(path, "r+")
    memory = np.frombuffer((ctypes.c_float * out.size)(), np.float32).reshape(SHAPE)
    monkeypatch.setattr(Path, "read_bytes", refused)
    monkeypatch.setattr(mapped, "open", refused, raising=False)
    with pytest.raises(InvalidShapeError, match=r"\[D4\]$"):
        added(src, out)
    assert (added(src, memory) == 2).all()
    assert (added(other, memory) == 2).all()


def test_nothing_is_asked_of_arrays_that_are_no_maps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped, "_by_address", None)
    monkeypatch.setattr(mapped, "_by_name", None)
    added(loaded(file_of_ones(tmp_path), "r"), np.empty((2, *SHAPE), np.float32)[1])
    added(np.ones((2, *SHAPE), np.float32)[1], loaded(tmp_path / "a.npy", "r+"))
