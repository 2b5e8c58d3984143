"""Odd values of stride, padding, dilation and sizes in the functions on PyTorch's tensors: our error, at once."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import convgrad.torch as ct  # noqa: E402
from convgrad import ConvgradError  # noqa: E402
from convgrad.torch import grad  # noqa: E402
from tests.support.odd_sequences import ODD  # noqa: E402

X, W = torch.ones(1, 1, 5), torch.ones(1, 1, 3)
CALLS: dict[str, Any] = {
    **{f"conv1d {name}": lambda odd, name=name: ct.conv1d(X, W, **{name: odd}) for name in
       ("stride", "padding", "dilation")},
    **{f"conv_transpose1d {name}": lambda odd, name=name: ct.conv_transpose1d(X, W, **{name: odd}) for name in
       ("stride", "padding", "dilation", "output_padding")},
    **{f"conv1d_input {name}": lambda odd, name=name: grad.conv1d_input((1, 1, 5), W, W, **{name: odd}) for name in
       ("stride", "padding", "dilation")},
    **{f"conv1d_weight {name}": lambda odd, name=name: grad.conv1d_weight(X, (1, 1, 3), W, **{name: odd}) for name in
       ("stride", "padding", "dilation")},
    "input_size": lambda odd: grad.conv1d_input(odd, W, W),
    "weight_size": lambda odd: grad.conv1d_weight(X, odd, W),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_an_odd_value_is_refused(name: str) -> None:
    for odd, make in ODD.items():
        if not odd.startswith("no index"):  # an object that says that it is an integer
            with pytest.raises(ConvgradError, match=r"\[[A-Z]\d+\]$") as caught:
                CALLS[name](make())
            assert str(caught.value).isprintable(), odd
