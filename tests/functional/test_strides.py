"""Operands and results of any strides, byte order and emptiness, in every role."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import convgrad
from tests.support.roles import (
    DTYPES,
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


@roles
@formats
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_operands_of_any_strides(role: Role, dtype: Any, layout: Callable[[Array], Array]) -> None:
    """Each operand by itself, and all at once; none is changed, nor is the memory around it."""
    operands = role.operands(dtype)
    for odd in (*({i} for i in range(len(operands))), {*range(len(operands))}):
        given = [layout(a) if i in odd else a for i, a in enumerate(operands)]
        plain = [np.array(a, order="C") for a in given]
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


@roles
def test_out_full_of_nan_is_fully_written(role: Role) -> None:
    """Also where no tap reaches, and where the sum is empty."""
    operands = role.operands(F32)
    fresh = role(*operands)
    assert np.isfinite(fresh).all()
    out = np.full(role.output, np.nan, F32)
    assert role(*operands, out=out) is out
    assert same(out, fresh)


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


EMPTY: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], dict[str, Any], tuple[int, ...]]] = {
    "weights, no images": (convgrad.convolution_backward_weights, ((0, 6, 1), (0, 4, 2)), {"weights_shape": (3, 1, 2)},
                           (3, 1, 2)),
    "weights, no positions": (convgrad.convolution_backward_weights, ((2, 2, 1), (2, 0, 2)),
                              {"weights_shape": (3, 1, 2)}, (3, 1, 2)),
    "data, no positions": (convgrad.convolution_backward_data, ((2, 0, 2), (3, 1, 2)), {"dst_shape": (2, 2, 1)},
                           (2, 2, 1)),
    "data, remainder": (convgrad.convolution_backward_data, ((1, 2, 2), (1, 1, 2)),
                        {"dst_shape": (1, 6, 1), "strides": 3}, (1, 6, 1)),
    "weights, padding alone": (convgrad.convolution_backward_weights, ((1, 1, 1), (1, 1, 1)),
                               {"weights_shape": (3, 1, 1), "pads_begin": 1, "pads_end": 1}, (3, 1, 1)),
    "bias, no images": (convgrad.bias_add_backward, ((0, 3, 2),), {}, (2,)),
}  # fmt: skip


@pytest.mark.parametrize(("function", "shapes", "rest", "output"), EMPTY.values(), ids=EMPTY)
def test_places_no_term_reaches_are_written_as_zero(
    function: Callable[..., Any],
    shapes: tuple[tuple[int, ...], ...],
    rest: dict[str, Any],
    output: tuple[int, ...],
) -> None:
    operands = [np.ones(shape, F32) for shape in shapes]
    out = np.full(output, np.nan, F32)
    function(*operands, **rest, out=out)
    assert np.isfinite(out).all()
    assert (out == 0).any()
    assert not np.signbit(out).any()
    assert same(function(*operands, **rest), out)


@roles
@pytest.mark.parametrize("name", ["f32", "f16", "f64"])
def test_foreign_byte_order_is_read(role: Role, name: str) -> None:
    native = role.operands(DTYPES[name])
    foreign = [a.astype(a.dtype.newbyteorder()) for a in native]
    assert not foreign[0].dtype.isnative
    before = [a.tobytes() for a in foreign]
    assert same(role(*foreign), role(*native))
    assert same(role(foreign[0], *native[1:]), role(*native))
    assert [a.tobytes() for a in foreign] == before
