"""Calls in pieces that are left: what cannot be read, Ctrl-C, and what goes on from a checkpoint."""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import scale, starting
from convgrad.scale.cut import Cut
from tests.scale.sources import Slices, memories
from tests.support.helpers import assert_same_bits

Array = np.ndarray
F32 = np.float32
WEIGHTS, FORWARD = "ConvolutionBackwardWeights", "Convolution"
KERNEL = {"weights_shape": (3, 3, 3, 5), "auto_pad": "same_upper"}


def data(batch: int = 9) -> tuple[Array, Array]:
    rng = np.random.default_rng(5)
    src, diff_dst = (rng.standard_normal((batch, 24, 18, channels)).astype(np.float32) for channels in (3, 5))
    return src, diff_dst


@functools.cache
def memory_of(cut: Cut) -> int:
    """Return the memory by which the gradient is cut so."""
    return memories(WEIGHTS, *map(Slices, data()), **KERNEL)[cut]


class Broken(Slices):
    """What does something else where it is read for the so-manieth time."""

    def __init__(self, array: Array, at: int, instead: Callable[[Array], Any]) -> None:
        super().__init__(array)
        self.left, self.instead = at, instead

    def __getitem__(self, region: Any) -> Array:
        self.left -= 1
        given = super().__getitem__(region)
        return given if self.left else self.instead(given)  # type: ignore[no-any-return]


def refuse(_: Array) -> Array:
    raise OSError("the disk is gone")


BROKEN: dict[str, tuple[Callable[[Array], Any], str]] = {
    "no answer": (refuse, "failed: OSError: the disk is gone"),
    "another shape": (lambda a: a[1:], "must give f32 2x24x18x5; got float32 1x24x18x5"),
    "another type": (lambda a: a.astype(np.float64), "must give f32 2x24x18x5; got float64 2x24x18x5"),
    "no array": (lambda a: "nothing", "must give f32 2x24x18x5; got <U7 "),
    "masked elements": (lambda a: np.ma.masked_greater(a, 0), "must give a plain array; got masked elements"),
}


def no_reader_is_left() -> bool:
    return not [thread for thread in threading.enumerate() if thread.name == "convgrad-reader"]


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("at", [1, 2, 4])
def test_what_cannot_be_read_is_named(name: str, at: int) -> None:
    instead, words = BROKEN[name]
    src, diff_dst = data()
    broken = Broken(diff_dst, at, instead)
    with pytest.raises(convgrad.FileError) as caught:
        scale.run(WEIGHTS, Slices(src), broken, memory=memory_of(Cut(2)), threads=1, **KERNEL)
    images = f"{2 * at - 2}:{2 * at}"
    assert str(caught.value).startswith(f"{WEIGHTS}: reading diff_dst[{images}, 0:24, 0:18, 0:5] {words}")
    assert no_reader_is_left()


def test_a_mask_of_nothing_hides_nothing() -> None:
    src, diff_dst = data()
    got = scale.run(WEIGHTS, Slices(src), Broken(diff_dst, 1, np.ma.masked_invalid), threads=1, **KERNEL)
    assert_same_bits(got, convgrad.convolution_backward_weights(src, diff_dst, **KERNEL), "unmasked")


class Odd(Slices):
    """A result that does something else where it is read or written."""

    def __init__(self, array: Array, gives: Callable[[Array], Any], takes: Callable[[Array], Any]) -> None:
        super().__init__(array)
        self.gives, self.takes = gives, takes

    def __getitem__(self, region: Any) -> Array:
        return self.gives(super().__getitem__(region))  # type: ignore[no-any-return]

    def __setitem__(self, region: Any, given: Array) -> None:
        super().__setitem__(region, self.takes(given))


@pytest.mark.parametrize("operator", [WEIGHTS, FORWARD])
def test_a_result_that_cannot_be_handed_over_is_named(operator: str) -> None:
    src, diff_dst = data()
    given, attributes = ((src, diff_dst), KERNEL) if operator == WEIGHTS else ((src, np.ones((1, 1, 3, 5), F32)), {})
    like = np.zeros((3, 3, 3, 5) if operator == WEIGHTS else diff_dst.shape, F32)
    where = r"out\[0:\d, 0:\d+, 0:\d+, 0:5\]"
    for gives, takes, words in (
        (np.array, refuse, f"writing {where} failed: OSError: the disk is gone"),
        (refuse, np.array, f"reading {where} failed: OSError: the disk is gone"),
        (lambda a: a[1:], np.array, f"reading {where} must give f32 .*; got float32 "),
        (lambda a: a.astype(float), np.array, f"reading {where} must give f32 .*; got float64 "),
    ):
        with pytest.raises(convgrad.FileError, match=f"^{operator}: {words}"):
            scale.run(operator, *given, out=Odd(like, gives, takes), accumulate=True, threads=1, **attributes)


def test_small_operands_are_read_once_and_named_too() -> None:
    src, _ = data()
    weights = np.ones((3, 3, 3, 5), np.float32)
    small = Slices(weights)
    scale.run(FORWARD, Slices(src), small, memory="1MB", out=np.empty((9, 22, 16, 5), np.float32))
    assert small.asked_bytes == weights.nbytes
    with pytest.raises(convgrad.FileError, match=r"reading weights\[0:3, 0:3, 0:3, 0:5\] failed: OSError"):
        scale.run(FORWARD, Slices(src), Broken(weights, 1, refuse))


class Full(Slices):
    """What takes no more from the second image on."""

    def __setitem__(self, region: Any, array: Array) -> None:
        if region[0].start:
            refuse(array)
        super().__setitem__(region, array)


def test_what_cannot_be_written_is_named() -> None:
    src, _ = data()
    weights, out = np.ones((3, 3, 3, 5), np.float32), Full(np.empty((9, 22, 16, 5), np.float32))
    with pytest.raises(
        convgrad.FileError, match=r"writing out\[2:4, 0:22, 0:16, 0:5\] failed: OSError: the disk is gone"
    ):
        scale.run(FORWARD, Slices(src), weights, memory="40kB", threads=1, out=out)


def interrupt(given: Array) -> Array:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)
    return given


@pytest.mark.parametrize("at", [1, 2, 3, 9])
def test_an_interrupt_while_reading_leaves_nothing_at_work(at: int) -> None:
    src, diff_dst = data()
    with pytest.raises(KeyboardInterrupt):
        scale.run(WEIGHTS, Slices(src), Broken(diff_dst, at, interrupt), memory=memory_of(Cut(1)), threads=1, **KERNEL)
    assert no_reader_is_left()


class Stop(Exception):
    """What a test leaves a call by."""


def leave_after(pieces: int) -> Callable[[scale.Progress], None]:
    def told(now: scale.Progress) -> None:
        if now.done - now.resumed == pieces:
            raise Stop

    return told


ROWS, ONE, TWO = Cut(1, 14), Cut(1), Cut(2)


@pytest.mark.parametrize(("first", "then"), [(ROWS, ONE), (ROWS, TWO), (ONE, ROWS), (TWO, ONE), (ROWS, ROWS)])
@pytest.mark.parametrize("pieces", [1, 2, 3])
def test_a_sum_that_was_left_goes_on_by_any_cut(first: Cut, then: Cut, pieces: int, tmp_path: Path) -> None:
    given, kept = data(), tmp_path / "sums"
    options: dict[str, Any] = {"checkpoint": kept, "threads": 1} | KERNEL
    with pytest.raises(Stop) as caught:
        scale.run(WEIGHTS, *map(Slices, given), progress=leave_after(pieces), memory=memory_of(first), **options)
    assert caught.value.__notes__ == [f"{kept} has the finished part: the same call resumes from it"]
    sources, told = [*map(Slices, given)], []
    got = scale.run(WEIGHTS, *sources, progress=told.append, memory=memory_of(then), **options)
    assert_same_bits(got, convgrad.convolution_backward_weights(*given, **KERNEL), "gone on")
    not_again = given[1].nbytes - sources[1].asked_bytes
    rows = pieces if first.rows is None else pieces // 2
    assert (
        not_again
        == given[1][: rows * first.images].nbytes + (first.rows is not None) * (pieces % 2) * given[1][0, :14].nbytes
    )
    assert (told[-1].done, told[-1].images) == (told[-1].pieces, len(given[0]))
    assert not kept.exists()


@pytest.mark.parametrize("smaller_first", [True, False])
def test_a_result_that_was_left_goes_on_by_any_cut(smaller_first: bool, tmp_path: Path) -> None:
    src, weights = data()[0], np.random.default_rng(1).standard_normal((3, 3, 3, 5)).astype(np.float32)
    expected = convgrad.convolution(src, weights, auto_pad="same_upper")
    out = np.memmap(tmp_path / "out", np.float32, "w+", shape=expected.shape)
    options: dict[str, Any] = {"checkpoint": tmp_path / "place", "auto_pad": "same_upper", "out": out}
    options |= {"threads": 1}
    found = memories(FORWARD, Slices(src), weights, auto_pad="same_upper", out=out)
    first, then = [found[Cut(1, 8)], found[Cut(2)]][:: 1 if smaller_first else -1]
    with pytest.raises(Stop):
        scale.run(FORWARD, Slices(src), weights, memory=first, progress=leave_after(2), **options)
    again = Slices(src)
    assert scale.run(FORWARD, again, weights, memory=then, **options) is out
    assert_same_bits(np.asarray(out), expected, "gone on")
    assert again.asked_bytes < src.nbytes


@pytest.mark.parametrize(("name", "value"), [("ending", [True]), ("SPARE_BYTES", 1 << 60)])
def test_where_no_thread_can_start_pieces_are_read_one_by_one(
    name: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the interpreter is ending, or there is no memory for one."""
    given, readers = data(), set()

    class Watched(Slices):
        def __getitem__(self, region: Any) -> Array:
            readers.add(threading.current_thread())
            return super().__getitem__(region)

    def run() -> Array:
        return scale.run(WEIGHTS, *map(Watched, given), memory=memory_of(TWO), threads=1, **KERNEL)  # type: ignore[no-any-return]

    expected = run()
    assert len(readers) == 1
    assert readers != {threading.current_thread()}
    readers.clear()
    monkeypatch.setattr(starting, name, value)
    assert_same_bits(run(), expected, "one by one")
    assert readers == {threading.current_thread()}
