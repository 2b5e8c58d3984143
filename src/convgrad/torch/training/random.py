"""Random numbers in the row-major order of the indices, whatever the memory format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from convgrad.torch.training.elements import sqrt
from convgrad.torch.training.functions import cos64, log64
from convgrad.torch.training.row import ELEMENTWISE, Tensor, common_type, row

_ORDER = "numbers of PyTorch's generator, in row-major order of the indices"


def _in_order(name: str) -> Callable[..., Tensor]:
    """Return an in-place operator of PyTorch that draws for contiguous memory first, then copies."""

    def draw(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return self.copy_(getattr(torch.empty(self.shape, dtype=self.dtype), name)(*args, **kwargs))

    return draw


def _is_contiguous(self: Tensor, *_: object, **__: object) -> bool:
    return bool(self.is_contiguous())


for _name, _overloads in {"bernoulli_": (".float", ".Tensor"), "exponential_": ("",)}.items():
    row(
        *[f"{_name}{one}" for one in _overloads],
        formula=f"{_name} for contiguous memory: {_ORDER}",
        bound="as PyTorch",
        types=ELEMENTWISE,
        passed_on=_is_contiguous,
    )(_in_order(_name))


def _is_unit(self: Tensor, low: float = 0, high: float = 1, **_: object) -> bool:
    return (low, high) == (0, 1) and _is_contiguous(self)


@row(
    "uniform_",
    formula=f"from + (to - from) * u; u: {_ORDER}",
    bound="u (abs(to - from) + abs(result))",
    types=ELEMENTWISE,
    passed_on=_is_unit,
)
def uniform(self: Tensor, low: float = 0, high: float = 1, *, generator: Any = None) -> Tensor:
    """Fill a tensor with uniform random numbers. PyTorch's own numbers differ where there is no FMA."""
    if low > high:
        raise RuntimeError(f"uniform_ needs from <= to; got from={low} and to={high}")
    numbers = torch.empty(self.shape, dtype=self.dtype).uniform_(generator=generator)
    to, (x,) = common_type(numbers)
    return self.copy_((x * (high - low) + low).to(to))


@row(
    "normal_",
    formula="mean + std * (sqrt(-2 log(1 - u)) * cos(2 pi v)) in f64, then rounded; u, v: pairs of f64 uniform "
    f"{_ORDER}",
    bound="0.501 ulp",
    types=ELEMENTWISE,
)
def normal(self: Tensor, mean: float = 0, std: float = 1, *, generator: Any = None) -> Tensor:
    """Fill a tensor with normal random numbers. PyTorch's own numbers differ between processors."""
    if std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    pairs = torch.empty((self.numel(), 2), dtype=torch.float64).uniform_(generator=generator)
    radius = sqrt(log64(1 - pairs[:, 0]) * -2)
    return self.copy_((radius * cos64(pairs[:, 1]) * std + mean).reshape(self.shape))
