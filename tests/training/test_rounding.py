"""Operators have the same bits in any rounding mode of the caller, in first calls and in later ones."""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch

from convgrad.torch import same_bits
from convgrad.torch.training.arguments import _tensor_of_number
from tests.training.digests import digest

MODES = {"x86_64": [n << 10 for n in range(4)], "aarch64": [n << 22 for n in range(4)]}.get(platform.machine(), [])
pytestmark = [
    pytest.mark.usefixtures("installed"),
    pytest.mark.skipif(sys.platform != "linux" or not MODES, reason="the numbers of rounding modes are unknown"),
]
X, Y, LARGE = torch.linspace(-3, 3, 999), torch.linspace(0.3, 9, 999), torch.arange(1 << 24, (1 << 24) + 999)
LOW_X, LOW_Y = X.half(), Y.half()
CALLS: dict[str, Callable[[], torch.Tensor]] = {  # with numbers, integers, or results of other types
    "add": lambda: torch.add(X, Y, alpha=0.1),
    "add of two types": lambda: torch.add(X, LOW_Y, alpha=0.1),
    "add in place": lambda: LOW_X.clone().add_(Y, alpha=0.1),
    "add to f64": lambda: torch.add(X, Y, alpha=0.1, out=torch.empty(999, dtype=torch.float64)),
    "sub": lambda: torch.sub(X, Y, alpha=0.7),
    "addcmul": lambda: torch.addcmul(X, X, Y, value=0.3),
    "addcdiv": lambda: torch.addcdiv(X, X, Y, value=0.7),
    "log of integers": lambda: torch.log(LARGE),
    "root of integers": lambda: torch.sqrt(LARGE),
    "mean of f16": LOW_Y.mean,
    "sum": Y.sum,
}


@contextmanager
def rounding(mode: int) -> Iterator[None]:
    libm = ctypes.PyDLL("libm.so.6")
    assert not libm.fesetround(mode)
    try:
        yield
    finally:
        libm.fesetround(0)


@pytest.mark.parametrize("name", CALLS)
def test_calls_in_all_modes(name: str) -> None:
    found = set()
    with same_bits():
        for mode in (*MODES, *MODES):
            with rounding(mode):
                results = [CALLS[name]() for _ in range(2)]
            found |= {digest(result) for result in results}
    assert len(found) == 1


@pytest.mark.parametrize("mode", MODES[1:])
def test_numbers_are_kept_as_the_default_mode_rounds_them(mode: int) -> None:
    """The tensor of a Python number is kept for later calls."""
    values = []
    for first in (0, mode):
        _tensor_of_number.cache_clear()
        with same_bits():
            with rounding(first):
                torch.add(X, 0.1, alpha=0.3)
            values.append(digest(torch.add(X, 0.1, alpha=0.3)))
    assert len({*values}) == 1
