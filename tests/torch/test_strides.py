"""A gradient has the strides of its tensor wherever the memory order is the same, on axes of size 1 too."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from tests.support.tiers import tiers
from tests.torch.layers import LAST

torch = pytest.importorskip("torch")
nn = torch.nn

import convgrad.torch as ct  # noqa: E402

LAYERS = [
    (axes, transposed, *channels, taps)
    for axes, transposed, channels, taps in product(
        (1, 2, 3), (False, True), ((4, 6, 1), (4, 1, 1), (1, 4, 1), (4, 4, 4), (6, 4, 2), (1, 1, 1)), (1, 3)
    )
]


COMPLEX = [layer for layer in LAYERS if layer[-1] == 1 and layer[0] < 3]


def memory_order(tensor: Any) -> list[int]:
    return [stride for stride, extent in zip(tensor.stride(), tensor.shape, strict=True) if extent > 1]


def same_strides(*pairs: tuple[Any, Any]) -> bool:
    return all(t.stride() == g.stride() for t, g in pairs if memory_order(t) == memory_order(g))


def in_format(tensor: Any, form: str) -> Any:
    """Return a tensor in a memory format; "odd" has strides that nobody chooses on axes of size 1."""
    if form == "last":
        return tensor.to(memory_format=LAST[tensor.dim()]) if tensor.dim() in LAST else tensor
    if form == "odd":
        strides = [97 if extent == 1 else s for s, extent in zip(tensor.stride(), tensor.shape, strict=True)]
        return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype).copy_(tensor)
    return tensor


CASES = [(*layer, torch.float32) for layer in LAYERS] + [(*layer, torch.complex64) for layer in COMPLEX]


@tiers("axes, transposed, src, dst, groups, taps, dtype", CASES, every=11)
def test_gradients_have_the_strides_of_their_tensors(
    axes: int, transposed: bool, src: int, dst: int, groups: int, taps: int, dtype: Any
) -> None:
    channels = (src, dst // groups) if transposed else (dst, src // groups)
    layer = getattr(ct, f"conv{'_transpose' * transposed}{axes}d")
    forms = ("plain", "last", "odd")
    for images, of_weight, of_input in product((1, 2), forms, forms):
        x = in_format(torch.ones(images, src, *[4] * axes, dtype=dtype), of_input).requires_grad_()
        weight = in_format(torch.ones(*channels, *[taps] * axes, dtype=dtype), of_weight).requires_grad_()
        bias = in_format(torch.ones(dst, dtype=dtype), of_weight).requires_grad_()
        result = layer(x, weight, bias, groups=groups)
        for recorded in (False, True):
            found = torch.autograd.grad(result.abs().sum(), (x, weight, bias), retain_graph=True, create_graph=recorded)
            assert same_strides(*zip((x, weight, bias), found, strict=True))


def model_of(form: str) -> Any:
    layers = (
        nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 1, 3),
        nn.ConvTranspose2d(1, 4, 1), nn.ConvTranspose2d(4, 4, 3, groups=4), nn.Conv2d(4, 2, (1, 3)),
    )  # fmt: skip
    model = nn.Sequential(*layers)
    return ct.reproducible(model.to(memory_format=torch.channels_last) if form == "last" else model)


def through_a_mode(model: Any, x: Any) -> Any:
    class Mode(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), words: Any = None) -> Any:
            return function(*args, **(words or {}))

    with Mode():
        return model(x).sum().backward()


WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "directly": lambda model, x: model(x).sum().backward(),
    "through a mode": through_a_mode,
}


@pytest.mark.parametrize("form", ["plain", "last"])
@pytest.mark.parametrize("way", WAYS)
def test_parameters_of_a_model(way: str, form: str) -> None:
    model, x = model_of(form), in_format(torch.ones(2, 3, 8, 8), "last")
    WAYS[way](model, x)
    assert same_strides(*[(parameter, parameter.grad) for parameter in model.parameters()])


@pytest.mark.long
@pytest.mark.parametrize("form", ["plain", "last"])
def test_parameters_of_a_compiled_model(form: str) -> None:
    model, x = model_of(form), in_format(torch.ones(2, 3, 8, 8), "last")
    torch.compile(model, backend="aot_eager")(x).sum().backward()
    assert same_strides(*[(parameter, parameter.grad) for parameter in model.parameters()])


@pytest.mark.skipif(not torch.distributed.is_available(), reason="PyTorch has no distributed package")
def test_data_parallel_does_not_warn() -> None:
    """DistributedDataParallel compares the strides of each gradient with the parameter's, and warns."""
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        for form in ("plain", "last"):
            model = nn.parallel.DistributedDataParallel(model_of(form))
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                model(in_format(torch.ones(2, 3, 8, 8), "last")).sum().backward()
    finally:
        torch.distributed.destroy_process_group()
        torch.set_warn_always(always)
