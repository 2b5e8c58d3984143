"""Operands and ``out`` of any strides, byte order and emptiness; overlap and nearness; refusals write nothing."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import ConvgradError, InvalidShapeError
from tests.support.roles import (
    BF16,
    F32,
    LAYOUTS,
    WRITABLE,
    Array,
    Role,
    _filled,
    formats,
    memory,
    roles,
    same,
    unaligned,
)
from tests.support.tiers import tiers


def foreign(array: Array) -> Array:
    return array.astype(array.dtype.newbyteorder())


@pytest.mark.every(21)
@roles
@formats
@pytest.mark.parametrize("layout", [*LAYOUTS.values(), foreign], ids=[*LAYOUTS, "foreign byte order"])
def test_operands_of_any_strides(role: Role, dtype: Any, layout: Callable[[Array], Array]) -> None:
    """Each operand by itself, and all at once; none is changed, nor is the memory around it."""
    operands = role.operands(dtype)
    for odd in (*({i} for i in range(len(operands))), {*range(len(operands))}):
        given = [layout(a) if i in odd else a for i, a in enumerate(operands)]
        plain = [np.array(a, dtype, order="C") for a in given]
        before = [memory(a).tobytes() for a in given]
        assert same(np.ascontiguousarray(role(*given)), role(*plain)), odd
        assert [memory(a).tobytes() for a in given] == before


@pytest.mark.every(21)
@roles
@formats
@pytest.mark.parametrize("layout", [*WRITABLE.values(), unaligned], ids=[*WRITABLE, "unaligned"])
@pytest.mark.parametrize("accumulate", [False, True], ids=["written", "accumulated"])
def test_out_of_any_strides(role: Role, dtype: Any, layout: Callable[[Array], Array], accumulate: bool) -> None:
    """``out`` is returned, fully written over NaN or added into, and nothing around it is touched."""
    operands = role.operands(dtype)
    old = np.ones(role.output, dtype) if accumulate else np.full(role.output, np.nan, dtype)
    expected = role(*operands, out=old.copy(), accumulate=accumulate)
    out = layout(old)
    around = memory(out).copy()
    assert role(*operands, out=out, accumulate=accumulate) is out
    assert same(np.array(out, order="C"), expected)
    out[...] = old
    assert memory(out).tobytes() == around.tobytes()


LARGE = {  # batch, extent, channels, groups: enough to do for kernels of their own
    "depthwise": (1, 24, 17, 17), "one channel": (2, 70, 1, 1), "grouped": (1, 24, 8, 4),
}  # fmt: skip
AXES = [axes for count in range(1, 4) for axes in combinations(range(1, 4), count)]


def repeating(array: Array, axes: tuple[int, ...]) -> Array:
    """Return an array that repeats its first elements along some axes, by stride 0; behind them lies NaN."""
    first = array[tuple(slice(1) if axis in axes else slice(None) for axis in range(array.ndim))]
    room = np.full(first.size + 100, np.nan, array.dtype)
    return np.broadcast_to(_filled(room[: first.size].reshape(first.shape), first), array.shape)


@tiers("name, layout", list(LARGE), ["NXC", "NCX"], every=5)
def test_operands_that_repeat_along_any_axes(name: str, layout: str) -> None:
    """As a gradient that is the same everywhere does; in every role, in sizes that have kernels of their own."""
    batch, extent, channels, groups = LARGE[name]
    shape = (batch, extent, extent, channels) if layout == "NXC" else (batch, channels, extent, extent)
    rng = np.random.default_rng(7)
    data, weights = (rng.integers(-3, 4, s).astype(F32) for s in (shape, (3, 3, channels // groups, channels)))
    attributes: dict[str, Any] = {"pads_begin": 1, "pads_end": 1, "groups": groups, "data_format": layout}
    for axes in AXES:
        given = repeating(data, axes)
        plain = given.copy(order="C")
        for function, others in (
            (convgrad.convolution, (weights,)),
            (convgrad.convolution_backward_data, (weights,)),
            (convgrad.convolution_backward_weights, (data, weights.shape)),
        ):
            got, expected = (function(array, *others, **attributes) for array in (given, plain))
            assert same(got, expected), (function.__name__, axes)


@pytest.mark.parametrize("role", ["src", "weights"])
def test_places_no_term_reaches_are_written_as_zero(role: str) -> None:
    """Of a source of two positions and a kernel of three, which has no position of dst."""
    shapes = {"src": (2, 2, 1), "weights": (3, 1, 2)}
    diff_dst, out = np.ones((2, 0, 2), F32), np.full(shapes[role], np.nan, F32)
    if role == "src":
        convgrad.convolution_backward_data(diff_dst, np.ones(shapes["weights"], F32), shapes["src"], out=out)
    else:
        convgrad.convolution_backward_weights(np.ones(shapes["src"], F32), diff_dst, shapes["weights"], out=out)
    assert same(out, np.zeros(shapes[role], F32))


# -- out ---------------------------------------------------------------------------------------------------------------

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
        with pytest.raises(ConvgradError):
            role(*given, out=out, **options)
    assert (out == 7).all()
