"""Calls in pieces have the bits of the plain call: any operator, memory, source, and whatever they are written to."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import convgrad
from convgrad import InvalidDataTypeError, scale
from convgrad.functional.call import prepare
from convgrad.spec.operators import OPERATORS
from tests.scale.sources import Slices, least_memory, memories
from tests.support.helpers import Case, assert_same_bits, random_case
from tests.support.helpers import operands_of as operands_of_case
from tests.support.tiers import tiers

Array = np.ndarray
F32, BF16 = np.float32, ml_dtypes.bfloat16


SAME = {"auto_pad": "same_upper"}
NCX = {"data_format": "NCX", "weights_format": "OIX"}

# name: operator, type, shapes of the operands, attributes
LAYERS: dict[str, tuple[str, Any, list[tuple[int, ...]], dict[str, Any]]] = {
    "weights": ("ConvolutionBackwardWeights", F32, [(19, 20, 17, 3), (19, 20, 17, 5)],
                {"weights_shape": (3, 3, 3, 5)} | SAME),
    "weights, packs": ("ConvolutionBackwardWeights", BF16, [(93, 7, 7, 4), (93, 4, 4, 6)],
                       {"weights_shape": (3, 3, 4, 6), "strides": 2} | SAME),
    "weights, channels first": ("ConvolutionBackwardWeights", np.float16, [(5, 6, 18, 18), (5, 6, 18, 18)],
                                {"weights_shape": (6, 1, 3, 3), "groups": 6} | SAME | NCX),
    "weights, remainder": ("ConvolutionBackwardWeights", F32, [(5, 41, 40, 3), (5, 13, 20, 5)],
                           {"weights_shape": (3, 1, 3, 5), "strides": (3, 2)}),
    "weights, transposed": ("ConvTransposeBackwardWeights", F32, [(3, 18, 17, 4), (3, 36, 34, 3)],
                            {"weights_shape": (2, 2, 3, 4), "strides": 2}),
    "weights, one axis": ("ConvolutionBackwardWeights", F32, [(2, 1500, 3), (2, 1500, 5)],
                          {"weights_shape": (5, 3, 5)} | SAME),
    "weights, an older name": ("ConvolutionBackpropFilters-1", F32, [(40, 9, 4), (40, 9, 4)],
                               {"filter_shape": (1, 4, 4)}),
    "bias": ("BiasAddBackward", BF16, [(19, 9, 33, 2)], {}),
    "forward": ("Convolution", F32, [(9, 12, 11, 3), (3, 3, 3, 5), (5,)], SAME),
    "forward, channels first": ("Convolution", BF16, [(5, 4, 12, 11), (6, 4, 3, 3)], {"strides": 2} | SAME | NCX),
    "data": ("ConvolutionBackwardData", F32, [(9, 5, 6, 4), (3, 3, 3, 4)], {"strides": 2, "dst_shape": (9, 12, 13, 3)}),
    "forward, transposed": ("ConvTranspose", np.float16, [(4, 7, 6, 3), (3, 3, 2, 3)], {"strides": 2}),
    "data, transposed": ("ConvTransposeBackwardData", F32, [(4, 14, 13, 2), (2, 2, 2, 3)], {"strides": 2}),
    "bias added": ("BiasAdd", F32, [(7, 9, 8, 3), (3,)], {}),
}  # fmt: skip


def operands_of(name: str) -> list[Array]:
    rng = np.random.default_rng(len(name))
    _, dtype, shapes, _ = LAYERS[name]
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def whole(name: str, operands: list[Array], **options: Any) -> Array:
    op, _, _, attributes = LAYERS[name]
    return prepare(op, tuple(operands), attributes, None, "out" in options, lenient=True).execute(**options)


def mapped(path: Path, array: Array) -> Array:
    """Return a map of a file that holds an array."""
    array.tofile(path)
    return np.memmap(path, array.dtype, "r+", shape=array.shape)


def foreign(array: Array) -> Array:
    """Return an array in the other byte order, but of bf16, which NumPy knows in one alone."""
    return array if array.dtype == BF16 else array.astype(array.dtype.newbyteorder(">"))


SOURCES: dict[str, Callable[[Path, Array], Any]] = {
    "in memory": lambda path, array: array,
    "a map": mapped,
    "slices": lambda path, array: Slices(array),
    "chunks": lambda path, array: Slices(array, tuple(min(3, extent) for extent in array.shape)),
    "backwards": lambda path, array: np.flip(mapped(path, np.flip(array))),
    "foreign": lambda path, array: mapped(path, foreign(array)),
}


@tiers("name, source", [*LAYERS], [*SOURCES], every=37)
def test_pieces_have_the_bits_of_one_call(name: str, source: str, tmp_path: Path) -> None:
    """From the least memory there may be to ample, into anything, added to or not."""
    op, _, _, attributes = LAYERS[name]
    operands = operands_of(name)
    given = [SOURCES[source](tmp_path / str(n), array) for n, array in enumerate(operands)]
    expected = whole(name, operands)
    least = least_memory(op, *given, **attributes)
    pieces = set()
    for memory, threads in ((least, 1), (3 * least, 2), (None, 1)):
        told: list[scale.Progress] = []
        got = scale.run(op, *given, memory=memory, threads=threads, progress=told.append, **attributes)
        assert_same_bits(got, expected, (name, memory))
        pieces.add(len(told))
    assert len(pieces) > 1 or source == "in memory"
    old = np.random.default_rng(3).standard_normal(expected.shape).astype(expected.dtype)
    added = whole(name, operands, out=old.copy())
    for out in (old.copy(), mapped(tmp_path / "out", old), Slices(old.copy())):
        least = least_memory(op, *given, out=out, accumulate=True, **attributes)
        assert scale.run(op, *given, memory=least, out=out, accumulate=True, **attributes) is out
        assert_same_bits(np.asarray(getattr(out, "array", out)), added, (name, "added"))
    out = Slices(np.full_like(expected, np.nan))
    scale.run(op, *given, memory=least, out=out, **attributes)
    assert_same_bits(out.array, expected, (name, "out"))
    assert not [t for t in threading.enumerate() if t.name == "convgrad-reader"]


def check(case: Case, seed: int) -> bool:
    """Compute a call in the smallest pieces there are and whole; tell whether there were pieces."""
    operands = operands_of_case(case, "normal", seed)
    given = [x if port.is_shape else Slices(x) for x, port in zip(operands, case.op.operands, strict=False)]
    options = {"dtype": case.dtype} | case.attributes
    if case.format.name == "f64" and case.op.solves_for != "bias_add":
        with pytest.raises(convgrad.UnsupportedError, match=r"f64 arrays cannot|got numpy"):
            scale.run(case.op.name, *given, **options)
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = convgrad.run(case.op.name, *operands, **options)
        found = memories(case.op.name, *given, **options)
        memory = min(found.values())
        pieces = []
        got = scale.run(case.op.name, *given, memory=memory, threads=1, progress=pieces.append, **options)
    assert_same_bits(got, expected, case)
    return len(pieces) > 1


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_random_calls_of_every_operator_have_the_bits_of_one_call(seed: int) -> None:
    """Small ones, many of them with no images, no positions, no axes."""
    rng = np.random.default_rng(seed)
    in_pieces = [check(random_case(rng, op), seed) for op in OPERATORS for _ in range(2)]
    assert any(in_pieces)


NOTHING: dict[str, tuple[str, list[tuple[int, ...]], dict[str, Any]]] = {
    "no images": ("ConvolutionBackwardWeights", [(0, 9, 3), (0, 9, 5)], {"weights_shape": (1, 3, 5)}),
    "no positions": ("ConvolutionBackwardWeights", [(2, 0, 3), (2, 0, 5)], {"weights_shape": (1, 3, 5)}),
    "no positions of dst": ("ConvolutionBackwardWeights", [(2, 4, 3), (2, 0, 5)], {"weights_shape": (6, 3, 5)}),
    "nothing to sum": ("ConvolutionBackwardData", [(2, 0, 5), (6, 3, 5)], {"dst_shape": (2, 4, 3)}),
    "no images written": ("Convolution", [(0, 9, 3), (3, 3, 5)], {}),
    "no axes": ("BiasAddBackward", [(7, 3)], {}),
    "no axes written": ("BiasAdd", [(7, 3), (3,)], {}),
}


@pytest.mark.parametrize("name", NOTHING)
@pytest.mark.parametrize("old", [None, 2.0])
def test_where_there_is_little_or_nothing_to_read(name: str, old: float | None) -> None:
    op, shapes, attributes = NOTHING[name]
    operands = [np.ones(shape, F32) for shape in shapes]
    expected = prepare(op, tuple(operands), attributes, lenient=True).execute()
    out = np.full_like(expected, np.nan if old is None else old)
    least = min(memories(op, *map(Slices, operands), out=out, accumulate=old is not None, **attributes).values())
    options = {"memory": least, "out": out, "accumulate": old is not None, "threads": 1} | attributes
    scale.run(op, *map(Slices, operands), **options)
    assert_same_bits(out, expected if old is None else expected + F32(old), name)


def test_a_result_is_written_nowhere_where_an_operand_lies(tmp_path: Path) -> None:
    """Nor by way of another map of its file, by another name, or of what slices; beside it, or between, it may be."""
    src, weights = np.ones((4, 9, 8, 3), F32), np.ones((1, 1, 3, 3), F32)
    file, link = tmp_path / "both", tmp_path / "link"
    one = np.memmap(file, F32, "w+", shape=(8, 9, 8, 3))
    link.hardlink_to(file)
    two, three = (np.memmap(path, F32, "r+", shape=one.shape) for path in (file, link))
    one[:] = 1
    slices = Slices(src)
    for given, out in ((one[:4], two[:4]), (one[:4], three[3:7]), (one[::2], two[2:6]), (slices, slices)):
        with pytest.raises(convgrad.InvalidShapeError, match=r"out must not overlap an operand; got .*src.* \[D4\]$"):
            scale.run("Convolution", given, weights, out=out)
    for given, out in ((one[:4], three[4:]), (one[::2], two[1::2])):
        assert_same_bits(scale.run("Convolution", given, weights, out=out), np.full_like(src, 3), "beside")
        one[:] = 1


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("name", ["weights", "forward"])
def test_a_result_is_handed_over_whatever_byte_order_it_is_kept_in(name: str, accumulate: bool) -> None:
    op, _, _, attributes = LAYERS[name]
    operands = operands_of(name)
    old = np.ones_like(whole(name, operands))
    out = Slices(foreign(old))
    scale.run(op, *operands, out=out, accumulate=accumulate, threads=1, **attributes)
    expected = whole(name, operands, out=old.copy()) if accumulate else whole(name, operands)
    assert_same_bits(out.array.astype(F32), expected, name)


def test_advice_about_an_out_that_is_a_name(tmp_path: Path) -> None:
    ones, path = np.ones((2, 3, 3, 2), F32), str(tmp_path / "out.npy")
    with pytest.raises(
        InvalidDataTypeError, match=r"out must be an array, .*; got the name '.*'\. Use .* \[T5\]"
    ) as caught:
        scale.run("Convolution", ones, np.ones((1, 1, 2, 2), F32), out=path)
    advice = str(caught.value).partition("Use ")[2].removesuffix(" [T5]")
    scale.run("Convolution", ones, np.ones((1, 1, 2, 2), F32), out=eval(advice, {"numpy": np}))
    assert (np.load(path) == 2).all()
    with pytest.raises(
        InvalidDataTypeError, match=r"Use zarr\.create_array\('out\.zarr', shape=\(2, 3, 3, 2\), dtype="
    ):
        scale.run("Convolution", ones, np.ones((1, 1, 2, 2), F32), out="out.zarr")
