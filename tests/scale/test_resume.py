"""A call in pieces that was left goes on to the same bits, wherever that was, and does nothing again that was kept."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import convgrad
from campaigns.resume import Tally, run_calls
from convgrad import FileError, scale
from convgrad.engines.llvm.isas import host_isas
from convgrad.scale import checkpoint, durable
from convgrad.scale.checkpoint import LINE
from convgrad.scale.cut import Cut
from convgrad.spec.subproblems import SubProblem
from tests.scale.sources import Slices, least_memory, memories
from tests.support.helpers import assert_same_bits

Array = np.ndarray
F32 = np.float32

SAME = {"auto_pad": "same_upper"}
WEIGHTS, FORWARD, DATA = "ConvolutionBackwardWeights", "Convolution", "ConvolutionBackwardData"

# name: operator, shapes of the operands, attributes; how it is cut, None for the smallest pieces, as memory has it that
# differs by instruction set; the operand that is swept, None where that is the result
LAYERS: dict[str, tuple[str, list[tuple[int, ...]], dict[str, Any], Cut | None, int | None]] = {
    "images": (WEIGHTS, [(7, 20, 17, 3), (7, 20, 17, 5)], {"weights_shape": (3, 3, 3, 5)} | SAME, None, 1),
    "rows": (WEIGHTS, [(2, 700, 3), (2, 700, 5)], {"weights_shape": (5, 3, 5)} | SAME, None, 1),
    "bias": ("BiasAddBackward", [(600, 2, 3)], {}, None, 0),
    "forward": (FORWARD, [(9, 12, 11, 3), (3, 3, 3, 5), (5,)], SAME, Cut(2), None),
    "rows of a forward": (FORWARD, [(2, 60, 11, 3), (3, 3, 3, 5)], SAME, Cut(1, 16), None),
    "data": (DATA, [(9, 5, 6, 4), (3, 3, 3, 4)], {"strides": 2, "dst_shape": (9, 12, 13, 3)}, Cut(2), None),
}


class Counted(Slices):
    """What counts how often each element was read or written, and may raise where it is read."""

    def __init__(self, array: Array, raises: Callable[[], None] = lambda: None) -> None:
        super().__init__(array)
        self.raises, self.reads, self.writes = raises, np.zeros(array.shape, int), np.zeros(array.shape, int)

    def __getitem__(self, region: Any) -> Array:
        self.raises()
        self.reads[region] += 1
        return super().__getitem__(region)

    def __setitem__(self, region: Any, given: Array) -> None:
        self.writes[region] += 1
        super().__setitem__(region, given)


class Call:
    """A layer that is run in pieces with a checkpoint, and may be left."""

    def __init__(self, name: str, folder: Path) -> None:
        rng = np.random.default_rng(len(name))
        self.operator, shapes, self.attributes, cut, self.swept = LAYERS[name]
        self.arrays = [rng.standard_normal(shape).astype(F32) for shape in shapes]
        self.expected = scale.run(self.operator, *self.arrays, **self.attributes)
        self.path = folder / "checkpoint"
        self.out = None
        if self.swept is None:
            self.out = np.memmap(folder / "out", F32, "w+", shape=self.expected.shape)
            self.out[...] = np.nan
        given = (self.operator, *self.sources())
        if cut is None:
            self.memory_bytes = least_memory(*given, threads=1, **self.attributes)
        else:
            self.memory_bytes = memories(*given, out=self.counted_out(), **self.attributes)[cut]

    def counted_out(self) -> Counted | None:
        return None if self.out is None else Counted(self.out)

    def sources(self, raises: Callable[[], None] = lambda: None) -> list[Counted]:
        return [Counted(array, raises) for array in self.arrays]

    def run(
        self,
        after: int | None = None,
        raises: Callable[[], None] = lambda: None,
        leave: type[BaseException] = KeyboardInterrupt,
        **options: Any,
    ) -> tuple[Array, scale.Progress | None]:
        """Leave after so many pieces, if any; return how often what is swept was read or written, and how far it is."""
        given, out = self.sources(raises), self.counted_out()
        told = []

        def progress(now: scale.Progress) -> None:
            told.append(now)
            if now.done - now.resumed == after:
                raise leave

        options = {"memory": self.memory_bytes, "threads": 1, "out": out, "checkpoint": self.path} | options
        with suppress(leave, FileError):
            got = scale.run(self.operator, *given, progress=progress, **options, **self.attributes)
            assert_same_bits(got if self.out is None else self.out, self.expected, self.operator)
            assert not self.path.exists()
            after = None
        assert after is None or self.path.exists()
        count = given[self.swept].reads if self.swept is not None else out.writes if out is not None else None
        assert count is not None
        return count, told[-1] if told else None

    @cached_property
    def cut(self) -> list[SubProblem]:
        options = {"memory": self.memory_bytes, "threads": 1, "out": self.counted_out()}
        return list(scale.plan(self.operator, *self.sources(), **options, **self.attributes).subproblems())

    def finished(self, pieces: int) -> Array:
        """Return which elements of what is swept the first pieces have."""
        done = np.zeros(self.expected.shape if self.swept is None else self.arrays[self.swept].shape, bool)
        for slab in self.cut[:pieces]:
            done[slab.writes if self.swept is None else slab.reads[self.swept]] = True
        return done

    def kept(self) -> Array:
        """Return which elements the checkpoint says are finished."""
        shape = self.expected.shape if self.swept is None else self.arrays[self.swept].shape
        head, _ = durable.read(self.path, LINE)
        lines = np.arange(shape[0] * shape[1]) < head["images"] * shape[1] + head["rows"]
        return np.broadcast_to(lines.reshape(*shape[:2], *[1] * len(shape[2:])), shape)


@pytest.mark.every(3)
@pytest.mark.parametrize("name", LAYERS)
def test_left_after_any_piece_it_does_the_others(name: str, tmp_path: Path) -> None:
    call = Call(name, tmp_path)
    pieces = len(call.cut)
    assert 4 <= pieces <= 20
    for after in range(1, pieces + 1):
        call.run(after)
        assert np.array_equal(call.kept(), call.finished(after))
        count, now = call.run()
        assert np.array_equal(count, ~call.finished(after)), after
        assert now is not None
        assert (now.done, now.pieces, now.resumed) == (pieces, pieces, after)


def test_a_source_that_fails_leaves_what_was_finished(tmp_path: Path) -> None:
    call, reads = Call("images", tmp_path), [0]

    def at_last() -> None:
        reads[0] += 1
        if reads[0] == 6:
            raise OSError("the disk is gone")

    _, now = call.run(raises=at_last)
    assert now is not None
    assert 0 < now.done < 4
    assert np.array_equal(call.run()[0], ~call.finished(now.done))


@pytest.mark.every(2)
@pytest.mark.parametrize("name", LAYERS)
def test_cut_otherwise_each_time_nothing_is_done_again(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By other memory, other threads, other kernels."""
    call = Call(name, tmp_path)
    call.run(1)
    done = call.kept()
    for times, threads, isa in ((2, 2, host_isas()[-1]), (1, 1, host_isas()[0]), (1000, 2, host_isas()[-1])):
        monkeypatch.setenv("CONVGRAD_MAX_ISA", isa.name)
        count, now = call.run(None if times == 1000 else 1, memory=times * call.memory_bytes, threads=threads)
        assert not (count * done).any()
        assert now is not None
        assert 0 <= now.resumed < now.done <= now.pieces
        done = call.kept() if call.path.exists() else done | (count > 0)
        if done.all():
            break
    assert done.all()


def killed(call: Call, after: int) -> None:
    """Leave a call after so many pieces with the files that a process would that ends there without a word.

    That real ones do is shown by campaigns/kill.py.
    """
    files: list[tuple[bytes, Array | None]] = []

    class Killed(BaseException):
        def __init__(self) -> None:
            files.append((call.path.read_bytes(), None if call.out is None else np.array(call.out)))

    call.run(after, leave=Killed)
    [(kept, out)] = files
    assert call.path.read_bytes() != kept, "whoever is left otherwise saves"
    call.path.write_bytes(kept)
    if call.out is not None:
        call.out[...] = out


@pytest.mark.parametrize("name", ["images", "forward"])
def test_a_process_that_is_killed_loses_what_was_not_saved(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a clock by which every second piece is saved."""
    call, ticks = Call(name, tmp_path), itertools.count()
    monkeypatch.setattr(checkpoint, "EVERY_S", 2)
    monkeypatch.setattr(checkpoint, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    killed(call, 3)
    assert np.array_equal(call.kept(), call.finished(2))
    assert np.array_equal(call.run()[0], ~call.finished(2))


@pytest.mark.long
def test_a_hundred_random_calls_left_again_and_again() -> None:
    tally = Tally()
    for chunk in range(2000, 2004):
        run_calls(chunk, 25, tally)
    assert tally.calls == 100
    assert tally.left > 50
    assert tally.by_rows > 5
    assert not tally.wrong


def test_an_old_value_is_added_once(tmp_path: Path) -> None:
    call = Call("images", tmp_path)
    old = np.random.default_rng(1).standard_normal(call.expected.shape).astype(F32)
    out = old.copy()
    call.run(2, out=out, accumulate=True)
    assert_same_bits(out, old, "not written to before the end")
    call.expected = call.expected + old
    call.run(out=out, accumulate=True)


@pytest.mark.long
@pytest.mark.parametrize("name", ["float32", "bfloat16", "float8_e5m2"])
def test_a_tensor_is_continued(name: str, tmp_path: Path) -> None:
    """In the long tier, as PyTorch takes a second to begin."""
    torch = pytest.importorskip("torch")
    src, weights = (np.random.default_rng(0).standard_normal(shape).astype(name) for shape in ((8, 60, 3), (1, 3, 2)))
    given, out = (FORWARD, Slices(src), weights), torch.zeros(8, 60, 2, dtype=getattr(torch, name))
    expected, seen = convgrad.convolution(src, weights), list[scale.Progress]()

    def stop_at_two(now: Any) -> None:
        seen.append(now)
        if len(seen) == 2:
            raise KeyboardInterrupt

    memory = least_memory(*given, out=out, threads=1)
    options: dict[str, Any] = {"out": out, "checkpoint": tmp_path / "checkpoint", "memory": memory, "threads": 1}
    with pytest.raises(KeyboardInterrupt):
        scale.run(*given, **options, progress=stop_at_two)
    scale.run(*given, **options, progress=seen.append)
    assert (seen[2].resumed, out.view(torch.uint8).numpy().tobytes()) == (2, expected.tobytes())


def test_an_out_in_another_file_is_refused(tmp_path: Path) -> None:
    call = Call("forward", tmp_path)
    assert call.out is not None
    call.run(2, out=call.out)
    other = np.memmap(tmp_path / "other", F32, "w+", shape=call.out.shape)
    call.out[1, 3:5] = 0  # some numbers of one image
    for out, wrong in (
        (other, "is of another call: out was .*/out and is .*/other;"),
        (call.out, "are finished in out, which has different contents in images 0 to 3;"),
    ):
        with pytest.raises(FileError, match=wrong):
            scale.run(call.operator, *call.sources(), out=out, checkpoint=call.path, **call.attributes)


def test_other_images_of_the_same_file_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "dst.npy", np.ones((40, 16, 16, 2), F32))
    dst = np.load(tmp_path / "dst.npy", mmap_mode="r")

    def left(now: scale.Progress) -> None:
        raise KeyboardInterrupt

    options = {"memory": "90kB", "checkpoint": tmp_path / "kept"}
    with pytest.raises(KeyboardInterrupt):
        scale.run("BiasAddBackward", dst[:20], progress=left, **options)
    with pytest.raises(FileError, match=r"the part of diff_dst's file that is mapped was from byte 128 .* 41088 by"):
        scale.run("BiasAddBackward", dst[20:], **options)
