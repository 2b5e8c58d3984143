"""Random layers are PyTorch's: results and gradients equal on integers, types, shapes and the order of strides too."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import convgrad.torch as ct  # noqa: E402
from convgrad import InvalidShapeError  # noqa: E402
from tests.torch.layers import LAST  # noqa: E402

F = torch.nn.functional
TYPES = (torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16)


def every_other(tensor: Any) -> Any:
    """Return the tensor as every other element of its last axis."""
    wide = torch.zeros(*tensor.shape[:-1], 2 * tensor.shape[-1], dtype=tensor.dtype)
    wide[..., ::2] = tensor
    return wide[..., ::2]


MEMORY = {
    "plain": lambda t: t,
    "channels last": lambda t: t.to(memory_format=LAST[t.dim()]) if t.dim() in LAST else t,
    "transposed": lambda t: t.transpose(-1, -2).contiguous().transpose(-1, -2),
    "every other": every_other,
    "one image": lambda t: t[:1].expand(t.shape),
    "unaligned": lambda t: torch.cat([t.new_zeros(1), t.flatten()])[1:].view(t.shape),
}


def made(seed: int) -> tuple[str, tuple[Any, ...], dict[str, Any], bool]:
    """Return the function's name, its tensors, its other arguments, and whether memory tells its strides."""
    rng, numbers = random.Random(seed), torch.Generator().manual_seed(seed)
    axes, transposed, groups = rng.choice((1, 2, 2, 3)), rng.random() < 0.4, rng.choice((1, 1, 2, 3))
    src, dst = groups * rng.randint(1, 4), groups * rng.randint(1, 4)

    def per_axis(low: int, high: int) -> tuple[int, ...]:
        return tuple(rng.randint(low, high) for _ in range(axes))

    kernel, strides, dilations, dtype = per_axis(1, 4), per_axis(1, 3), per_axis(1, 3), rng.choice(TYPES)
    layer: dict[str, Any] = {"stride": strides, "padding": per_axis(0, 3), "dilation": dilations, "groups": groups}
    if transposed:
        layer["output_padding"] = tuple(rng.randrange(max(s, d)) for s, d in zip(strides, dilations, strict=True))
    elif rng.random() < 0.2:
        layer |= {"stride": 1, "padding": rng.choice(("same", "valid"))}

    def integers(*shape: int) -> Any:
        return torch.randint(-2, 3, shape, generator=numbers).to(dtype)

    memory = rng.choice(list(MEMORY)), rng.choice(list(MEMORY))
    x = MEMORY[memory[0]](integers(rng.randint(0, 3), src, *per_axis(4, 9)))
    w = MEMORY[memory[1]](integers(*((src, dst // groups) if transposed else (dst, src // groups)), *kernel))
    bias = integers(dst) if rng.random() < 0.5 else None
    told = x.numel() > 0 and (axes == 2 or set(memory) == {"plain"})
    return f"conv{'_transpose' * transposed}{axes}d", (x, w, bias), layer, told


def results(module: Any, name: str, operands: tuple[Any, ...], layer: dict[str, Any]) -> list[Any]:
    """Return the result and all gradients."""
    given = [None if t is None else t.detach().requires_grad_() for t in operands]
    result = getattr(module, name)(*given, **layer)
    v = torch.randint(-2, 3, result.shape, generator=torch.Generator().manual_seed(1)).to(result.dtype)
    return [result.detach(), *torch.autograd.grad(result, [t for t in given if t is not None], v)]


def strides_that_count(tensor: Any) -> list[int]:
    return [stride for stride, extent in zip(tensor.stride(), tensor.shape, strict=True) if extent > 1]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Using padding='same' with even")
@pytest.mark.parametrize("block", range(4))
def test_random_layers_are_pytorch_s(block: int) -> None:
    equal = 0
    for seed in range(50 * block, 50 * block + 50):
        name, operands, layer, told = made(seed)
        try:
            found = results(ct, name, operands, layer)
        except InvalidShapeError:  # no position: PyTorch refuses it too, or makes a transposed layer's result empty
            with suppress(RuntimeError):
                assert results(F, name, operands, layer)[0].numel() == 0
            continue
        for one, other in zip(found, results(F, name, operands, layer), strict=True):
            assert one.dtype == other.dtype
            assert torch.equal(one, other), seed
            assert not told or strides_that_count(one) == strides_that_count(other), seed
        equal += 1
    assert equal > 35
