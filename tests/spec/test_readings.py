"""Shapes in other formats, or in another order: the refusal says which, and what it says is taken."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import InvalidShapeError, explain, infer_shapes
from tests.spec.rule_breaks import CONV, DATA, T_DATA, T_WEIGHTS, TRANSPOSE, WEIGHTS

# By the underlying convolution: 2 images of 3 channels, 12 x 10, and 5 channels of 5 x 3 taps
EXTENTS = {"src": (2, 3, 12, 10), "dst": (2, 5, 8, 8), "weights": (5, 3, 5, 3)}
STRICT: dict[str, Any] = {"strides": [1, 1], "dilations": [1, 1]}
OPERANDS = {
    CONV: ("src", "weights"),
    DATA: ("dst", "weights", "src"),
    WEIGHTS: ("src", "dst", "weights"),
    TRANSPOSE: ("dst", "weights"),
    T_DATA: ("src", "weights"),
    T_WEIGHTS: ("dst", "src", "weights"),
}
LAYOUTS = {
    True: [("NXC", "IOX"), ("NCX", "XOI"), ("NCX", "IOX")],
    False: [("NXC", "OIX"), ("NCX", "XIO"), ("NCX", "OIX")],
}


def lying(tensor: str, data_format: str, weights_format: str) -> tuple[int, ...]:
    n, c, *x = EXTENTS[tensor]
    if tensor == "weights":
        return (n, c, *x) if weights_format in ("OIX", "IOX") else (*x, c, n)
    return (n, c, *x) if data_format == "NCX" else (n, *x, c)


def shapes_of(operator: str, formats: tuple[str, str]) -> list[tuple[int, ...]]:
    return [lying(tensor, *formats) for tensor in OPERANDS[operator]]


def said(call: Callable[[], object]) -> str:
    with pytest.raises(InvalidShapeError) as caught:
        call()
    return str(caught.value)


CASES = [(op, formats) for op in OPERANDS for formats in LAYOUTS[op.startswith("ConvTranspose")]]


@pytest.mark.parametrize(("operator", "formats"), CASES)
def test_both_formats_are_named_in_which_shapes_fit_and_no_others(operator: str, formats: tuple[str, str]) -> None:
    shapes = shapes_of(operator, formats)
    named = re.findall(
        r"data_format='(\w+)', weights_format='(\w+)'", said(lambda: infer_shapes(operator, *shapes, **STRICT))
    )
    assert formats in named
    transposed = operator.startswith("ConvTranspose")
    for data, weights in [("NXC", "XOI" if transposed else "XIO"), *LAYOUTS[transposed]]:
        read = {"data_format": data, "weights_format": weights}
        if (data, weights) in named:
            assert infer_shapes(operator, *shapes, **STRICT, **read)
        else:
            said(lambda read=read: infer_shapes(operator, *shapes, **STRICT, **read))  # type: ignore[misc]


@pytest.mark.parametrize("formats", LAYOUTS[False])
def test_every_door_says_so(formats: tuple[str, str]) -> None:
    src, diff_dst, weights = (np.ones(lying(t, *formats), np.float32) for t in ("src", "dst", "weights"))
    hint = ". These shapes fit data_format='{}', weights_format='{}'".format(*formats)
    calls: list[Callable[[], object]] = [
        lambda: convgrad.convolution(src, weights),
        lambda: convgrad.convolution_backward(src, diff_dst, weights),
        lambda: convgrad.convolution_backward_weights(src, diff_dst, weights.shape),
        lambda: convgrad.compile(CONV, src, weights, **STRICT),
        lambda: convgrad.partials(WEIGHTS, src, diff_dst, weights.shape),
        lambda: convgrad.vjp(CONV, src, weights),
        lambda: explain(WEIGHTS, src.shape, diff_dst.shape, weights.shape, **STRICT),
    ]
    for call in calls:
        assert hint in said(call)


def test_extents_that_do_not_fit_name_no_formats() -> None:
    message = said(lambda: infer_shapes(WEIGHTS, (2, 5, 9, 5), (2, 5, 7, 5), (3, 3, 5, 5), **STRICT))
    assert "[G6]" in message
    assert "fit data_format" not in message


def test_shapes_that_fit_in_no_way_get_no_hint() -> None:
    for operator, first in product((CONV, TRANSPOSE), (7, 11)):
        message = said(
            lambda operator=operator, first=first: infer_shapes(operator, (2, 9, 9, first), (3, 3, 4, 5), **STRICT)
        )  # type: ignore[misc]
        assert "fit" not in message


@pytest.mark.parametrize(
    ("operator", "data", "kernel", "read", "axes"),
    [
        (CONV, (2, 5, 6, 3), (3, 3, 4, 3), {}, (-1, -2)),
        (CONV, (2, 3, 5, 6), (3, 4, 3, 3), {"data_format": "NCX", "weights_format": "OIX"}, (0, 1)),
        (DATA, (2, 5, 6, 3), (3, 3, 3, 4), {}, (-1, -2)),
        (TRANSPOSE, (2, 5, 6, 3), (3, 3, 3, 4), {}, (-1, -2)),
        (TRANSPOSE, (2, 5, 6, 8), (3, 3, 8, 4), {}, (-1, -2)),  # no other format fits
    ],
)
def test_exchanged_channels_come_first(
    operator: str, data: tuple[int, ...], kernel: tuple[int, ...], read: dict[str, str], axes: tuple[int, int]
) -> None:
    """Other formats fit only if a channel is taken for an extent of the kernel."""
    message = said(lambda: infer_shapes(operator, data, kernel, **STRICT, **read))
    assert f". These shapes fit with weights.swapaxes{axes}" in message
    assert infer_shapes(operator, data, np.zeros(kernel).swapaxes(*axes).shape, **STRICT, **read)


def test_exchanged_channels_leave_the_kernel_square() -> None:
    message = said(lambda: infer_shapes(CONV, (2, 9, 8, 3), (4, 3, 5, 3), **STRICT))
    assert "swapaxes" not in message


def test_a_message_has_one_hint() -> None:
    """The weights' channels are not divided by the groups; as NCX, the shapes happen to fit too."""
    message = said(lambda: infer_shapes(CONV, (1, 8, 8, 4), (3, 3, 4, 6), **STRICT, groups=2))
    assert message.endswith("(XIO). Weights have in_channels / groups = 2 where these have 4 [G4]")


@pytest.mark.parametrize("layout", ["XOI", "IOX"])
def test_the_shape_of_weights_with_divided_inputs_is_mended(layout: str) -> None:
    """The weights have in_channels / groups and out_channels, although groups divide the other side."""
    (taps, inputs, outputs), groups = (3, 4, 6), 2
    given = (taps, outputs, inputs // groups) if layout == "XOI" else (inputs // groups, outputs, taps)
    small, large = (1, 5, inputs), (1, 7, outputs)
    attributes = {"weights_format": layout, "groups": groups, "strides": [1], "dilations": [1]}

    def infer(operator: str, weights: tuple[int, ...]) -> tuple[int, ...]:
        shapes = {TRANSPOSE: (small, weights), T_DATA: (large, weights), T_WEIGHTS: (small, large, weights)}
        return infer_shapes(operator, *shapes[operator], **attributes)

    for operator, result in ((TRANSPOSE, large), (T_DATA, small), (T_WEIGHTS, None)):
        message = said(lambda operator=operator: infer(operator, given))  # type: ignore[misc]
        mended = eval(re.findall(r"here (\(.*?\)) in", message)[0])
        assert infer(operator, mended) == (result or mended)
