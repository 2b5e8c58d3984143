"""What a call answers does not depend on earlier calls: values that are equal are not the same to the checks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import convgrad
from tests.support.alike import differences
from tests.support.tiers import tiers

SRC, DST = np.ones((2, 6, 6, 4), np.float32), np.ones((2, 6, 6, 4), np.float32)
WEIGHTS, BIAS = np.ones((3, 3, 4, 4), np.float32), np.ones(4, np.float32)
SAME = {"pads_begin": 1, "pads_end": 1}
OPTIONS: dict[str, Sequence[Any]] = {  # legal values that fit the operands, the first of them the default of SAME
    "strides": [1, [1, 1]],
    "pads_begin": [1, [1, 1]],
    "pads_end": [1, [1, 1]],
    "dilations": [1, [1, 1]],
    "auto_pad": ["none"],
    "groups": [1],
    "output_padding": [0, [0, 0]],
    "data_format": ["NXC"],
    "weights_format": ["XIO"],
    "dtype": ["f32"],
    "accumulate": [False],
    "threads": [1, 2],
    "max_error": [1.0, 64.0],
    "activation": ["relu"],
    "weights_shape": [WEIGHTS.shape],
    "filter_shape": [WEIGHTS.shape],
    "first": [0],
    "max_norm": [1.0],
    "operand_type": ["f32"],
}
SHAPES = {"weights_shape", "filter_shape"}
POSITIONAL = {
    "src": SRC, "data": SRC, "input_forward": SRC, "diff_dst": DST, "output_delta": DST, "weights": WEIGHTS,
    "filter": WEIGHTS, "bias": BIAS, "norm2": np.ones(3),
}  # fmt: skip
FUNCTIONS = [getattr(convgrad, name) for name in convgrad.__all__ if inspect.isfunction(getattr(convgrad, name))]
GENERIC = ("run", "compile", "explain", "infer_shapes", "partials", "vjp")
BY_SIGNATURE = [
    each.__name__ for each in FUNCTIONS if {"src", "data", "diff_dst", "norm2"} & {*inspect.signature(each).parameters}
]


def of_signature(name: str) -> tuple[Callable[..., Any], dict[str, Sequence[Any]]]:
    """Return a call of a function on operands, and the legal values of its other arguments."""
    parameters = inspect.signature(getattr(convgrad, name)).parameters
    given = [POSITIONAL[each] for each in parameters if each in POSITIONAL]
    needed = SAME | {"scale": np.ones(2, np.float32), "max_norm": 1.0} | dict.fromkeys(SHAPES, WEIGHTS.shape)
    fixed = {each: value for each, value in needed.items() if each in parameters}
    return partial(getattr(convgrad, name), *given, **fixed), {k: OPTIONS[k] for k in parameters if k in OPTIONS}


def of_generic(name: str) -> tuple[Callable[..., Any], dict[str, Sequence[Any]]]:
    """Return a call of a function of any operator, and the legal values of attributes and options."""
    function = getattr(convgrad, name)
    parameters = inspect.signature(function).parameters
    operator = "ConvolutionBackwardWeights" if name == "partials" else "Convolution"
    operands: list[Any] = [SRC, DST, WEIGHTS.shape] if name == "partials" else [SRC, WEIGHTS]
    if name in ("explain", "infer_shapes"):
        operands = [each.shape for each in operands]
    one = int(name in {"run", "compile"})  # these take lists only
    names = ("strides", "pads_begin", "pads_end", "dilations")
    attributes: dict[str, Sequence[Any]] = {each: OPTIONS[each][one:] for each in names}
    attributes |= {each: OPTIONS[each] for each in ("groups", "auto_pad", "data_format", "weights_format")}
    attributes |= {each: OPTIONS[each] for each in parameters if each in OPTIONS}
    fixed: dict[str, Any] = {each: [1, 1] for each in names}
    call = partial(function, operator, *operands, **fixed)
    return (lambda **given: convgrad.join([call(**given)])) if name == "partials" else call, attributes


@tiers("name", BY_SIGNATURE + list(GENERIC), every=7)
def test_equal_values_of_other_types(name: str) -> None:
    call, options = of_generic(name) if name in GENERIC else of_signature(name)
    assert options
    assert differences(call, options) == []
