"""Operands and results of any strides, byte order and emptiness, in every role."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import convgrad
from tests.support.roles import (
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
