"""Random numbers are PyTorch's for contiguous tensors, but for their last bits, and do not depend on memory formats."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch

from convgrad.torch import same_bits
from convgrad.torch.training.random import _BLOCK, _PART

pytestmark = pytest.mark.usefixtures("installed")
SIZES = (0, 1, 2, 5, _BLOCK - 1, _BLOCK, _BLOCK + 1, 2 * _BLOCK - 1, 1000, _PART - 1, _PART, _PART + 5, 2 * _PART + 17)
TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
BITS = {torch.float64: 53}  # of the uniform numbers, and of the arithmetic; 24 for others


def drawn(call: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random numbers of a seed, and the generator's next number."""
    torch.manual_seed(7)
    return call().double(), torch.rand(1)


def largest_difference(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return what PyTorch's rounding of radius, angle, cosine and of their product, and ours, may add up to.

    The angle 2 pi s has two roundings, so it is off by 4 pi u at most. The other steps have at most 10 roundings.
    """
    bits = BITS.get(dtype, 24)
    radius = math.sqrt(2 * bits * math.log(2))
    return radius * (4 * math.pi + 10) * 2.0**-bits + values.abs() * torch.finfo(dtype).eps


@pytest.mark.parametrize(("size", "dtype"), [*product(SIZES, TYPES)])
def test_normal_numbers_are_those_of_pytorch(size: int, dtype: torch.dtype) -> None:
    def call() -> torch.Tensor:
        return torch.randn(size, dtype=dtype)

    theirs, their_next = drawn(call)
    with same_bits():
        ours, our_next = drawn(call)
    assert (their_next == our_next).all()
    assert ((ours - theirs).abs() <= largest_difference(theirs, dtype)).all()


def test_normal_numbers_follow_their_formula() -> None:
    torch.manual_seed(3)
    r, s = torch.rand(64, 2, 8).double().unbind(1)
    radius = torch.sqrt(-2 * torch.log1p(-r))
    exact = torch.stack([radius * torch.cos(2 * math.pi * s), radius * torch.sin(2 * math.pi * s)], 1).view(-1)
    with same_bits():
        torch.manual_seed(3)
        result = torch.empty(1024).normal_(0.5, 3)
    expected = (exact * 3 + 0.5).numpy()
    ulp = np.spacing(np.abs(expected).astype(np.float32)).astype(np.float64)
    of_reference = 3 * 6 * 2.0**-49  # its angle is rounded, and its radius is below 6
    assert (np.abs(result.double().numpy() - expected) <= 0.501 * ulp + of_reference).all()


FILLS: dict[str, Callable[[torch.Tensor, torch.Generator | None], torch.Tensor]] = {
    "normal_": lambda x, generator: x.normal_(1, 2, generator=generator),
    "exponential_": lambda x, generator: x.exponential_(2, generator=generator),
    "bernoulli_": lambda x, generator: x.bernoulli_(0.3, generator=generator),
    "uniform_": lambda x, generator: x.uniform_(-1, 3, generator=generator),
}


@pytest.mark.parametrize(("name", "shape", "dtype"), [*product(FILLS, [(2, 3, 1, 2), (3, 5, 7, 11)], TYPES)])
def test_numbers_do_not_depend_on_the_memory_format(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    with same_bits():
        results = []
        for memory_format in (torch.contiguous_format, torch.channels_last):
            torch.manual_seed(5)
            results.append(FILLS[name](torch.empty(shape, dtype=dtype, memory_format=memory_format), None))
    assert torch.equal(*results)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", [7, 1000])
def test_bernoulli_numbers_are_those_of_pytorch(size: int, dtype: torch.dtype) -> None:
    def call() -> torch.Tensor:
        return torch.bernoulli(torch.linspace(0, 1, size).to(dtype))

    theirs, their_next = drawn(call)
    with same_bits():
        ours, our_next = drawn(call)
    assert torch.equal(theirs, ours)
    assert torch.equal(their_next, our_next)


@pytest.mark.parametrize(("name", "size", "dtype"), [*product(FILLS, (5, _BLOCK + 1, 2 * _PART + 17), TYPES)])
def test_numbers_do_not_depend_on_threads_or_on_whose_generator_it_is(name: str, size: int, dtype: torch.dtype) -> None:
    generator, before = torch.Generator(), torch.get_num_threads()
    with same_bits():
        results = []
        for threads, own in product((1, 2, 3), (None, generator)):
            torch.set_num_threads(threads)
            (generator if own else torch).manual_seed(11)
            results.append(FILLS[name](torch.empty(size, dtype=dtype), own))
        torch.set_num_threads(before)
    assert all(torch.equal(results[0], result) for result in results)
