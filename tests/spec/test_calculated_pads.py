"""The operators whose documents let pads be left out: the pads that follow from the extents."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import InvalidAttributeError, InvalidShapeError, run
from convgrad.functional.call import prepare, problem_from_shapes
from convgrad.spec import exact_result
from convgrad.spec.geometry import Axis, Conv
from convgrad.spec.operators import OPERATORS
from convgrad.verify import check
from tests.spec.test_legal_extents import listed
from tests.support.helpers import FUNCTIONS, assert_same_bits
from tests.support.tiers import tiers

DATA, FILTERS, WEIGHTS = "ConvolutionBackpropData-1", "ConvolutionBackpropFilters-1", "ConvolutionBackpropWeights-1"
NAMES = (DATA, FILTERS, WEIGHTS)
CURRENT = {
    DATA: "ConvolutionBackwardData",
    FILTERS: "ConvolutionBackwardWeights",
    WEIGHTS: "ConvolutionBackwardWeights",
}
STRIDES, DILATIONS, KERNELS, OUTPUTS, INPUTS = range(1, 4), range(1, 3), range(1, 4), range(4), range(10)

names_and_strides = tiers("name, stride", NAMES, STRIDES, every=4)


def shapes_of(name: str, src: int, dst: int, kernel: int) -> tuple[Any, ...]:
    """Return the shapes of a call with one axis, in the order of the operator's document."""
    tensors = {"src": (1, src, 1), "dst": (1, dst, 1), "weights": (kernel, 1, 1)}
    return tuple(
        tensors[tensor] for tensor in (("dst", "weights", "src") if name == DATA else ("src", "dst", "weights"))
    )


def axis_of(name: str, shapes: tuple[Any, ...], **attributes: Any) -> Axis:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        geometry = problem_from_shapes(name, shapes, attributes, spell_out=True)[1].geometry
    assert isinstance(geometry, Conv)
    return geometry.axes[0]


def axes_that_fit(s: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield stride, dilation, kernel, O and I for which a forward pass with some pads maps I to O."""
    for d, k, dst, src in product(DILATIONS, KERNELS, OUTPUTS, INPUTS):
        if src < s * dst + d * (k - 1) + 1:
            yield s, d, k, dst, src


@names_and_strides
def test_absent_pads_are_calculated(name: str, stride: int) -> None:
    """The total is max(s(O - 1) + E - I, 0), and the first half of it is the beginning."""
    for s, d, k, dst, src in axes_that_fit(stride):
        axis = axis_of(name, shapes_of(name, src, dst, k), strides=s, dilations=d)
        total = max(s * (dst - 1) + d * (k - 1) + 1 - src, 0)
        assert (axis.pad_begin, axis.pad_end) == (total // 2, total - total // 2), (s, d, k, dst, src)
        empty = axis_of(name, shapes_of(name, src, dst, k), strides=s, dilations=d, pads_begin=[], auto_pad="NOTSET")
        assert empty == axis


@names_and_strides
def test_calculated_pads_only_turn_refusals_into_results(name: str, stride: int) -> None:
    """Where pads of 0 fit, they are the calculated ones; an empty dst has no terms, whatever the pads."""
    refused = 0
    for s, d, k, dst, src in axes_that_fit(stride):
        shapes = shapes_of(name, src, dst, k)
        try:
            zeros = axis_of(name, shapes, strides=s, dilations=d, pads_begin=0, pads_end=0)
        except InvalidShapeError:
            refused += 1
            continue
        assert dst == 0 or axis_of(name, shapes, strides=s, dilations=d) == zeros
    assert refused == sum(
        dst > 0 and s * (dst - 1) + d * (k - 1) + 1 > src for s, d, k, dst, src in axes_that_fit(stride)
    )


@names_and_strides
def test_one_absent_pad_is_the_rest_of_the_total(name: str, stride: int) -> None:
    for (s, d, k, dst, src), given in product(axes_that_fit(stride), (1, 4)):
        shapes, rest = shapes_of(name, src, dst, k), max(s * (dst - 1) + d * (k - 1) + 1 - src - given, 0)
        for pads, expected in (({"pads_begin": given}, (given, rest)), ({"pads_end": given}, (rest, given))):
            try:
                axis = axis_of(name, shapes, strides=s, dilations=d, **pads)
            except InvalidShapeError:
                assert (src + given + rest - d * (k - 1) - 1) // s + 1 != dst
                continue
            assert (axis.pad_begin, axis.pad_end) == expected


@pytest.mark.parametrize("auto_pad", ["same_upper", "same_lower", "valid"])
@names_and_strides
def test_auto_pad_replaces_absent_pads(name: str, auto_pad: str, stride: int) -> None:
    """Without output_padding, auto_pad has the pads of the current operator."""
    for s, d, k, dst, src in axes_that_fit(stride):
        shapes, layer = shapes_of(name, src, dst, k), {"strides": s, "dilations": d, "auto_pad": auto_pad}
        try:
            expected = axis_of(CURRENT[name], shapes, **layer)
        except InvalidShapeError:
            continue
        assert axis_of(name, shapes, **layer) == expected


@tiers("auto_pad, stride", ["same_upper", "same_lower"], STRIDES, every=2)
def test_formula_of_a_data_gradient_with_auto_pad_same(auto_pad: str, stride: int) -> None:
    """The total is max(s(O - 1) + E - I + op, 0), for every shape that some pads fit."""
    for (s, d, k, dst, src), op in product(axes_that_fit(stride), (None, 0, 1, 2, 3)):
        layer: dict[str, Any] = {"strides": s, "dilations": d, "auto_pad": auto_pad, "output_padding": op}
        shapes = shapes_of(DATA, src, dst, k)
        if op is not None and op >= s:
            with pytest.raises(
                InvalidAttributeError,
                match=rf"output_padding must be less .* got output_padding {op} and stride {s} \[A9\]",
            ):
                axis_of(DATA, shapes, **layer)
            continue
        axis = axis_of(DATA, shapes, **layer)
        total = max(s * (dst - 1) + d * (k - 1) + 1 - src + (op or 0), 0)
        half = total // 2
        pads = (half, total - half) if auto_pad == "same_upper" else (total - half, half)
        assert (axis.pad_begin, axis.pad_end) == pads, (s, d, k, dst, src, op)


@tiers("layer, s", [{}, {"pads_begin": 1}, {"pads_end": 2}, {"auto_pad": "same_lower"}], STRIDES, every=4)
def test_errors_of_a_data_gradient_list_what_fits(layer: dict[str, Any], s: int) -> None:
    refused = 0
    for d, k, dst in product(DILATIONS, KERNELS, OUTPUTS):
        messages, legal = [], []
        for src in range(17):
            try:
                axis_of(DATA, shapes_of(DATA, src, dst, k), strides=s, dilations=d, **layer)
                legal.append(src)
            except InvalidShapeError as error:
                messages.append(str(error))
        for message in messages:
            shown = legal[-s:] if dst else legal
            words = ", ".join(map(str, shown)) or "none"
            fewer = ", or fewer with larger pads" * (shown != legal)
            assert re.search(rf"legal extents: {words}{fewer}( \[|\. )", message), (message, legal)
        refused += len(messages)
    assert refused > 100


@tiers("layer, s", [{}, {"pads_begin": 1}, {"pads_end": 2}], STRIDES, every=4)
def test_errors_of_a_weight_gradient_list_the_kernels_that_fit(layer: dict[str, Any], s: int) -> None:
    refused = 0
    for d, dst, src in product(DILATIONS, OUTPUTS, INPUTS):
        messages, fit = [], []
        for kernel in range(1, 10):
            try:
                axis_of(WEIGHTS, shapes_of(WEIGHTS, src, dst, kernel), strides=s, dilations=d, **layer)
                fit.append(kernel)
            except InvalidShapeError as error:
                messages.append(str(error))
        for message in messages:
            assert listed(message, "Kernels that fit: ", 10) == fit, message
        refused += len(messages)
    assert refused > 30


def test_data_gradient_without_a_shape_has_absent_pads_of_0() -> None:
    for s, k, dst, op in product(STRIDES, KERNELS, range(1, 4), range(3)):
        given = axis_of(DATA, ((1, dst, 1), (k, 1, 1)), strides=s, output_padding=min(op, s - 1))
        assert given == axis_of(
            DATA, ((1, dst, 1), (k, 1, 1)), strides=s, output_padding=min(op, s - 1), pads_begin=0, pads_end=0
        )


def test_other_operators_keep_absent_pads_of_0() -> None:
    """The documents of the other operators require pads."""
    assert {op.name for op in OPERATORS if op.calculates_pads} == {*NAMES}
    with pytest.raises(InvalidShapeError, match=r"pads_begin \+ pads_end that fit: 2"):
        convgrad.infer_shapes("ConvolutionBackwardWeights", (1, 6, 1), (1, 6, 1), (3, 1, 1), pads_begin=None)
    layer = {"strides": 2, "auto_pad": "same_upper", "output_padding": 1}
    note = problem_from_shapes(CURRENT[DATA], shapes_of(DATA, 6, 3, 3), layer, spell_out=True)[1].note
    assert "output_padding [1] is ignored" in str(note)


def _operands(name: str, src: int, dst: int, kernel: int) -> list[Any]:
    shapes = shapes_of(name, src, dst, kernel)
    arrays = [np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape) for shape in shapes[:2]]
    return [*arrays, shapes[2]]


CALLS: list[tuple[str, tuple[int, int, int], dict[str, Any]]] = [
    *((name, (6, 6, 3), {"strides": [1], "dilations": [1]}) for name in NAMES),
    *((name, (4, 5, 2), {"strides": [2], "dilations": [3]}) for name in NAMES),
    *((name, (6, 3, 4), {"strides": [3], "dilations": [1], "pads_end": [1]}) for name in NAMES),
    *(
        (DATA, (src, 3, 3), {"strides": [2], "dilations": [1], "auto_pad": same, "output_padding": [1]})
        for src, same in product((4, 5, 6, 7), ("same_upper", "same_lower"))
    ),
]


@tiers("name, extents, layer", CALLS, every=4)
def test_every_door_computes_with_calculated_pads(
    name: str, extents: tuple[int, int, int], layer: dict[str, Any]
) -> None:
    """``run``, the function, ``vjp`` and a verdict have the exact result of the current operator with these pads."""
    operands = _operands(name, *extents)
    prepared = prepare(name, tuple(operands), layer)
    exact = exact_result.evaluate(prepared.problem, prepared.operands).rounded(prepared.problem)
    axis = prepared.problem.geometry.axes[0]  # type: ignore[union-attr]
    explicit = {"strides": layer["strides"], "dilations": layer["dilations"]}
    explicit |= {"pads_begin": [axis.pad_begin], "pads_end": [axis.pad_end]}
    result = run(name, *operands, **layer)
    assert_same_bits(prepared.canonical_output(result), exact, name)
    assert_same_bits(result, run(CURRENT[name], *operands, **explicit), name)
    for given in (layer, layer | {"pads_begin": layer.get("pads_begin"), "pads_end": layer.get("pads_end")}):
        assert_same_bits(result, FUNCTIONS[name](*operands, **given), name)
    found, pullback = convgrad.vjp(name, *operands, **layer)
    same, expected = convgrad.vjp(CURRENT[name], *operands, **explicit)
    assert_same_bits(found, same, name)
    for ours, theirs in zip(pullback(found)[:2], expected(same)[:2], strict=True):
        assert_same_bits(ours, theirs, name)
    assert check(name, result, *operands, **layer).ok
    assert check(name, run, *operands, **layer).ok
    shown = str(convgrad.explain(name, *shapes_of(name, *extents), **layer))
    assert f"i = {'' if axis.stride == 1 else f'{axis.stride}*'}p + " in shown
    assert (f" - {axis.pad_begin} with" in shown) == (axis.pad_begin > 0)


def test_output_padding_that_no_pads_can_honour_is_said() -> None:
    """The formula's total is negative, so the pads are 0, and the end of the result has zeros."""
    data, weights, _ = _operands(DATA, 8, 3, 3)
    layer = {"strides": 3, "auto_pad": "same_upper", "output_padding": 1}
    with pytest.warns(UserWarning, match=r"output_shape 11 exceeds s\(O - 1\) \+ E \+ op = 10, so that the pads are 0"):
        result = convgrad.convolution_backprop_data(data, weights, (1, 11, 1), **layer)
    assert result.ravel().tolist() == [1, 2, 3, 2, 4, 6, 3, 6, 9, 0, 0]
