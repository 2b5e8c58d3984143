"""Calls that run again without Python code: they read other tensors and factors, and check what they write to."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy

import pytest
import torch
from torch.utils._pytree import tree_leaves

from convgrad.engines.settings import max_error
from convgrad.torch import kernels, same_bits
from convgrad.torch.training.replay import Replays, replayed
from convgrad.torch.training.tensors import elements
from tests.support.tiers import tiers
from tests.training.digests import digest
from tests.training.places import three_operators
from tests.training.row_cases import CASES, drawing, operator

pytestmark = pytest.mark.usefixtures("installed")


def numbers(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(autouse=True)
def _context() -> object:
    with same_bits():
        yield


def test_factors_and_tensors_are_read_again() -> None:
    for step in range(4):
        x, y, factor = numbers(step, 5, 7), numbers(step + 9, 5, 7), 0.5 + step
        assert torch.equal(torch.add(x, y, alpha=factor), x + torch.mul(y, factor))
        assert torch.equal(x.clone().add_(y, alpha=factor), x + torch.mul(y, factor))


def test_factors_that_overflow_are_refused_again() -> None:
    x = numbers(1, 5)
    torch.add(x, x, alpha=2.0)
    with pytest.raises(RuntimeError, match="overflow"):
        torch.add(x, x, alpha=1e39)


def test_probabilities_are_checked_again() -> None:
    x = numbers(1, 5).sigmoid()
    for _ in range(3):
        torch.nn.functional.binary_cross_entropy(x, x)
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        torch.nn.functional.binary_cross_entropy(x + 1, x)


def test_one_tensor_as_two_arguments() -> None:
    for step in range(4):
        x, y, z = (numbers(step + seed, 8) for seed in (0, 9, 19))
        expected = x + torch.mul(y, 0.5) * (y if step % 2 else z)
        assert torch.equal(torch.addcmul(x, y, y if step % 2 else z, value=0.5), expected)


def test_overlapping_tensors_are_refused_again() -> None:
    memory = numbers(2, 9)
    for _ in range(2):
        numbers(3, 8).add_(numbers(4, 8), alpha=0.5)
    with pytest.raises(RuntimeError, match="single"):
        memory[:8].add_(memory[1:], alpha=0.5)


def test_parts_of_a_tensor_are_not_taken_for_another_one() -> None:
    """The first call writes to the half of its operand that it reads at this place; later calls write elsewhere."""
    for step in range(3):
        x = numbers(step, 8, 5)
        out = torch.empty(4, 5) if step else x[4:]
        expected = torch.nn.functional.glu(x.clone(), 0)
        assert torch.equal(torch.ops.aten.glu.out(x, 0, out=out), expected)


def test_running_values_move_at_each_call() -> None:
    mean, variance = torch.zeros(3), torch.ones(3)
    for step in range(3):
        x, expected = numbers(step, 4, 3, 5, 5), mean * 0.9
        torch.nn.functional.batch_norm(x, mean, variance, training=True)
        torch.testing.assert_close(mean, expected + 0.1 * x.mean((0, 2, 3)))


@pytest.mark.parametrize("size", [3, 8, 40, 300])
def test_memory_of_copies_is_not_taken_for_that_of_results(size: int) -> None:
    """A copy of an operand is freed before a result of its size is allocated, often at the same address."""

    @replayed
    def computed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        total = elements("add", x, y, 1.0)  # copies y, which is transposed
        return elements("product", total, 2.0)

    for step in range(6):
        x, y = numbers(step, size, size), numbers(step + 9, size, size).t()
        assert torch.equal(computed(x, y), (x + y) * 2)


def test_results_have_memory_of_their_own() -> None:
    first, second = (torch.nn.functional.layer_norm(numbers(step, 6, 8), [8]) for step in range(2))
    again = torch.nn.functional.layer_norm(numbers(0, 6, 8), [8])
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


def bits(name: str, dtype: torch.dtype, last: bool, seed: int) -> list[bytes]:
    """Call an operator on random tensors, and return the bits of its results and arguments afterwards."""
    make, options = deepcopy(CASES[name])
    torch.manual_seed(seed)
    arguments = make(drawing(dtype, last, seed, integers=False))
    results = operator(name)(*arguments, **options)
    tensors = [leaf for leaf in tree_leaves((results, arguments)) if isinstance(leaf, torch.Tensor)]
    return [tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for tensor in tensors]


@tiers("name, dtype, last", CASES, (torch.float32, torch.bfloat16), (False, True), every=5)
def test_later_calls_have_the_bits_of_python_code(
    name: str, dtype: torch.dtype, last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recorded call must not miss what a function does besides, for example to a result or by a tensor's values."""
    if dtype != torch.float32 and name.startswith(("native", "_native")):
        pytest.skip("statistics are f32")
    _, later = (bits(name, dtype, last, seed) for seed in (0, 1))
    monkeypatch.setattr(Replays, "again", lambda *_: None)
    assert bits(name, dtype, last, 1) == later


def test_threads_call_at_once_for_the_first_time() -> None:
    """Calls that are recorded and calls that run again, in eight threads at once."""
    session = same_bits().start()
    try:
        with ThreadPoolExecutor(8) as pool:
            found = [[*pool.map(three_operators, range(32), [rows] * 32)] for rows in (5, 6, 7)]
    finally:
        session.stop()
    assert found == [[three_operators(seed, rows) for seed in range(32)] for rows in (5, 6, 7)]


def test_autocast_is_not_recorded() -> None:
    """Calls in f32 inside and outside of autocast alternate; only the linear layer is cast to bf16."""
    x, layer = numbers(1, 5, 24), torch.nn.Linear(24, 8)
    plain, cast = [], []
    for _ in range(3):
        plain.append(torch.softmax(layer(x), -1))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            cast.append(torch.softmax(layer(x), -1))
    assert {result.dtype for result in plain} == {torch.float32}
    assert {result.dtype for result in cast} == {torch.bfloat16}
    assert all(torch.equal(result, plain[0]) for result in plain)
    assert all(torch.equal(result, cast[0]) for result in cast)


def test_convolutions_follow_the_settings_of_each_call() -> None:
    x, w, reference = numbers(1, 2, 64, 24, 24), numbers(2, 64, 64, 3, 3), {}
    for _ in range(2):
        for maximum in (1, 64, 8):
            with max_error(maximum):
                found = digest(torch.nn.functional.conv2d(x, w, padding=1))
                assert reference.setdefault(maximum, found) == found
    assert len({*reference.values()}) == 3


@pytest.mark.parametrize("name", ["convolution", "convolution_backward", "mm", "bmm"])
def test_products_run_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bits(name, torch.float32, False, 0)
    for function in ("compute", "gradients"):
        monkeypatch.delattr(kernels, function)
    bits(name, torch.float32, False, 1)
