"""Tensors that share memory until one is written to: no read copies it, in any function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import convgrad
from tests.support.roles import DTYPES, Role, roles
from tests.support.tiers import tiers

torch = pytest.importorskip("torch")

import convgrad.torch as ct  # noqa: E402

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f8_e5m2": torch.float8_e5m2}


def shared(tensor: Any) -> Any:
    """Return a tensor that shares memory with the given one, until one of the two is written to."""
    other = torch._lazy_clone(tensor)
    assert torch._C._is_cow_tensor(other)
    return other


def are_shared(*tensors: Any) -> bool:
    return all(torch._C._is_cow_tensor(tensor) for tensor in tensors)


@roles
def test_operators_read_without_a_copy(role: Role) -> None:
    for name in ("f32", "bf16") if len(role.shapes) == 1 else ("f32",):
        operands = [torch.tensor(np.asarray(one, np.float32)).to(TYPES[name]) for one in role.operands(DTYPES[name])]
        lent = [shared(one) for one in operands]
        assert role(*lent).tolist() == role(*operands).tolist()
        assert are_shared(*operands, *lent)


LAYERS: list[Callable[..., Any]] = [ct.conv2d, lambda x, w, b: ct.conv_transpose2d(x, w.transpose(0, 1), b)]
EACH = [(name, at % 2) for at, name in enumerate(TYPES)]


@tiers("name, number", EACH, long=[(name, 1 - at) for name, at in EACH])
def test_layers_and_gradients_read_without_a_copy(name: str, number: int) -> None:
    x, weight, bias = (torch.ones(shape).to(TYPES[name]) for shape in ((1, 2, 4, 4), (3, 2, 2, 2), (3,)))
    given = [shared(one).requires_grad_(name != "f8_e5m2") for one in (x, weight, bias)]
    layer = LAYERS[number]
    result = layer(*given)
    assert result.tolist() == layer(x, weight, bias).tolist()
    if result.requires_grad:
        v = shared(torch.ones_like(result))
        torch.autograd.grad(result, given, v)
        assert are_shared(v)
    assert are_shared(*given)


def test_views_and_other_functions_read_without_a_copy() -> None:
    x, weight = shared(torch.ones(2, 5, 5, 2)), shared(torch.ones(3, 3, 2, 3))
    convgrad.convolution(x[:, 1:, ::2], weight)
    convgrad.partials("ConvolutionBackwardWeights", x, shared(torch.ones(2, 3, 3, 3)), weight.shape)
    ct.fingerprint([x, weight])
    ct.linear(x, weight.reshape(-1, 2)[:4])
    assert are_shared(x, weight)


def test_a_result_has_its_own_memory() -> None:
    """The tensor that a result is written to is copied first, so that the others keep their values."""
    source = torch.zeros(2, 3, 3, 3)
    out = shared(source)
    returned = convgrad.convolution(torch.ones(2, 5, 5, 2), torch.ones(3, 3, 2, 3), out=out)
    assert returned is out
    assert out.unique().tolist() == [18.0]
    assert source.unique().tolist() == [0.0]


def test_an_array_of_shared_memory_is_read_only() -> None:
    from convgrad.arrays.libraries.torch import array_of  # noqa: PLC0415

    given = shared(torch.arange(6.0).reshape(2, 3)).T
    array: np.ndarray[Any, Any] = array_of(torch, given)
    assert array.tolist() == given.tolist()
    assert not array.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    del given  # the array keeps the memory
    assert array.tolist() == [[0, 3], [1, 4], [2, 5]]


def test_a_freed_tensor_is_refused() -> None:
    for call in (convgrad.bias_add_backward, lambda x: ct.conv1d(x, torch.ones(1, 2, 1))):
        tensor = shared(torch.ones(1, 2, 3))
        tensor.untyped_storage().resize_(0)
        with pytest.raises(convgrad.UnsupportedError, match="memory"):
            call(tensor)
