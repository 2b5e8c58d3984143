"""``out``: overlap with operands is told from nearness, and every refusal leaves it untouched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import InvalidAttributeError, InvalidDataTypeError, InvalidShapeError
from tests.support.roles import BF16, F32, Role, roles, same

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
    weights = np.ones((3, 1, 1), F32)
    expected = convgrad.convolution(src.copy(), weights)
    assert same(np.ascontiguousarray(convgrad.convolution(src, weights, out=out)), expected)


def test_out_in_the_memory_of_an_operand_in_foreign_byte_order_is_refused() -> None:
    """The operand is read as a copy, but writing ``out`` would change what the caller gave."""
    foreign = np.arange(4, dtype=np.dtype(F32).newbyteorder()).reshape(1, 4, 1)
    before = foreign.tobytes()
    with pytest.raises(InvalidShapeError, match=r"shared with src \[D4\]"):
        convgrad.convolution(foreign, np.ones((1, 1, 1), F32), out=foreign.view(F32))
    assert foreign.tobytes() == before


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
