"""Operators on dask arrays have the bits of the plain call, whatever the chunks; what is built of them before."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from itertools import islice, product
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

da = pytest.importorskip("dask.array")

import dask  # noqa: E402
from dask.sizeof import sizeof  # noqa: E402
from dask.utils import key_split  # noqa: E402

import convgrad  # noqa: E402
import convgrad.dask as scattered  # noqa: E402
from campaigns.cut import cases_of  # noqa: E402
from convgrad import engines  # noqa: E402
from convgrad.functional.call import prepare  # noqa: E402
from convgrad.functional.partials import Partials  # noqa: E402
from convgrad.functional.rows import Rows  # noqa: E402
from convgrad.spec.operators import OPERATORS, Operator  # noqa: E402
from tests.support.classes import ALL_TYPES  # noqa: E402
from tests.support.helpers import FUNCTIONS, Case, assert_same_bits, operands_of, random_case  # noqa: E402

Array = np.ndarray
F32 = np.float32
SAME = {"auto_pad": "same_upper"}


@pytest.fixture(autouse=True)
def _in_this_thread() -> Any:
    with dask.config.set(scheduler="synchronous"):
        yield


def numbers(*shape: int, dtype: Any = F32) -> Array:
    return np.random.default_rng(shape).standard_normal(shape).astype(dtype)


def any_chunks(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return chunks of a shape, few and many, some of no extent."""
    found = []
    for extent in shape:
        at = np.sort(rng.integers(0, extent + 1, int(rng.integers(0, 4))))
        found.append(tuple(np.diff([0, *at, extent]).tolist()))
    return tuple(found)


def chunked(rng: np.random.Generator, case: Case, operands: tuple[Any, ...]) -> list[Any]:
    """Return the operands of a case as dask arrays, some in foreign byte order, but shapes and often one of several."""
    operands = tuple(
        value.astype(value.dtype.newbyteorder())
        if getattr(value, "dtype", np.dtype(int)).kind == "f" and rng.random() < 0.2
        else value
        for value in operands
    )
    arrays = [n for n, port in enumerate(case.op.operands[: len(operands)]) if not port.is_shape]
    kept = int(rng.choice(arrays)) if len(arrays) > 1 and rng.random() < 0.3 else None
    return [
        da.from_array(value, chunks=any_chunks(rng, value.shape)) if n in arrays and n != kept else value
        for n, value in enumerate(operands)
    ]


# -- bits --------------------------------------------------------------------------------------------------------------


@pytest.mark.every(2)
@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 200), marks=pytest.mark.long)], ids=["few", "many"])
@pytest.mark.parametrize("op", OPERATORS, ids=[f"{op.name} of {len(op.operands)}" for op in OPERATORS])
def test_any_call_in_any_chunks_has_the_bits_of_the_plain_one(op: Operator, seeds: range) -> None:
    for seed in seeds:
        rng = np.random.default_rng(seed)
        hold(random_case(rng, op), rng)


def hold(case: Case, rng: np.random.Generator) -> None:
    """Hold what Dask computes of a case in any chunks against the plain call: f64 is refused."""
    name, operands = case.op.name, operands_of(case, "normal", int(rng.integers(1 << 30)))
    given = chunked(rng, case, operands)

    def lazily() -> Any:
        return scattered.run(name, *given, dtype=case.dtype, **case.attributes)

    if case.format.name == "f64" and case.op.solves_for != "bias_add":
        with pytest.raises(convgrad.UnsupportedError, match=r"f64 arrays cannot be computed in pieces.*\[P2\]$"):
            lazily()
        return
    expected = convgrad.run(name, *operands, dtype=case.dtype, **case.attributes)
    lazy = lazily()
    assert (lazy.shape, lazy.dtype, lazy._meta.dtype) == (expected.shape, expected.dtype, expected.dtype)
    assert [sum(axis) for axis in lazy.chunks] == list(expected.shape)
    first = lazy.blocks[(0,) * lazy.ndim].compute()
    assert first.shape == tuple(axis[0] for axis in lazy.chunks)
    assert_same_bits(lazy.compute(), expected, (case, [one.chunks for one in given if isinstance(one, da.Array)]))


@pytest.mark.parametrize(
    ("seed", "cases"), [(0, 3), *(pytest.param(seed, 40, marks=pytest.mark.long) for seed in range(1, 9))]
)
def test_batches_of_every_class_in_any_chunks(seed: int, cases: int) -> None:
    """Weight and bias gradients of large batches and images."""
    rng = np.random.default_rng([17, seed])
    operand, output = (str(rng.choice(ALL_TYPES)) for _ in range(2))
    for _, case in islice(cases_of(rng, operand, output), cases):
        hold(case, rng)


@pytest.mark.parametrize("chunks", [(1, -1, -1), (2, 256, -1), (1, 100, 2), (3, 512, -1)])
def test_chunks_in_the_other_byte_order(chunks: tuple[int, ...]) -> None:
    src, dst, weights = numbers(3, 700, 3), numbers(3, 700, 4), numbers(3, 3, 4)
    given = {id(array): da.from_array(array.astype(">f4"), chunks=chunks) for array in (src, dst, weights)}
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("convolution", (src, weights), SAME),
        ("convolution_backward_data", (dst, weights, src.shape), SAME),
        ("convolution_backward_weights", (src, dst, weights.shape), SAME),
        ("bias_add_backward", (dst,), {}),
    ]
    for name, operands, attributes in calls:
        lazy = getattr(scattered, name)(*[given.get(id(one), one) for one in operands], **attributes)
        assert_same_bits(lazy.compute(), getattr(convgrad, name)(*operands, **attributes), name)


@pytest.mark.parametrize("activation", [None, "relu"])
@pytest.mark.parametrize("name", ["convolution", "conv_transpose", "bias_add"])
@pytest.mark.parametrize("shape", [(4, 0, 3), (0, 5, 3), (0, 0, 3)])
def test_empty_operands_give_the_bits_of_the_plain_call(name: str, shape: tuple[int, ...], activation: Any) -> None:
    """A bias is added also to sums without terms."""
    pads = {"pads_begin": 2, "pads_end": 3} if name == "convolution" else {}
    weights = {"bias_add": ()}.get(name, (np.ones((2, 3, 3), F32),))
    data, bias, options = np.ones(shape, F32), np.array([1, -2, 0.3], F32), pads | {"activation": activation}
    for dtype, given in product(("f32", "bf16"), (bias, da.from_array(bias, chunks=2))):
        expected = getattr(convgrad, name)(data, *weights, bias, dtype=dtype, **options)
        lazy = getattr(scattered, name)(da.from_array(data, chunks=2), *weights, given, dtype=dtype, **options)
        assert (lazy.shape, lazy.dtype) == (expected.shape, expected.dtype)
        assert_same_bits(lazy.compute(), expected, (dtype, type(given)))


@pytest.mark.parametrize("extents", [(0,), (0, 5), (5, 0)])
def test_an_empty_data_gradient_of_operands_that_are_not_empty(extents: tuple[int, ...]) -> None:
    """All positions of diff_dst are padding."""
    shape, layer = (3, *extents, 2), {"pads_begin": 2, "pads_end": 1}
    weights, axes = np.ones((*[1] * len(extents), 2, 4), F32), [extent + 3 for extent in extents]
    diff_dst = da.ones((3, *axes, 4), dtype="f4", chunks=2)
    lazy = scattered.convolution_backward_data(diff_dst, weights, shape, **layer)
    expected = convgrad.convolution_backward_data(diff_dst.compute(), weights, shape, **layer)
    assert (lazy.shape, lazy.dtype, lazy.compute().shape) == (shape, F32, expected.shape)


CHUNKS = (1, 3, 7, 16, 64)
BATCHES = {
    "images": ((70, 17, 17, 4), (70, 17, 17, 6), F32, {}),
    "packs": ((93, 7, 7, 4), (93, 7, 7, 6), F32, {}),
    "bf16": ((70, 4, 17, 17), (70, 6, 17, 17), ml_dtypes.bfloat16, {"data_format": "NCX", "dtype": "f32"}),
}


@pytest.mark.parametrize("name", BATCHES)
def test_chunks_of_images_are_regrouped_at_leaves(name: str) -> None:
    x, y, dtype, more = BATCHES[name]
    src, diff_dst = numbers(*x, dtype=dtype), numbers(*y, dtype=dtype)
    expected = convgrad.convolution_backward_weights(src, diff_dst, (3, 3, 4, 6), **SAME, **more)
    for images in CHUNKS:
        lazy = scattered.convolution_backward_weights(
            da.from_array(src, chunks=(images, -1, -1, -1)),
            da.from_array(diff_dst, chunks=(images + images % 5, -1, -1, -1)),
            (3, 3, 4, 6),
            **SAME,
            **more,
        )
        assert_same_bits(lazy.compute(), expected, (name, images))


ROWED: dict[str, tuple[str, list[tuple[int, ...]], dict[str, Any], tuple[int, ...]]] = {
    "rows": ("ConvolutionBackwardWeights", [(2, 40, 30, 4), (2, 40, 30, 6)], {"weights_shape": (3, 3, 4, 6)} | SAME,
             (1, 5, 40)),
    "strides": ("ConvolutionBackwardWeights", [(2, 81, 60, 4), (2, 40, 30, 6)],
                {"weights_shape": (3, 3, 4, 6), "strides": 2, "pads_end": (0, 1)}, (1, 13)),
    "long rows": ("ConvolutionBackwardWeights", [(1, 2000, 2), (1, 2000, 3)], {"weights_shape": (5, 2, 3)} | SAME,
                  (100, 600)),
    "transposed": ("ConvTransposeBackwardWeights", [(2, 20, 20, 4), (2, 40, 40, 6)],
                   {"weights_shape": (2, 2, 6, 4), "strides": 2}, (3, 7)),
    "channels first": ("ConvolutionBackwardWeights", [(2, 4, 40, 30), (2, 6, 40, 30)],
                       {"weights_shape": (3, 3, 4, 6), "data_format": "NCX"} | SAME, (7,)),
    "no place": ("ConvolutionBackwardWeights", [(1, 9, 6, 64, 2), (1, 9, 6, 64, 3)],
                 {"weights_shape": (1, 1, 1, 2, 3)}, (2,)),
    "bias": ("BiasAddBackward", [(3, 600, 5)], {}, (70, 256)),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWED)
def test_rows_of_images_are_joined_to_the_bits_of_the_whole(name: str) -> None:
    operator, shapes, attributes, heights = ROWED[name]
    operands = [numbers(*shape) for shape in shapes]
    expected = prepare(operator, tuple(operands), attributes, lenient=True).execute()
    axis = 2 if attributes.get("data_format") == "NCX" else 1
    for height in heights:
        chunks: list[Any] = ["auto"] * len(shapes[0])
        chunks[0], chunks[axis] = 2, height
        lazy = scattered.run(operator, *(da.from_array(a, chunks=tuple(chunks)) for a in operands), **attributes)
        kinds = {key_split(key) for key in dict(lazy.dask)}
        label = operator.removesuffix("-1")
        assert (f"{label}-rows" in kinds) == (name != "no place" and height < shapes[-1][axis]), (name, height)
        assert_same_bits(lazy.compute(), expected, (name, height))


def test_chunks_of_a_result_follow_those_of_its_data() -> None:
    """Of layers that keep extents they are the same, so that one layer after the other moves halos alone."""
    data = da.zeros((5, 30, 20, 8), dtype=F32, chunks=((2, 3), (10, 11, 9), (20,), (4, 4)))
    weights = np.zeros((3, 3, 8, 6), F32)
    assert scattered.convolution(data, weights, **SAME).chunks == (*data.chunks[:3], (6,))
    half = scattered.convolution(data, weights, strides=2, **SAME)
    assert half.chunks == ((2, 3), (5, 5, 5), (10,), (6,))
    back = scattered.convolution_backward_data(half, weights, data.shape, strides=2, **SAME)
    assert back.chunks == ((2, 3), (11, 10, 9), (20,), (8,))


# -- what is built -----------------------------------------------------------------------------------------------------


def test_a_halo_is_cut_beside_its_block_and_moves_alone() -> None:
    data = da.zeros((2, 30, 20, 8), dtype=F32, chunks=(1, 10, -1, -1))
    lazy = scattered.convolution(data, np.zeros((3, 3, 8, 6), F32), **SAME)
    graph = dict(lazy.dask)
    moved = [task for key, task in graph.items() if key_split(key) == "Convolution-read-src"]
    assert len(moved) == 2 * 4  # of each image two borders, a row of either side
    cut = [task.func(np.zeros((1, 10, 20, 8), F32)) for task in moved]
    assert {one.shape for one in cut} == {(1, 1, 20, 8)}
    assert all(one.base is None for one in cut), "a view would hold the block"
    assert sum(key_split(key) == "Convolution" for key in graph) == 2 * 3


def test_names_tell_what_is_asked_and_nothing_else() -> None:
    x, y = (da.from_array(numbers(40, 17, 17, 4), chunks=(7, -1, -1, -1)) for _ in range(2))

    def name(src: Any, **more: Any) -> str:
        return str(scattered.convolution_backward_weights(src, y, (3, 3, 4, 4), **(SAME | more)).name)

    assert name(x) == name(x)
    others = [name(x[::-1]), name(x, dtype="bf16"), name(x, auto_pad="same_upper", pads_end=1), name(x, threads=2)]
    assert others.count(name(x)) == 1  # pads beside auto_pad are ignored
    assert len({name(x), name(x, auto_pad="same_lower"), *others}) == 4, "a kernel of 3 has the same pads either way"
    assert {key_split(key) for key in dict(scattered.bias_add_backward(y).dask)} >= {
        "BiasAddBackward",
        "BiasAddBackward-part",
    }


@pytest.mark.parametrize("threads", [1, 3])
def test_a_task_computes_with_as_many_threads_as_asked_for(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one where nothing is said: workers run several tasks."""
    seen = []
    execute = engines.execute
    monkeypatch.setattr(engines, "execute", lambda *args: (seen.append(args[3]), execute(*args)))
    x = da.from_array(numbers(3, 40, 30, 4), chunks=(2, 20, -1, -1))
    y, w = x[:, :20], numbers(3, 3, 4, 4)
    more = {} if threads == 1 else {"threads": threads}
    for lazy in (
        scattered.bias_add_backward(x, **more),
        scattered.convolution_backward_weights(y, y, (3, 3, 4, 4), **SAME, **more),
        scattered.convolution(y, w, **SAME, **more),
    ):
        seen.clear()
        lazy.compute()
        assert set(seen) == {threads}


def values_of(lazy: Any, kind: str) -> list[Any]:
    """Return the values of a kind of task."""
    graph = dict(lazy.dask)
    return list(dask.get(graph, [key for key in graph if key_split(key) == kind]))


def test_partial_sums_are_sent_without_a_copy_and_dask_knows_their_size() -> None:
    x = da.from_array(numbers(3, 40, 30, 4), chunks=(1, 10, -1, -1))
    lazy = scattered.convolution_backward_weights(x, x, (3, 3, 4, 4), **SAME)
    parts, rows = values_of(lazy, "ConvolutionBackwardWeights-part"), values_of(lazy, "ConvolutionBackwardWeights-rows")
    rows = [one for some in rows for one in some]
    assert (len(parts), len(rows)) == (3, 9 + 3)
    for value in (*parts, *rows):
        assert isinstance(value, Partials | Rows)
        assert sizeof(value) > sum(array.nbytes for array in value.sums) > 0
        buffers: list[Any] = []
        rest = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        assert [memoryview(buffer).nbytes for buffer in buffers] == [array.nbytes for array in value.sums]
        assert len(rest) < 2000
        again = pickle.loads(rest, buffers=buffers)
        assert all(np.shares_memory(a, b) for a, b in zip(again.sums, value.sums, strict=True))


def test_a_graph_of_many_chunks_is_small() -> None:
    x = da.zeros((2_000, 56, 56, 64), dtype=F32, chunks=(1, -1, -1, -1))
    lazy = scattered.convolution_backward_weights(x, x, (3, 3, 64, 64), **SAME)
    *_, pieces, sums = lazy.dask.layers.values()
    assert (len(pieces), len(sums)) == (2_000, 125 + 8 + 1)
    assert max(len(task.args) for task in sums.values()) == 16
    assert len(pickle.dumps([pieces, dict(sums)])) < 600 * len(pieces)


# -- functions, operands, errors ---------------------------------------------------------------------------------------

LAYER = {"auto_pad": "same_upper", "threads": 2}
NAMED: dict[str, Callable[[Any, Any, Any], tuple[Any, ...]]] = {
    "Convolution": lambda x, w, b: (x, w, b),
    "ConvolutionBackwardData": lambda x, w, b: (x, w, (4, 9, 9, 3)),
    "ConvolutionBackwardWeights": lambda x, w, b: (x, x, (3, 3, 3, 3)),
    "ConvTranspose": lambda x, w, b: (x, w, b),
    "ConvTransposeBackwardData": lambda x, w, b: (x, w),
    "ConvTransposeBackwardWeights": lambda x, w, b: (x, x, (3, 3, 3, 3)),
    "BiasAdd": lambda x, w, b: (x, b),
    "BiasAddBackward": lambda x, w, b: (x,),
}


@pytest.mark.every(3)
@pytest.mark.parametrize("name", NAMED)
def test_functions_by_name(name: str) -> None:
    plain, lazily = FUNCTIONS[name], getattr(scattered, FUNCTIONS[name].__name__)
    x, w, b = numbers(4, 9, 9, 3), numbers(3, 3, 3, 3), numbers(3)
    options = LAYER if "Bias" not in name else {"threads": 2}
    expected = plain(*NAMED[name](x, w, b), dtype="f16", **options)
    for weights in (w, da.from_array(w, chunks=2)):
        got = lazily(*NAMED[name](da.from_array(x, chunks=2), weights, b), dtype="f16", **options)
        assert_same_bits(got.compute(), expected, name)


def test_data_of_numpy_beside_a_dask_array() -> None:
    x, w = numbers(40, 9, 9, 3), numbers(3, 3, 3, 3)
    lazy = scattered.convolution_backward_weights(x, da.from_array(x, chunks=(10, -1, -1, -1)), (3, 3, 3, 3), **SAME)
    assert_same_bits(lazy.compute(), convgrad.convolution_backward_weights(x, x, (3, 3, 3, 3), **SAME), "one of two")
    lazy = scattered.convolution(x, da.from_array(w, chunks=2), **SAME)
    assert_same_bits(lazy.compute(), convgrad.convolution(x, w, **SAME), "weights alone")


@pytest.mark.parametrize("scheduler", ["threads", pytest.param("processes", marks=pytest.mark.long)])
def test_other_schedulers(scheduler: str) -> None:
    x = numbers(40, 9, 9, 3)
    lazy = scattered.bias_add_backward(da.from_array(x, chunks=(7, -1, -1, -1)))
    assert_same_bits(lazy.compute(scheduler=scheduler, num_workers=2), convgrad.bias_add_backward(x), scheduler)


def test_from_zarr_to_zarr(tmp_path: Path) -> None:
    """A result's chunks are those of its data, where the layer keeps extents; bf16 goes as the bits of u2."""
    zarr = pytest.importorskip("zarr")
    x, w = numbers(6, 30, 20, 4), numbers(3, 3, 4, 4)
    zarr.create_array(tmp_path / "src", shape=x.shape, dtype="f4", chunks=(4, 12, 20, 4))[...] = x
    data = da.from_zarr(tmp_path / "src")
    scattered.convolution(data, w, **SAME).to_zarr(tmp_path / "dst")
    stored = zarr.open_array(tmp_path / "dst", mode="r")
    assert stored.chunks == data.chunksize == (4, 12, 20, 4)
    assert_same_bits(np.asarray(stored[...]), convgrad.convolution(x, w, **SAME), "dst")
    narrow = data.astype(ml_dtypes.bfloat16)
    narrow.view("u2").to_zarr(tmp_path / "narrow")
    lazy = scattered.bias_add_backward(da.from_zarr(tmp_path / "narrow").view(ml_dtypes.bfloat16))
    assert_same_bits(lazy.compute(), convgrad.bias_add_backward(x.astype(ml_dtypes.bfloat16)), "bf16")
