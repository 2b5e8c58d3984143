"""What a plan says is so: what is read, how often, where is cut, and what it takes in memory."""

from __future__ import annotations

import functools
import math
import tracemalloc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convgrad import InvalidAttributeError, arrays, scale
from convgrad.functional import sums
from convgrad.scale import cut as cuts
from convgrad.scale import takes
from convgrad.scale.memory import bytes_of
from convgrad.scale.plan import Plan
from convgrad.spec.pieces import max_sums, nodes_of
from tests.scale.sources import Slices, memories
from tests.support.helpers import peak_bytes, within

Array = np.ndarray
WEIGHTS, FORWARD, DATA = "ConvolutionBackwardWeights", "Convolution", "ConvolutionBackwardData"
SAME = {"auto_pad": "same_upper"}


def zeros(shape: tuple[int, ...], chunks: Any = None) -> Slices:
    """Return a source that takes no memory."""
    return Slices(np.broadcast_to(np.float32(0), shape), chunks)


# operator, shapes, attributes, chunks of the operands
READ: dict[str, tuple[str, list[tuple[int, ...]], dict[str, Any], list[Any]]] = {
    "images": (WEIGHTS, [(40, 9, 8, 3), (40, 9, 8, 5)], {"weights_shape": (3, 3, 3, 5)} | SAME, [None, None]),
    "rows": (WEIGHTS, [(2, 61, 40, 3), (2, 31, 20, 5)], {"weights_shape": (5, 3, 3, 5), "strides": 2} | SAME,
             [None, None]),
    "rows written": (FORWARD, [(2, 61, 40, 3), (5, 3, 3, 5)], {"strides": 2} | SAME, [None, None]),
    "data": (DATA, [(3, 20, 4, 5), (5, 3, 3, 5)], {"strides": 3, "dst_shape": (3, 60, 10, 3)} | SAME, [None, None]),
    "chunks": (WEIGHTS, [(40, 20, 18, 3), (40, 20, 18, 5)], {"weights_shape": (3, 3, 3, 5)} | SAME,
               [(7, 20, 9, 3), (4, 6, 18, 5)]),
    "chunks of rows": (FORWARD, [(2, 61, 40, 3), (5, 3, 3, 5)], SAME, [(2, 8, 40, 3), None]),
}  # fmt: skip


def fetched(source: Slices, plan: Plan, at: int) -> tuple[int, int]:
    """Return the bytes that pieces fetch of a source, whole chunks where it has any; and what they fetch, once."""
    chunks = source.chunks or (1,) * len(source.shape)
    extents = [np.diff([*range(0, extent, c), extent]) for c, extent in zip(chunks, source.shape, strict=True)]
    each = 4 * functools.reduce(np.multiply.outer, extents)
    times = np.zeros_like(each)
    for slab in plan.subproblems():
        times[tuple(slice(r.start // c, -(-r.stop // c)) for r, c in zip(slab.reads[at], chunks, strict=True))] += 1
    return int((times * each).sum()), int((each * (times > 0)).sum())


@pytest.mark.parametrize("name", READ)
def test_what_is_read_and_read_again_is_what_pieces_fetch(name: str) -> None:
    operator, shapes, attributes, chunks = READ[name]
    sources = [zeros(shape, lie) for shape, lie in zip(shapes, chunks, strict=True)]
    streamed = len(sources) if operator == WEIGHTS else 1
    found = memories(operator, *sources, **attributes)
    assert len(found) > 2
    for memory in found.values():
        plan = scale.plan(operator, *sources, memory=memory, threads=1, **attributes)
        each = [fetched(source, plan, at) for at, source in enumerate(sources[:streamed])]
        kept = sum(math.prod(source.shape) * 4 for source in sources[streamed:])
        assert plan.read_bytes == sum(number for number, _ in each) + kept
        assert plan.twice_bytes == sum(number - once for number, once in each)


@pytest.mark.long
@pytest.mark.parametrize("shape", [(400_000, 4, 4, 1), (1, 4_000_000, 1)])
def test_a_plan_of_many_pieces_takes_little_memory(shape: tuple[int, ...]) -> None:
    """Pieces are counted one by one, and only the last few thousand are kept."""
    sources, kernel = [zeros(shape), zeros(shape)], (*[3] * (len(shape) - 2), 1, 1)
    call = functools.partial(scale.plan, WEIGHTS, *sources, weights_shape=kernel, memory="45kB", threads=1, **SAME)
    assert call().pieces > 15_000
    assert peak_bytes(call) < 10 << 20


def test_no_chunk_of_images_is_read_twice_where_memory_allows() -> None:
    """Of 6 images and of 4, 12 are whole chunks of both, and leaves of 5: 60 images."""
    shapes = [(240, 7, 7, 3), (240, 7, 7, 5)]
    sources = [zeros(shape, (chunk, *shape[1:])) for shape, chunk in zip(shapes, (6, 4), strict=True)]
    again = {}
    for cut, memory in memories(WEIGHTS, *sources, weights_shape=(1, 1, 3, 5)).items():
        plan = scale.plan(WEIGHTS, *sources, weights_shape=(1, 1, 3, 5), memory=memory, threads=1)
        again[cut.images] = plan.twice_bytes > 0
        whole_chunks = "5 images are a leaf of the tree, 12 a chunk", "it is one piece"
        assert again[cut.images] != plan.why.startswith(whole_chunks)
    assert again == {5: True, 10: True, 20: True, 40: True, 60: False, 120: False, 240: False}


def test_pieces_are_nodes_of_the_tree_where_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images of 7 x 7 positions: leaves of 5 images, nodes of 80."""
    monkeypatch.setattr(cuts, "GOOD_BYTES", 100 * 7 * 7 * 8 * 4)
    monkeypatch.setattr(cuts, "MAX_BYTES", 200 * 7 * 7 * 8 * 4)
    sources = [zeros((1000, 7, 7, 3)), zeros((1000, 7, 7, 5))]
    found = memories(WEIGHTS, *sources, weights_shape=(1, 1, 3, 5))
    assert [cut.images for cut in found] == [5, 10, 20, 40, 80]


def test_images_that_lie_in_one_chunk_are_not_cut_into_rows() -> None:
    """Each piece would read all of it."""
    shapes = [(2, 400, 400, 30), (2, 400, 400, 50)]
    options: dict[str, Any] = {"weights_shape": (1, 1, 30, 50), "memory": "1GB"}
    assert scale.plan(WEIGHTS, *map(zeros, shapes), **options).cut.rows == 256
    sources = [zeros(shape, (1, *shape[1:])) for shape in shapes]
    assert scale.plan(WEIGHTS, *sources, **options).cut.rows == 400


def test_the_least_of_a_very_long_image_is_known_at_once() -> None:
    source, weights = zeros((1, 10**9, 4)), np.ones((3, 4, 4), np.float32)
    out = np.broadcast_to(np.float32(0), (1, 10**9, 4))
    with within(5.0), pytest.raises(InvalidAttributeError, match="a piece of 1 row of an image, which takes"):
        scale.plan(FORWARD, source, weights, memory=1, out=Slices(out), **SAME)


def test_a_plan_says_what_run_does() -> None:
    src, diff_dst = zeros((64, 300, 300, 4), (8, 300, 300, 4)), zeros((64, 300, 300, 8))
    plan = scale.plan(WEIGHTS, src, diff_dst, weights_shape=(3, 3, 4, 8), memory="300MB", **SAME)
    text = str(plan).splitlines()
    assert text[0] == "ConvolutionBackwardWeights f32, in 8 pieces of 8 images"
    assert text[1] == "  src 64x300x300x4, 92.2 MB, in chunks of 8x300x300x4: read piece by piece"
    assert text[2] == "  diff_dst 64x300x300x8, 184 MB: read piece by piece"
    assert text[3] == "  reads 276 MB, of which 0 B again"
    assert text[4].startswith(
        f"  takes {plan.peak_bytes / 1e6:.3g} MB of 300 MB: 2 pieces of operands 69.1 MB, scratch "
    )
    assert text[5] == "  why: 1 image is a leaf of the tree, 8 a chunk"
    many = scale.plan(WEIGHTS, zeros((200, 100, 100, 4)), zeros((200, 100, 100, 8)), weights_shape=(3, 3, 4, 8), **SAME)
    assert many.why == "16 images are a node of the tree; as many of them as suit a cache"
    assert plan == scale.plan(WEIGHTS, src, diff_dst, weights_shape=(3, 3, 4, 8), memory=300_000_000, **SAME)


def test_what_is_alive_is_what_the_plan_says(tmp_path: Path) -> None:
    """NumPy tells tracemalloc of all arrays; how much there is beside them, a small call says."""
    src, diff_dst = (np.memmap(tmp_path / str(n), np.float32, "w+", shape=(64, 64, 64, 16)) for n in range(2))
    options: dict[str, Any] = {"weights_shape": (3, 3, 16, 16), "threads": 1} | SAME

    def peak(memory: str, images: int) -> tuple[int, Plan]:
        given = src[:images], diff_dst[:images]
        scale.run(WEIGHTS, *given, memory=memory, **options)  # what is kept of a call of this kind is not of this one
        tracemalloc.start()
        scale.run(WEIGHTS, *given, memory=memory, **options)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most, scale.plan(WEIGHTS, *given, memory=memory, **options)

    words = peak("100MB", 1)
    for memory in ("17MB", "5MB", "2MB"):
        most, plan = peak(memory, 64)
        assert most <= plan.peak_bytes + words[0]
        assert plan.peak_bytes <= bytes_of(memory, WEIGHTS)


@pytest.mark.parametrize(("batch", "extent"), [(273, 257), (17, 1537)])
def test_the_sums_that_are_alive_are_those_of_the_plan(
    batch: int, extent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By images, which make nodes of three levels of the batch's tree, and by rows."""
    given, out = zeros((batch, extent, 2)), np.empty((1, 2, 2), np.float32)
    options: dict[str, Any] = {"weights_shape": out.shape, "out": out}
    alive: list[weakref.ref[Array]] = []
    most = [0]

    def counted(make: Callable[..., Array]) -> Callable[..., Array]:
        def made(*arguments: Any) -> Array:
            array = make(*arguments)
            alive[:] = [one for one in (*alive, weakref.ref(array)) if one() is not None]
            most[0] = max(most[0], len({id(one()) for one in alive}))
            return array

        return made

    monkeypatch.setattr(arrays, "empty", counted(arrays.empty))
    monkeypatch.setattr(sums, "_ours", counted(sums._ours))
    found = memories(WEIGHTS, given, given, **options)
    assert {cut.rows is None for cut in found} == {True, False}
    for cut, memory in found.items():
        most[0] = 0
        plan = scale.plan(WEIGHTS, given, given, memory=memory, threads=1, **options)
        scale.run(WEIGHTS, given, given, memory=memory, threads=1, **options)
        assert 0 <= dict(plan.takes)["sums"] // out.nbytes - most[0] <= 1 + (cut.rows is not None), cut


def test_scratch_is_that_of_the_last_piece_too_and_a_result_that_lies_otherwise_is_copied() -> None:
    """Few images may take other kernels than many."""
    src = np.broadcast_to(np.float32(0), (503, 64, 7, 7))
    options: dict[str, Any] = {"weights_shape": (64, 64, 3, 3), "data_format": "NCX", "weights_format": "OIX"} | SAME
    ways = {}
    for out in (np.empty((64, 64, 3, 3), np.float32), np.empty((3, 3, 64, 64), np.float32).T):
        given = {"out": out, "threads": 1} | options
        found = memories(WEIGHTS, src, src, out=out, **options)
        images = max(cut.images for cut in found if cut.images < len(src))
        plan = scale.plan(WEIGHTS, src, src, memory=found[cuts.Cut(images)], **given)
        ways[out.flags.c_contiguous] = dict(plan.takes)
        rest = len(src) % images
        last = scale.plan(WEIGHTS, src[-rest:], src[-rest:], **given)
        assert dict(plan.takes)["scratch"] >= dict(last.takes)["scratch"]
    assert [ways[dense]["what is written"] for dense in (True, False)] == [0, 64 * 64 * 9 * 4]


@pytest.mark.parametrize("size", [1, 3, 5, 16, 17, 48, 200])
def test_the_sums_of_many_pieces_are_known_from_the_first(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for extent in (1, 15, 17, 256, 300, 4097, 5000):
        exact = max_sums(nodes_of(run.start, run.stop) for run in cuts.EvenRanges(extent, size))
        for looked in (18, 512):
            monkeypatch.setattr(takes, "LOOKED_AT", looked)
            assert (
                0 <= takes.alive(cuts.EvenRanges(extent, size), lambda run: run) - exact <= 2 * (extent > looked * size)
            )


@pytest.mark.parametrize("more", [0, 1])
def test_an_image_that_is_no_good_piece_is_cut_in_rows_also_where_memory_would_hold_it(more: int) -> None:
    plane = (128, 128, 16)
    volume = zeros((1, cuts.MAX_BYTES // (2 * 4 * math.prod(plane)) + more, *plane))
    plan = scale.plan(WEIGHTS, volume, volume, weights_shape=(3, 3, 3, 16, 16), memory="1GB", **SAME)
    assert (plan.pieces > 1) == bool(more), "else all is read first, and only then computed"
