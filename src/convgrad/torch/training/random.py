"""Random numbers in the row-major order of the indices, whatever the memory format; and sequences of numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from convgrad.torch.training.channels import ChannelProgram
from convgrad.torch.training.row import ELEMENTWISE, LOW, SERVE, common_type, row
from convgrad.torch.training.tensors import check_numbers, update

_PART = 1 << 16  # elements whose random numbers are drawn and used at a time, so that a cache has them


def _is_contiguous(self: Tensor, *_: object, **__: object) -> bool:
    return bool(self.is_contiguous())


def _is_unit(self: Tensor, low: float = 0, high: float = 1, **_: object) -> bool:
    return (low, high) == (0, 1) and _is_contiguous(self)


def _drawn(
    self: Tensor, dtype: torch.dtype, generator: torch.Generator | None
) -> Iterator[tuple[Tensor, slice, Tensor]]:
    """Yield the parts of a tensor in row-major order, to be filled, where they are, and a number per element.

    These are numbers from 0 to 1 of PyTorch's generator, which are the same on all processors. Those of f32 take half
    as much of the generator as those of f64.
    """
    target = self if self.is_contiguous() else torch.empty(self.shape, dtype=self.dtype)
    flat, numbers = target.view(-1), torch.empty(min(target.numel(), _PART), dtype=dtype)
    for begin in range(0, flat.numel(), _PART):
        part = flat[begin : begin + _PART]
        yield part, slice(begin, begin + part.numel()), numbers[: part.numel()].uniform_(generator=generator)
    if target is not self:
        self.copy_(target)


@row(
    "random_",
    "random_.from",
    "random_.to",
    formula="integers r",
    bound="exact",
    types=ELEMENTWISE,
    integers=SERVE,
    passed_on=_is_contiguous,
)
def integers(self: Tensor, *limits: int, generator: torch.Generator | None = None) -> Tensor:
    """Fill a tensor with random integers."""
    return self.copy_(torch.empty(self.shape, dtype=self.dtype).random_(*limits, generator=generator))


@row(
    "uniform_",
    formula="from + (to - from) * r; r of the type of self",
    bound="u (abs(to - from) + abs(result))",
    types=ELEMENTWISE,
    passed_on=_is_unit,
)
def uniform(self: Tensor, low: float = 0, high: float = 1, *, generator: torch.Generator | None = None) -> Tensor:
    """Fill a tensor with uniform random numbers. PyTorch's own numbers differ where there is no FMA."""
    largest = torch.finfo(self.dtype).max
    if not -largest <= low <= high <= min(largest, largest + low):
        raise RuntimeError(f"uniform_ needs from <= to, and both in {self.dtype}; got from={low} and to={high}")
    to, (x,) = common_type(torch.empty(self.shape, dtype=self.dtype).uniform_(generator=generator))
    return self.copy_((x * (high - low) + low).to(to))


@row(
    "bernoulli_.float",
    "bernoulli_.Tensor",
    formula="1 if r < p, else 0",
    bound="exact",
    types=ELEMENTWISE,
    integers=SERVE,
)
def bernoulli(self: Tensor, p: float | Tensor = 0.5, *, generator: torch.Generator | None = None) -> Tensor:
    """Fill a tensor with ones and zeros. PyTorch's own numbers differ between vendors of processors."""
    low, high = (float(p.min()), float(p.max())) if isinstance(p, torch.Tensor) and p.numel() else (p, p)
    if not (isinstance(low, torch.Tensor) or 0 <= low <= high <= 1):
        raise RuntimeError(f"bernoulli_ needs p from 0 to 1; got {low if low < 0 else high}")
    limits = p.expand(self.shape).reshape(-1) if isinstance(p, torch.Tensor) else p
    dtype = torch.float32 if isinstance(p, torch.Tensor) and p.dtype != torch.float64 else torch.float64
    for part, where, numbers in _drawn(self, dtype, generator):
        part.copy_(numbers < (limits[where] if isinstance(limits, torch.Tensor) else limits))
    return self


@row(
    "exponential_",
    formula="-log1p(-r) / lambd in f64",
    bound="0.501 ulp",
    types=ELEMENTWISE,
)
def exponential(self: Tensor, lambd: float = 1, *, generator: torch.Generator | None = None) -> Tensor:
    """Fill a tensor with exponential random numbers."""
    if lambd <= 0:
        raise RuntimeError(f"exponential_ needs lambd > 0; got {lambd}")
    for part, _, numbers in _drawn(self, torch.float64, generator):
        update("exponential", [part], numbers, lambd)
    return self


_NORMAL = (
    "mean + std * sqrt(-2 log(1 - r)) * cos(2 pi s), and as many with sin, in f64; of 16 numbers r and s, r are the "
    "first 8, and so are the results with cos; 16 more give the last 16 results, if others are left. Tensors of fewer "
    "than 16 elements take pairs s, r of f64"
)
_BLOCK = 16  # numbers r and s


def _normal_pairs(targets: Tensor, numbers: Tensor, mean: float, std: float, block: int = _BLOCK) -> None:
    """Write normal random numbers, which are made from the uniform numbers of a block."""
    (radii, angles), results = (x.view(-1, 2, block // 2).unbind(1) for x in (numbers, targets))
    update("normal", results, *((radii, angles) if block == _BLOCK else (angles, radii)), mean, std)


@row("normal_", formula=_NORMAL, bound="0.501 ulp of f32, then rounded", types=ELEMENTWISE)
def normal(self: Tensor, mean: float = 0, std: float = 1, *, generator: torch.Generator | None = None) -> Tensor:
    """Fill a tensor with normal random numbers: PyTorch's for contiguous tensors, but for their last bits."""
    if not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    size, dtype = self.numel(), torch.float64 if self.dtype == torch.float64 else torch.float32
    if size < _BLOCK:
        pairs = torch.empty(size + size % 2, dtype=torch.float64)
        _normal_pairs(pairs, torch.empty_like(pairs).uniform_(generator=generator), mean, std, 2)
        return self.copy_(pairs[:size].view(self.shape))
    target = self if self.is_contiguous() and self.dtype == dtype else torch.empty(self.shape, dtype=dtype)
    flat, whole = target.view(-1), size // _BLOCK * _BLOCK
    for part, _, numbers in _drawn(flat if self.dtype == dtype else flat[:whole], dtype, generator):
        length = part.numel() // _BLOCK * _BLOCK
        _normal_pairs(part[:length], numbers[:length], mean, std)
    if whole < size:  # PyTorch has not used the numbers that it drew for the others, in 16 bits it has not drawn them
        last = torch.empty(_BLOCK, dtype=dtype).uniform_(generator=generator)
        _normal_pairs(flat[-_BLOCK:], last, mean, std)
    return self if target is self else self.copy_(target)


@row(
    "normal.Tensor_Tensor",
    "normal.Tensor_float",
    "normal.float_Tensor",
    formula="mean + std * normal_()",
    bound="0.501 ulp and 2 u per operation",
    types=ELEMENTWISE,
)
def normal_of(mean: float | Tensor, std: float | Tensor = 1, *, generator: torch.Generator | None = None) -> Tensor:
    """Return normal random numbers with a mean and a deviation per element."""
    if not isinstance(mean, torch.Tensor):
        check_numbers(mean)
    if isinstance(std, torch.Tensor) and not (std >= 0).all():
        raise RuntimeError(f"normal expects all elements of std >= 0.0; got {float(std.min())}")
    tensors = [parameter for parameter in (mean, std) if isinstance(parameter, torch.Tensor)]
    if not tensors[0].is_floating_point():
        raise RuntimeError(f"normal: the numbers have the type of the first tensor, floats; got {tensors[0].dtype}")
    shape = torch.broadcast_shapes(*[tensor.shape for tensor in tensors])
    result = torch.empty(shape, dtype=tensors[0].dtype)
    return normal(result, generator=generator).mul_(std).add_(mean)


def _is_exact(start: float, end: float, step: float = 1, *, out: Tensor) -> bool:
    is_of_integers = all(float(number).is_integer() and abs(number) < 1 << 24 for number in (start, end, step))
    return (is_of_integers and out.dtype not in LOW) or not out.is_floating_point()  # ATen rounds the first of a vector


@row(
    "arange.start_out",
    formula="start + step * index in f64",
    bound="0.501 ulp",
    types=ELEMENTWISE,
    passed_on=_is_exact,
)
def arange(start: float, end: float, step: float = 1, *, out: Tensor) -> Tensor:
    """Return numbers at a distance of ``step``."""
    if not (all(map(math.isfinite, (start, end, step))) and step and (end - start) * step >= 0):
        raise RuntimeError(f"arange has an unsupported range: {start} to {end} by {step}")
    number = math.ceil((end - start) / step)
    if number >= 1 << 48:  # more than any memory has
        raise RuntimeError(f"arange has {number:.0e} numbers, which are too many")
    return (torch.arange(number).to(torch.float64) * step + start).to(out.dtype)


def _spaced(start: float, end: float, steps: int, out: Tensor) -> Tensor:
    """Return ``steps`` f64 numbers at equal distances, which both ends are among, for a tensor ``out``."""
    if steps < 0:
        raise RuntimeError(f"number of steps must be non-negative; got {steps}")
    if not out.is_floating_point():  # PyTorch cuts off both ends first
        limits = torch.iinfo(out.dtype)
        if not all(limits.min <= number <= limits.max for number in (start, end)[:steps]):
            raise RuntimeError(f"both ends must be in {out.dtype}; got {start} and {end}")
        start, end = (math.trunc(number) if math.isfinite(number) else 0 for number in (start, end))
    elif out.dtype != torch.float64:
        check_numbers(start, end)
    index = torch.arange(steps).to(torch.float64)
    step = (end - start) / (steps - 1) if steps > 1 else 0.0
    return torch.where(index < max(steps // 2, 1), index * step + start, end - (steps - 1 - index) * step)


@row(
    "linspace.out",
    formula="start + step * index in the first half, else end - step * (steps - 1 - index), in f64",
    bound="0.501 ulp, and 2^-52 max(abs(start), abs(end))",
    types=ELEMENTWISE,
    integers=SERVE,
)
def linspace(start: float, end: float, steps: int, *, out: Tensor) -> Tensor:
    """Return numbers from one to another at equal distances."""
    return _spaced(start, end, steps, out).to(out.dtype)


@row(
    "logspace.out",
    formula="base to the powers of linspace in f64",
    bound="0.501 ulp for exponents up to 100",
    types=ELEMENTWISE,
    integers=SERVE,
)
def logspace(start: float, end: float, steps: int, base: float = 10.0, *, out: Tensor) -> Tensor:
    """Return powers of a base whose exponents have equal distances."""
    exponents = _spaced(start, end, steps, out)
    program = ChannelProgram(steps)
    (powers,) = program.coefficients("power", (steps,), [float(base), exponents], 0, [torch.float64])
    program.run()
    return powers.to(out.dtype)
