"""What is refused of dask arrays: when a graph is built, where that can be seen, and what a worker finds."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

da = pytest.importorskip("dask.array")

import dask  # noqa: E402

import convgrad  # noqa: E402
import convgrad.dask as scattered  # noqa: E402
from convgrad.spec.rules import RULES  # noqa: E402

F32 = np.float32
X = da.zeros((8, 9, 9, 4), dtype=F32, chunks=(3, 4, -1, -1))
W = np.zeros((3, 3, 4, 6), F32)


class OnADevice:
    """An array of blocks that lie elsewhere, as Dask has it of another library."""

    __module__ = "elsewhere.core"
    dtype, shape, ndim = np.dtype(F32), (0, 0, 0, 0), 4


class Future:
    """What a client gives, of whose package the first name is enough: it need not be there."""

    __module__ = "distributed.client"


@pytest.mark.parametrize("chunks", [None, 4])
def test_an_object_of_xarray_is_named(chunks: int | None) -> None:
    xarray = pytest.importorskip("xarray")
    src = xarray.DataArray(np.zeros((8, 9, 9, 4), F32)).chunk(chunks or {})
    src = src if chunks else src.compute()
    words = r"src must be a dask array; got xarray's {}. Use the .data of a DataArray \[T1\]"
    for value in (src, src.variable, src.to_dataset(name="src")):
        with pytest.raises(convgrad.InvalidDataTypeError, match=words.format(type(value).__name__)):
            scattered.convolution(value, da.from_array(W))
    assert scattered.convolution(src.data, da.from_array(W)).shape == (8, 7, 7, 6)


def with_meta(meta: Any) -> Any:
    array = da.zeros((8, 9, 9, 4), dtype=F32)
    array._meta = meta
    return array


def unknown() -> Any:
    flat = da.zeros(8, chunks=3)
    return da.zeros((8, 9, 9, 4), dtype=F32, chunks=(3, -1, -1, -1))[flat == 0]


REFUSED: dict[str, tuple[str, Callable[[], Any], str]] = {
    "NumPy's arrays alone": ("T1", lambda: scattered.convolution(np.zeros((1, 9, 9, 4), F32), W),
        "Convolution: one operand must be a dask array; got src a ndarray, weights a ndarray. Use convgrad.run"),
    "no array": ("T1", lambda: scattered.convolution(None, W), "src must be an array; got None"),
    "another collection": ("T1", lambda: scattered.bias_add(dask.delayed(W), W),
        "src must be a dask array; got Dask's Delayed"),
    "a future": ("T1", lambda: scattered.bias_add(Future(), W), "got Dask's Future. Use its .data, to_dask_array"),
    "integers": ("T1", lambda: scattered.bias_add_backward(X.astype("i4")), "diff_dst must be an array of f32"),
    "masks": ("T1", lambda: scattered.bias_add_backward(da.ma.masked_array(X)), "must be a plain array; got a masked"),
    "two types": ("T2", lambda: scattered.convolution(X, W.astype("f2")), "got src f32, weights f16"),
    "a lazy shape": ("T3", lambda: scattered.convolution_backward_weights(X, X, da.ones(4, dtype=int)),
        "weights_shape must be known before anything is computed; got a dask array. Use a tuple"),
    "unknown chunks": ("G9", lambda: scattered.convolution(unknown(), W),
        "src must have chunks of known sizes; got shape (nan, 9, 9, 4). Use src.compute_chunk_sizes()"),
    "another device": ("D1", lambda: scattered.convolution(with_meta(OnADevice()), W),
        "src must have NumPy arrays as blocks, in CPU memory; got elsewhere.OnADevice"),
    "f64": ("P2", lambda: scattered.convolution(X.astype("f8"), W.astype("f8")), "f64 arrays cannot"),
    "threads": ("D6", lambda: scattered.convolution(X, W, threads=0), "threads must be a positive integer; got 0"),
    "channels": ("G4", lambda: scattered.convolution(X, W[..., :3, :]), "channels"),
    "an attribute": ("A1", lambda: scattered.run("BiasAddBackward", X, strides=1), "strides"),
    "too many operands": ("O2", lambda: scattered.run("BiasAddBackward", X, X), "it takes the operands diff_dst"),
    "a shape of a block": ("D7", lambda: scattered.bias_add_backward(X.map_blocks(
        lambda block: block[:, :2], dtype=F32, chunks=X.chunks, meta=X._meta)).compute(),
        "BiasAddBackward: a block of diff_dst must be 2x4x9x4, as its array's chunks say; got 2x2x9x4"),
    "a shape of a block that is cut": ("D7", lambda: scattered.convolution(X.map_blocks(
        lambda block: np.repeat(block, 2, axis=1), dtype=F32, chunks=X.chunks, meta=X._meta), W).compute(),
        "Convolution: a block of src must be"),
    "a type of a block": ("T6", lambda: scattered.convolution(X.map_blocks(
        lambda block: block.astype("f2"), dtype=F32, meta=X._meta), W).compute(),
        "Convolution: a block of src must be f32, as its array's dtype says; got f16"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_what_would_do(name: str) -> None:
    rule, call, words = REFUSED[name]
    with dask.config.set(scheduler="synchronous"), pytest.raises(convgrad.ConvgradError) as caught:
        call()
    message = str(caught.value)
    assert message.endswith(f" [{rule}]"), message
    assert words in message, message
    assert type(caught.value) is RULES[rule].error
    assert "\n" not in message


def test_a_worker_without_kernels_refuses_rather_than_add_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forward, too: a result must not tell who computed it. To add a bias there is no order."""
    x = X.rechunk(-1)
    lazy = scattered.bias_add_backward(x), scattered.convolution(x, W)
    added = scattered.bias_add(x, np.ones(4, F32))
    monkeypatch.setenv("CONVGRAD_MAX_ISA", "numpy")
    for one in lazy:
        with pytest.raises(convgrad.UnsupportedError, match=r"must have an order.*\[P2\]$"):
            one.compute(scheduler="synchronous")
    with pytest.raises(convgrad.UnsupportedError, match=r"\[P2\]$"):
        scattered.convolution(x, W)
    assert (added.compute(scheduler="synchronous") == 1).all()


def test_output_padding_that_is_ignored_warns_where_it_was_said() -> None:
    with pytest.warns(UserWarning, match=r"output_padding \[0, 0\] is ignored") as caught:
        scattered.convolution_backward_data(X, W.swapaxes(2, 3), (8, 20, 20, 6), strides=2, output_padding=0)
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.long
def test_arrays_that_are_expressions_are_refused_at_once() -> None:
    """They are Dask's experiment, off where nobody asks for it."""
    environment = os.environ | {"DASK_ARRAY__QUERY_PLANNING": "True"}
    command = [sys.executable, "-c", "import convgrad.dask"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stderr.splitlines()[-1].startswith("ImportError: convgrad.dask needs arrays with task graphs; got")
