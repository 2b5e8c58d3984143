"""What a call answers does not depend on earlier calls: values that are equal are not the same to the checks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import convgrad.torch as ct  # noqa: E402
from tests.support.alike import differences  # noqa: E402
from tests.support.tiers import tiers  # noqa: E402

LAYERS = [f"{name}{axes}" for name in ("conv", "conv_transpose") for axes in ("1d", "2d", "3d")]
ANY = ["convolution", "conv_transpose"]
GRADIENTS = [name for name in dir(ct.grad) if name.startswith("conv")]
MODULES = ["Conv2d", "ConvTranspose2d"]


def legal(axes: int) -> dict[str, Sequence[Any]]:
    """Return legal values of the arguments of a layer."""
    per_axis = {"stride": [1, (2,) * axes], "padding": [0, (1,) * axes], "dilation": [1, (2,) * axes]}
    ends = {"padding_begin": [0, (1,) * axes], "padding_end": [0, (1,) * axes], "output_padding": [0, (0,) * axes]}
    return per_axis | ends | {"groups": [1], "max_error": [1.0, 64.0], "activation": ["relu"]}


def tensors(axes: int) -> tuple[Any, Any, Any]:
    return torch.ones(2, 4, *[6] * axes), torch.ones(4, 4, *[3] * axes), torch.ones(4)


def call_of(name: str) -> tuple[Callable[..., Any], dict[str, Sequence[Any]]]:
    """Return a call of a function or module, and the legal values of its arguments."""
    axes = int(name.partition("d")[0][-1]) if name not in ANY and name not in MODULES else 2
    input, weight, bias = tensors(axes)
    if name in MODULES:
        module = ct.reproducible(getattr(torch.nn, name)(4, 4, 3))

        def forward(**given: Any) -> Any:
            settings = {key: vars(module)[key] for key in given}
            vars(module).update(given)
            try:
                return module(input)
            finally:
                vars(module).update(settings)

        options = {key: values[-1:] for key, values in legal(2).items() if key in vars(module)}
        return forward, options
    if name in GRADIENTS:
        function = getattr(ct.grad, name)
        given = (input.shape, weight) if name.endswith("input") else (input, weight.shape)
        call = partial(function, *given, torch.ones(2, 4, *[(8 if "transpose" in name else 4)] * axes))
    else:
        function = getattr(ct, name)
        call = partial(function, input, weight, bias)
    return call, {key: values for key, values in legal(axes).items() if key in inspect.signature(function).parameters}


@tiers("name", [*LAYERS, *ANY, *GRADIENTS, *MODULES], every=9)
def test_equal_values_of_other_types(name: str) -> None:
    call, options = call_of(name)
    assert {"stride", "padding", "dilation"} & options.keys()
    assert differences(call, options) == []


@pytest.mark.parametrize("other", [2.0, True, torch.tensor(2.0)])
def test_gradients_after_a_legal_call(other: Any) -> None:
    """The backward pass has a cache of its own."""
    input, weight, _ = tensors(2)
    value = 1 if other is True else 2

    def run(stride: Any) -> str:
        try:
            ct.conv2d(input.requires_grad_(), weight.requires_grad_(), stride=stride).sum().backward()
        except Exception as error:
            return str(error)
        return ""

    assert run(value) == ""
    assert "stride must be" in run(other)
