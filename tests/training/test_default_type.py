"""Types of results with each default type of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch

from convgrad.torch import same_bits


def outcome(call: Callable[[], Any]) -> Any:
    """Return the results of a call as nested lists with types, or the type of its error."""
    try:
        found = call()
    except (RuntimeError, IndexError, ValueError) as error:
        return RuntimeError if isinstance(error, RuntimeError) else type(error)  # NotImplementedError is one, too
    several = found if isinstance(found, list | tuple) else [found]
    return [None if one is None else (one.dtype, one.shape, repr(one.tolist())) for one in several]


@contextmanager
def default_type(dtype: torch.dtype) -> Iterator[None]:
    old = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(old)


NUMBERS = True, 3, 1.5
TYPES = [torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.float16, torch.float32]


@pytest.mark.parametrize("default", [torch.float32, torch.bfloat16, torch.float16])
def test_types_of_tensors_and_numbers(default: torch.dtype) -> None:
    names = "add", "sub", "mul", "div", "rsub"
    cases = list(product(names, TYPES, ((), (3,)), NUMBERS))

    def outcomes() -> list[Any]:
        return [
            outcome(partial(getattr(torch, name), torch.ones(shape).to(dtype), number))
            for name, dtype, shape, number in cases
        ]

    with default_type(default):
        expected = outcomes()
        with same_bits():
            found = outcomes()
    for case, one, other in zip(cases, found, expected, strict=True):
        assert one == other, case


def test_the_default_type_may_change_while_kernels_are_installed() -> None:
    with same_bits(), ThreadPoolExecutor(1) as other:
        for default in (torch.float32, torch.bfloat16, torch.float32):
            with default_type(default):
                inside = torch.tensor(True) + 1.5
                assert inside.dtype == other.submit(lambda: torch.tensor(True) + 1.5).result().dtype == default
