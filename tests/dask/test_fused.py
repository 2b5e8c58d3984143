"""Chunks that are pieces are read by the task that needs them: one task each, and nothing of them is moved."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

pytest.importorskip("dask.array")

import dask.array as da
from dask.utils import key_split

import convgrad
import convgrad.dask
from tests.support.helpers import assert_same_bits

Array = np.ndarray
WEIGHTS = "ConvolutionBackwardWeights"
SAME = {"auto_pad": "same_upper"}


def numbers(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).standard_normal(shape, np.float32)


def lazily(array: Array, *chunks: int) -> Any:
    class Read:
        """Not an array, so that Dask has a task for it."""

        shape, dtype, ndim = array.shape, array.dtype, array.ndim

        def __getitem__(self, region: Any) -> Array:
            return array[region]

    chunks = (*chunks, *[-1] * (array.ndim - len(chunks)))
    return da.from_array(Read(), chunks=chunks, meta=np.empty((0,) * array.ndim, array.dtype))


def tasks(*lazy: Any) -> Counter[str]:
    """Return how many tasks of which name Dask runs, once it has made the graph simple; arrays apart."""
    graph = lazy[0].__dask_optimize__(lazy[0].dask, lazy[0].__dask_keys__())
    return Counter(name for name in map(key_split, dict(graph)) if not name.startswith("original"))


X, Y, W = numbers(40, 9, 20, 3), numbers(40, 9, 20, 4), numbers(3, 3, 3, 4)


def test_a_piece_reads_both_its_chunks() -> None:
    lazy = convgrad.dask.convolution_backward_weights(lazily(X, 8), lazily(Y, 8), (3, 3, 3, 4), **SAME)
    assert tasks(lazy) == {f"{WEIGHTS}-part": 5, WEIGHTS: 1}
    assert_same_bits(lazy.compute(), convgrad.convolution_backward_weights(X, Y, (3, 3, 3, 4), **SAME), "weights")


@pytest.mark.parametrize(("height", "cut_out"), [(12, {"src": 4}), (10, {"src": 8, "dst": 8})])
def test_blocks_of_the_same_rows_are_read_by_one_task(height: int, cut_out: dict[str, int]) -> None:
    """Whatever the stride. Halos, and rows before a cut, which is made at multiples of 12, are cut out beside it."""
    src, dst, layer = numbers(2, 60, 40, 3), numbers(2, 30, 20, 4), {"strides": 2} | SAME
    x, y = lazily(src, 1, 2 * height), lazily(dst, 1, height)
    lazy = convgrad.dask.convolution_backward_weights(x, y, (3, 3, 3, 4), **layer)
    cuts = {f"{WEIGHTS}-read-{tensor}": n for tensor, n in cut_out.items()}
    assert tasks(lazy) == {f"{WEIGHTS}-read": 6, f"{WEIGHTS}-rows": 6, f"{WEIGHTS}-part": 2, WEIGHTS: 1} | cuts
    assert_same_bits(lazy.compute(), convgrad.convolution_backward_weights(src, dst, (3, 3, 3, 4), **layer), height)


def test_what_makes_a_block_and_what_takes_one_are_of_the_task() -> None:
    lazy = abs(convgrad.dask.convolution(lazily(X, 16) + 1, W, **SAME))
    assert tasks(lazy)["abs"] == tasks(lazy).total() - 1 == 3, "the weights are the other one"
    assert_same_bits(lazy.compute(), abs(convgrad.convolution(X + 1, W, **SAME)), "forward")


@pytest.mark.parametrize("chunk", [-1, 2])
def test_weights_that_are_computed_are_computed_once(chunk: int) -> None:
    """Not in each task with the data that they are for, as a function of blocks would be."""
    made = []
    weights = da.from_array(W, chunks=chunk).map_blocks(lambda w: made.append(w) or w, meta=W[:0, :0, :0, :0])
    lazy = convgrad.dask.convolution(lazily(X, 8), weights, **SAME)
    assert tasks(lazy)["Convolution"] == 5
    assert_same_bits(lazy.compute(scheduler="synchronous"), convgrad.convolution(X, W, **SAME), chunk)
    assert len(made) == weights.npartitions


def test_what_no_tap_meets_of_a_block_is_left_out() -> None:
    """Of 20 positions the last lies behind the last stride of 3."""
    weights = numbers(1, 1, 3, 4)
    lazy = convgrad.dask.convolution(lazily(X, 16), weights, strides=(1, 3))
    assert tasks(lazy)["Convolution"] == tasks(lazy).total() - 1 == 3
    assert_same_bits(lazy.compute(), convgrad.convolution(X, weights, strides=(1, 3)), "stride")


@pytest.mark.parametrize("chunks", [((3,) * 13 + (1,), 9), ((8,) * 5, 3), ((8, 0, 8, 24), 9)])
def test_other_chunks_have_the_same_bits(chunks: tuple[tuple[int, ...], int]) -> None:
    """Chunks of packs that are no pieces; of rows; with one that is empty."""
    images, rows = chunks
    x, y = (da.from_array(a, chunks=(images, rows, -1, -1)) for a in (X[:, :, :1], Y[:, :, :1]))
    lazy = convgrad.dask.convolution_backward_weights(x, y, (3, 1, 3, 4), **SAME)
    expected = convgrad.convolution_backward_weights(X[:, :, :1], Y[:, :, :1], (3, 1, 3, 4), **SAME)
    assert_same_bits(lazy.compute(), expected, chunks)


def test_a_block_of_another_shape_than_promised_is_refused() -> None:
    wrong = da.from_array(X, chunks=(8, -1, -1, -1)).map_blocks(lambda block: block[:, 1:], dtype=X.dtype, chunks=None)
    lazy = convgrad.dask.convolution_backward_weights(wrong, lazily(Y, 8), (3, 3, 3, 4), **SAME)
    with pytest.raises(convgrad.InvalidShapeError, match=r"a block of src must be 8x9x20x3.*got 8x8x20x3 \[D7\]$"):
        lazy.compute()
