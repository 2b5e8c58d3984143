"""Layers that PyTorch's tensors go through: of one to four axes, in PyTorch's words and in ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import convgrad

torch = pytest.importorskip("torch")
ct = pytest.importorskip("convgrad.torch")

Ints = int | Sequence[int]
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64}
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


@dataclass(frozen=True)
class Layer:
    """A layer and the shapes of its operands, in PyTorch's layouts."""

    input: tuple[int, ...]
    weight: tuple[int, ...]
    transposed: bool = False
    bias: bool = True
    stride: Ints = 1
    begin: Ints = 0
    end: Ints | None = None
    dilation: Ints = 1
    groups: int = 1
    rest: dict[str, Any] = field(default_factory=dict)  # output_padding

    @property
    def axes(self) -> int:
        return len(self.weight) - 2

    @property
    def odd(self) -> bool:
        """Whether it is beyond what torch.nn.functional takes."""
        return self.end is not None or self.axes > 3

    def operands(self, dtype: Any, seed: int, integers: bool = False, grad: bool = False) -> list[Any]:
        """Return input, weight and bias, of numbers or of small integers, whose sums are exact."""
        rng, outputs = (
            np.random.default_rng(seed),
            self.weight[0] if not self.transposed else self.weight[1] * self.groups,
        )
        shapes = [self.input, self.weight, *[(outputs,)] * self.bias]
        made = [rng.integers(-3, 4, s) if integers else rng.standard_normal(s) for s in shapes]
        return [torch.tensor(array).to(dtype).requires_grad_(grad) for array in made]

    def __call__(self, *operands: Any) -> Any:
        """Call our function for any rank."""
        words = {"stride": self.stride, "padding_begin": self.begin, "padding_end": self.end}
        words |= {"dilation": self.dilation, "groups": self.groups}
        return (ct.conv_transpose if self.transposed else ct.convolution)(*operands, **words | self.rest)

    def named(self, module: Any, *operands: Any) -> Any:
        """Call the function of torch.nn.functional's name, of ours or of PyTorch's."""
        function = getattr(module, f"conv{'_transpose' * self.transposed}{self.axes}d")
        words = {"stride": self.stride, "padding": self.begin, "dilation": self.dilation, "groups": self.groups}
        return function(*operands, **words | self.rest)

    def ours(self, *operands: Any) -> tuple[np.ndarray, Any]:
        """Return the result by the functions on NumPy's arrays, and what gives the three gradients of a cotangent."""
        words: dict[str, Any] = {"strides": self.stride, "pads_begin": self.begin, "dilations": self.dilation}
        words |= {"pads_end": self.begin if self.end is None else self.end, "groups": self.groups, "data_format": "NCX"}
        lies = {"weights_format": "IOX" if self.transposed else "OIX"}
        src, weights, *bias = map(array_of, operands)
        call = words | lies | self.rest
        if self.transposed:
            result = convgrad.conv_transpose(src, weights, *bias, **call)
            data, filters = convgrad.conv_transpose_backward_data, convgrad.conv_transpose_backward_weights
            to_data = lambda v: data(v, weights, **call)  # noqa: E731
        else:
            result = convgrad.convolution(src, weights, *bias, **call)
            filters = convgrad.convolution_backward_weights
            to_data = lambda v: convgrad.convolution_backward_data(v, weights, src.shape, **call)  # noqa: E731

        def gradients(v: np.ndarray) -> list[np.ndarray]:
            found = [to_data(v), filters(src, v, weights.shape, **call)]
            return found + [convgrad.bias_add_backward(v, data_format="NCX")] * self.bias

        return result, gradients


LAYERS = {
    "1-D": Layer((2, 3, 11), (5, 3, 3), begin=1, stride=2),
    "plain": Layer((2, 4, 7, 6), (6, 4, 3, 2)),
    "all": Layer((2, 4, 9, 8), (6, 2, 3, 2), stride=(2, 3), begin=(2, 1), dilation=(1, 2), groups=2),
    "no bias": Layer((1, 8, 8, 8), (8, 8, 3, 3), begin=1, bias=False),
    "remainder": Layer((2, 3, 10, 10), (4, 3, 3, 3), stride=4),
    "depthwise": Layer((2, 16, 6, 5), (16, 1, 3, 3), begin=1, groups=16),
    "uneven pads": Layer((2, 3, 6, 7), (4, 3, 3, 3), begin=(2, 0), end=(0, 1), stride=2),
    "3-D": Layer((1, 4, 4, 5, 6), (6, 2, 2, 3, 3), begin=1, stride=(1, 2, 1), groups=2),
    "4-D": Layer((2, 2, 3, 4, 3, 2), (3, 2, 2, 3, 1, 2), begin=1, stride=2),
    "transposed 1-D": Layer((2, 3, 5), (3, 4, 3), True, stride=2, begin=1, rest={"output_padding": 1}),
    "transposed": Layer((2, 4, 4, 5), (4, 3, 3, 2), True, stride=(2, 1), begin=(1, 0), groups=2),
    "transposed far": Layer((2, 4, 3, 3), (4, 3, 2, 3), True, dilation=3, stride=2, rest={"output_padding": 2}),
    "transposed no bias": Layer((2, 4, 4, 3), (4, 6, 3, 3), True, bias=False, begin=1),
    "transposed uneven": Layer((2, 2, 4, 4), (2, 3, 3, 3), True, begin=(2, 0), end=(0, 1), stride=2),
    "transposed 3-D": Layer((1, 2, 3, 2, 3), (2, 3, 2, 3, 2), True, stride=2, begin=1, rest={"output_padding": 1}),
}


def array_of(tensor: Any) -> np.ndarray:
    """Return a tensor as an array, of bf16 by its bits."""
    if tensor.dtype is torch.bfloat16:
        return tensor.detach().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.detach().numpy()


def bits(value: Any) -> bytes:
    """Return the bits of a tensor or an array, in the order of its axes."""
    array = array_of(value) if isinstance(value, torch.Tensor) else value
    return np.ascontiguousarray(array).tobytes()


def integers(*shape: int, seed: int = 0) -> Any:
    """Return small integers, whose sums are exact, so that any right result has the same bits."""
    return torch.from_numpy(np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32))


def cotangent(like: Any, seed: int, integers: bool = False) -> Any:
    """Return what a result is multiplied by, laid as that."""
    rng = np.random.default_rng(seed)
    values = rng.integers(-3, 4, like.shape) if integers else rng.standard_normal(like.shape)
    return torch.tensor(values).to(like.dtype)


def all_of(layer: Callable[..., Any], operands: list[Any], device: str = "cpu", last: bool = False) -> list[Any]:
    """Return the result of a layer and its gradients, copied to the CPU."""
    given = [one.detach().to(device) for one in operands]
    if last and given[0].dim() in LAST:
        given[0] = given[0].contiguous(memory_format=LAST[given[0].dim()])
    given = [one.requires_grad_() for one in given]
    result = layer(*given)
    v = cotangent(result, 1).to(device)
    return [one.detach().cpu() for one in (result, *torch.autograd.grad(result, given, v))]


def same(found: list[Any], expected: list[Any]) -> bool:
    formats = [[(one.shape, one.stride(), one.dtype) for one in some] for some in (found, expected)]
    return formats[0] == formats[1] and [bits(one) for one in found] == [bits(one) for one in expected]
