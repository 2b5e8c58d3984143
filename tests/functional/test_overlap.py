"""Overlap of arrays is decided exactly: by counting addresses here, for ``out`` with itself and with operands."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise, product
from math import prod
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import GraphError, InvalidShapeError
from convgrad.arrays import overlap
from convgrad.engines.addresses import address_of, array_at
from convgrad.graph import Graph, LogicalTensor, Op
from tests.support.helpers import assert_same_bits
from tests.support.tiers import tiers


def starts(shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Return the offset of each element."""
    return [sum(i * s for i, s in zip(at, strides, strict=True)) for at in product(*map(range, shape))]


def counted(shape: Sequence[int], strides: Sequence[int], size: int) -> bool:
    offsets = sorted(starts(shape, strides))
    return any(after - before < size for before, after in pairwise(offsets))


@tiers("size, first", (1, 2, 4), range(4), every=5)
def test_every_small_array_of_two_axes(size: int, first: int) -> None:
    for second, strides in product(range(4), product(range(-9, 10), repeat=2)):
        got = overlap.overlaps_itself((first, second), strides, size)
        assert got == counted((first, second), strides, size), (first, second, strides)


@tiers("seed", range(12), every=6)
def test_random_arrays_overlap_themselves_as_counted(seed: int) -> None:
    rng, found = random.Random(seed), set()
    for _ in range(500):
        axes, size = rng.randint(1, 5), rng.choice((1, 2, 4, 8))
        shape, far = [rng.randint(1, 4) for _ in range(axes)], rng.choice((10, 60, 300))
        strides = [rng.randint(-far, far) for _ in range(axes)]
        expected = counted(shape, strides, size)
        assert overlap.overlaps_itself(tuple(shape), tuple(strides), size) == expected, (shape, strides, size)
        found.add(expected)
    assert found == {True, False}


@tiers("seed", range(12), every=6)
def test_random_views_of_a_buffer_overlap_as_counted(seed: int) -> None:
    rng, found = random.Random(seed), set()
    buffer = np.zeros(4096, np.uint8)
    middle = address_of(buffer) + 2048
    for _ in range(500):
        views, covered = [], []
        for _ in range(2):
            axes, kind = rng.randint(0, 4), np.dtype(rng.choice(("u1", "f2", "f4", "f8")))
            shape, far = [rng.randint(0 if rng.random() < 0.1 else 1, 4) for _ in range(axes)], rng.choice((9, 40))
            strides = [rng.randint(-far, far) for _ in range(axes)]
            offset = rng.randint(-100, 100)
            views.append(array_at(middle + offset, tuple(shape), tuple(strides), kind))
            covered.append({offset + at + byte for at in starts(shape, strides) for byte in range(kind.itemsize)})
        expected = not covered[0].isdisjoint(covered[1])
        assert overlap.overlaps(*views) == expected, views
        found.add(expected)
    assert found == {True, False}


HARD: list[tuple[tuple[int, ...], tuple[int, ...], int, bool | None]] = [
    ((2**60, 2**60), (1, 1), 1, True),
    ((2,) * 40, tuple(range(1, 41)), 1, True),
    ((2,) * 60, tuple(3**i for i in range(60)), 1, False),
    ((2**31, 2**31), (2**31 + 1, 2**31), 1, None),
    ((2, 2**62), (2**62, 1), 1, False),
    ((2, 10**6), (20, 12), 4, False),
    ((2, 10**6), (21, 12), 4, True),
    ((10**6, 2), (24, 20), 4, False),
    ((10**6, 2), (24, 72), 4, True),
    ((10**6, 3, 10**6), (24, 8, 24 * 10**6), 4, False),
    ((9, 3, 60, 18, 50, 8, 28, 6), (453, 85565549, 763, 90017, 7333, 5533210, 87015361961, 31108842129), 1, True),
]


@pytest.mark.parametrize(("shape", "strides", "size", "expected"), HARD, ids=range(len(HARD)))
def test_a_hard_question_ends(
    shape: tuple[int, ...], strides: tuple[int, ...], size: int, expected: bool | None
) -> None:
    """NumPy's solver takes minutes for the last array, with a limit of its work of 100,000."""
    assert overlap.overlaps_itself(shape, strides, size) == expected


# Strides of an out with a stride between those of its neighbours, in elements, and a shape.
INTERLEAVED = [((1, 2, 3), (0, 5, 3)), ((2, 3, 2), (5, 3, 31)), ((3, 2, 4), (-7, 24, 2)), ((2, 2, 3), (11, -7, 3))]


@pytest.mark.parametrize(("shape", "steps"), INTERLEAVED, ids=str)
@pytest.mark.parametrize("weights_shape", [(1, 5), (3, 8)], ids=str)
def test_an_interleaved_out_is_legal(shape: tuple[int, ...], steps: tuple[int, ...], weights_shape: Any) -> None:
    """Every element has the bits that it has in a contiguous array, and nothing between is written."""
    assert not counted(shape, steps, 1)
    taps, channels = weights_shape
    src = np.arange(1, 1 + shape[0] * (shape[1] + taps - 1) * channels, dtype=np.float32)
    src = src.reshape(shape[0], -1, channels) % 7
    weights = (np.arange(1, 1 + taps * channels * shape[2], dtype=np.float32) % 5).reshape(taps, channels, shape[2])
    expected = convgrad.convolution(src, weights)
    memory = np.full(200, -1, np.float32)
    out = array_at(address_of(memory) + 400, shape, tuple(4 * step for step in steps), memory.dtype)
    assert convgrad.convolution(src, weights, out=out) is out
    assert_same_bits(np.ascontiguousarray(out), expected, steps)
    assert (memory == -1).sum() == 200 - prod(shape)


def test_views_between_each_other_are_legal_and_give_the_same_bits() -> None:
    """The operands and ``out`` are columns of one array, in every order."""
    rng = np.random.default_rng(3)
    values = [rng.standard_normal(shape).astype(np.float32) for shape in ((2, 6, 5), (3, 5, 5))]
    expected = convgrad.convolution(*values, pads_begin=1, pads_end=1, threads=1)
    for src_at, out_at in ((0, 1), (1, 0)):
        both = np.zeros((2, 6, 5, 2), np.float32)
        src, out = both[..., src_at], both[..., out_at]
        src[...] = values[0]
        convgrad.convolution(src, values[1], pads_begin=1, pads_end=1, out=out, threads=2)
        assert_same_bits(np.ascontiguousarray(out), expected, "columns")
        assert_same_bits(np.ascontiguousarray(src), values[0], "operand")
        with pytest.raises(InvalidShapeError, match=r"must not overlap an operand; got memory shared with src \[D4\]"):
            convgrad.convolution(src, values[1], pads_begin=1, pads_end=1, out=both.reshape(2, 6, 10)[..., 1:6])


def test_a_question_that_is_too_hard_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "STEPS", 0)
    overlap.overlaps_itself.cache_clear()
    memory = np.zeros(100, np.float32)
    out = array_at(address_of(memory) + 200, (2, 3, 2), (20, 12, 124), memory.dtype)
    src, weights = np.ones((2, 3, 1), np.float32), np.ones((1, 1, 2), np.float32)
    hint = r"which is too hard to decide\. Use a contiguous array \[D4\]"
    with pytest.raises(InvalidShapeError, match=rf"out must not overlap itself; got shape .*, {hint}"):
        convgrad.convolution(src, weights, out=out)
    strides = (48, 16, 4)
    out, src = (array_at(address_of(memory) + at, (2, 3, n), strides, memory.dtype) for at, n in ((8, 2), (0, 1)))
    with pytest.raises(InvalidShapeError, match=rf"out must not overlap an operand; got memory near src, {hint}"):
        convgrad.convolution(src, weights, out=out)
    tensors = LogicalTensor(0, "f32", (2, 3, 1)), LogicalTensor(1, "f32", (1, 1, 2))
    made = LogicalTensor(2, "f32", (2, 3, 2), (5, 3, 31))
    graph = Graph([Op(0, "Convolution", tensors, (made,), {"strides": [1], "dilations": [1]})])
    with pytest.raises(GraphError, match=r"must not overlap itself; tensor 2: .*, which is too hard to decide"):
        graph.finalize()
    monkeypatch.undo()
    overlap.overlaps_itself.cache_clear()
    graph.finalize()
