"""``out``: each wrong one is refused and untouched, and overlap with operands is told from nearness."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import InvalidAttributeError, InvalidDataTypeError, InvalidShapeError
from tests.support.roles import BF16, F32, Array, Role, Tensor, memory, read_only, roles, same

PLAIN_SRC, PLAIN_W = np.arange(6, dtype=F32).reshape(1, 6, 1), np.ones((3, 1, 1), F32)
PLAIN_OUT = (1, 4, 1)


def _sliding(step: int) -> Array:
    """Return memory of the output's shape whose values lie ``step`` bytes apart."""
    return np.lib.stride_tricks.as_strided(np.zeros(8, F32), PLAIN_OUT, (4, step, 4), writeable=True)


WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "f64": (lambda: np.zeros(PLAIN_OUT), InvalidDataTypeError, r"array of f32, .*got f64 \[T5\]"),
    "f16": (lambda: np.zeros(PLAIN_OUT, np.float16), InvalidDataTypeError, r"got f16 \[T5\]"),
    "bf16": (lambda: np.zeros(PLAIN_OUT, BF16), InvalidDataTypeError, r"got bf16 \[T5\]"),
    "int32": (lambda: np.zeros(PLAIN_OUT, np.int32), InvalidDataTypeError, r"got int32 \[T5\]"),
    "foreign": (lambda: np.zeros(PLAIN_OUT, np.dtype(F32).newbyteorder()), InvalidDataTypeError, r"foreign .*\[T5\]"),
    "list": (lambda: [[[0.0]] * 4], InvalidDataTypeError, r"got list \[T5\]"),
    "tensor": (lambda: Tensor(np.zeros(PLAIN_OUT, F32)), InvalidDataTypeError, r"got Tensor \[T5\]"),
    "bytes": (lambda: bytearray(16), InvalidDataTypeError, r"got bytearray \[T5\]"),
    "shape": (lambda: np.zeros((1, 5, 1), F32), InvalidShapeError, r"\(1, 4, 1\); got \(1, 5, 1\) \[D2\]"),
    "rank": (lambda: np.zeros((1, 4), F32), InvalidShapeError, r"got \(1, 4\) \[D2\]"),
    "broadcastable": (lambda: np.zeros((2, 4, 1), F32), InvalidShapeError, r"got \(2, 4, 1\) \[D2\]"),
    "read-only": (lambda: read_only(np.zeros(PLAIN_OUT, F32)), InvalidShapeError, r"read-only array \[D3\]"),
    "read-only view": (lambda: np.broadcast_to(np.zeros((1, 1, 1), F32), PLAIN_OUT), InvalidShapeError, r"\[D3\]"),
    "stride 0": (lambda: _sliding(0), InvalidShapeError, r"not overlap itself; got .*strides \(4, 0, 4\).*\[D4\]"),
    "stride 2": (lambda: _sliding(2), InvalidShapeError, r"not overlap itself; got .*\[D4\]"),
    "stride -3": (lambda: _sliding(1)[:, ::-1], InvalidShapeError, r"not overlap itself; got .*\[D4\]"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "error", "words"), WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("accumulate", [False, True], ids=["written", "accumulated"])
def test_a_wrong_out_is_refused_and_untouched(
    make: Callable[[], Any], error: type[Exception], words: str, accumulate: bool
) -> None:
    out = make()
    before = _content(out)
    with pytest.raises(error, match=words):
        convgrad.convolution(PLAIN_SRC, PLAIN_W, out=out, accumulate=accumulate)
    assert _content(out) == before


def _content(out: Any) -> object:
    out = out.array if isinstance(out, Tensor) else out
    return memory(out).tobytes() if isinstance(out, np.ndarray) else repr(out)


def test_rows_that_share_values_are_refused() -> None:
    out = np.lib.stride_tricks.as_strided(np.zeros(64, F32), (2, 4), (8, 4), writeable=True)
    with pytest.raises(InvalidShapeError, match=r"not overlap itself; got shape \(2, 4\) with strides \(8, 4\)"):
        convgrad.bias_add(np.ones((2, 4), F32), np.ones(4, F32), out=out)
    assert not out.any()


# (name, start of src, weights and out in one buffer of 40 values, in values; src has 6, weights 3, out 4)
PLACES: list[tuple[str, tuple[int, int, int], str | None]] = [
    ("in src", (0, 20, 1), "src"),
    ("end of src", (0, 20, 5), "src"),
    ("start of src", (10, 20, 7), "src"),
    ("in weights", (0, 20, 20), "weights"),
    ("end of weights", (0, 20, 22), "weights"),
    ("beside both", (0, 20, 6), None),
    ("between", (0, 10, 6), None),
    ("behind", (0, 6, 9), None),
]


@pytest.mark.parametrize(("places", "met"), [row[1:] for row in PLACES], ids=[row[0] for row in PLACES])
def test_out_beside_or_over_an_operand(places: tuple[int, int, int], met: str | None) -> None:
    buffer = np.arange(40, dtype=F32)
    src, weights, out = (buffer[p : p + n].reshape(1, n, 1) for p, n in zip(places, (6, 3, 4), strict=True))
    weights = weights.reshape(3, 1, 1)
    expected = convgrad.convolution(src, weights)
    before = buffer.copy()
    if met:
        with pytest.raises(InvalidShapeError, match=rf"shared with {met} \[D4\]"):
            convgrad.convolution(src, weights, out=out)
        assert same(buffer, before)
    else:
        assert convgrad.convolution(src, weights, out=out) is out
        assert same(out, expected)


def test_out_between_the_values_of_an_operand_is_written() -> None:
    """Interleaved memory does not overlap."""
    buffer = np.arange(12, dtype=F32)
    src, out = buffer[::2].reshape(1, 6, 1), buffer[1:9:2].reshape(1, 4, 1)
    expected = convgrad.convolution(src.copy(), PLAIN_W)
    assert same(np.ascontiguousarray(convgrad.convolution(src, PLAIN_W, out=out)), expected)


def test_out_in_the_memory_of_an_operand_in_foreign_byte_order_is_refused() -> None:
    """The operand is read as a copy, but writing ``out`` would change what the caller gave."""
    foreign = np.arange(4, dtype=np.dtype(F32).newbyteorder()).reshape(1, 4, 1)
    before = foreign.tobytes()
    with pytest.raises(InvalidShapeError, match=r"shared with src \[D4\]"):
        convgrad.convolution(foreign, np.ones((1, 1, 1), F32), out=foreign.view(F32))
    assert foreign.tobytes() == before


def test_a_masked_out_is_refused() -> None:
    """A hard mask would leave elements unwritten."""
    out = np.ma.masked_array(np.zeros(PLAIN_OUT, F32), True, hard_mask=True)
    with pytest.raises(InvalidDataTypeError, match=r"out must be .*\[T5\]"):
        convgrad.convolution(PLAIN_SRC, PLAIN_W, out=out)


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_a_large_result_begins_with_a_line_of_the_caches(dtype: type) -> None:
    src, weights = np.ones((1, 128, 128, 8), dtype), np.ones((1, 1, 8, 8), dtype)
    for _ in range(4):
        found = convgrad.convolution(src, weights)
        assert found.ctypes.data % 64 == 0
        assert found.flags.c_contiguous
        assert found.flags.writeable
        assert found.dtype == dtype
        assert np.all(found == 8)


@roles
def test_every_refusal_leaves_out_untouched(role: Role) -> None:
    """Also those found in attributes, shapes and options, and the options' own."""
    operands: list[Any] = role.operands(F32)
    out = np.full(role.output, 7, F32)
    refused: list[tuple[list[Any], dict[str, Any]]] = [
        (operands, {"threads": 0}),
        (operands, {"accumulate": 1}),
        (operands, {"dtype": "f16"}),
        (operands, {"dtype": "f64"}),
        ([operands[0][..., :-1], *operands[1:]], {}),
        ([operands[0].astype(np.float16), *operands[1:]], {}),
        ([operands[0].astype(np.int32), *operands[1:]], {}),
    ]
    for given, options in refused:
        with pytest.raises((InvalidAttributeError, InvalidDataTypeError, InvalidShapeError)):
            role(*given, out=out, **options)
    assert (out == 7).all()
