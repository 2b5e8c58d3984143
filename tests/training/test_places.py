"""Programs of several stages have the same bits in other threads and in forked processes, on both pools."""

from __future__ import annotations

import contextvars
import faulthandler
import json
import math
import os
import sys
import threading
from collections.abc import Callable

import pytest
import torch

import convgrad
import convgrad.torch as ct
from convgrad.engines import settings
from convgrad.torch import same_bits
from tests.support.children import HANG_S, in_child
from tests.support.tiers import tiers
from tests.training.test_replay import three_operators

SHAPES = {"small": (2, 6, 5, 5), "of several tasks": (4, 12, 70, 70)}


def operands_of(shape: tuple[int, ...]) -> list[torch.Tensor]:
    """Return an input, its gradient, and weights and biases of channels and of the last axis."""
    return [torch.randn(extents) for extents in (shape, shape, *[shape[1:2]] * 2, *[shape[-1:]] * 2)]


def digest(x: torch.Tensor, g: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *columns: torch.Tensor) -> str:
    """Return the hash of norms, softmax and their gradients, without autograd, which refuses to run after a fork."""
    aten, (images, channels, *extents) = torch.ops.aten, x.shape
    y, mean, inverse = aten.native_batch_norm(x, weight, bias, None, None, True, 0.1, 1e-5)
    results = [y, *aten.native_batch_norm_backward(g, x, weight, None, None, mean, inverse, True, 1e-5, [True] * 3)]
    sizes = images, channels, math.prod(extents), 3
    y, mean, inverse = aten.native_group_norm(x, weight, bias, *sizes, 1e-5)
    results += [y, *aten.native_group_norm_backward(g, x, mean, inverse, weight, *sizes, [True] * 3)]
    rows = x.shape[-1:]
    y, mean, inverse = aten.native_layer_norm(x, rows, *columns, 1e-5)
    results += [y, *aten.native_layer_norm_backward(g, x, rows, mean, inverse, *columns, [True] * 3)]
    for dim in (1, 3):
        y = torch.softmax(x, dim)
        results += [y, aten._softmax_backward_data(g, y, dim, torch.float32), torch.log_softmax(x, dim)]
    return ct.fingerprint(results)


def in_a_thread(compute: Callable[[], str]) -> str:
    found: list[str] = []
    contexts = [contextvars.copy_context() for _ in range(2)]  # which have the pool
    threads = [threading.Thread(target=each.run, args=(lambda: found.append(compute()),)) for each in contexts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] == found[1]
    return found[0]


def in_a_fork(compute: Callable[[], str]) -> str:
    compute()  # so that the parent has a pool, whose threads the child does not have
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            faulthandler.dump_traceback_later(HANG_S, exit=True)
            torch.set_num_threads(1)  # as PyTorch's DataLoader does, because OpenMP's threads stayed in the parent
            os.write(writing, compute().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        found = pipe.read()
    os.waitpid(child, 0)
    return found


PLACES: dict[str, Callable[[Callable[[], str]], str]] = {
    "here": lambda compute: compute(),
    "in two threads": in_a_thread,
    "in a fork": in_a_fork,
}


def has_results_in_a_fork() -> bool:
    """Return whether a forked child, whose parent recorded and repeated calls, has the parent's results."""

    def results() -> list[list[bytes]]:
        return [three_operators(seed, 400) for seed in (0, 1, 2)]

    expected = results()
    child = os.fork()
    if not child:
        os._exit(int(results() != expected))
    return not os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def print_digests(*sizes: str) -> None:
    """Print whether a fork repeats calls, and whether each pool, size and place gives the hash of one thread."""
    found: dict[str, dict[str, dict[str, bool]]] = {}
    with same_bits():
        repeated = has_results_in_a_fork()
        for size in sizes:
            operands = operands_of(SHAPES[size])

            def compute(operands: list[torch.Tensor] = operands) -> str:
                with same_bits():
                    return digest(*operands)

            with convgrad.threads(1):
                expected = digest(*operands)
            for pool in settings.POOLS:
                with convgrad.threads(3, pool=pool):
                    same = {place: run(compute) == expected for place, run in PLACES.items()}
                found.setdefault(pool, {})[size] = same
    print(json.dumps([repeated, found]))


@pytest.mark.skipif(sys.platform == "win32", reason="forks")
@tiers("sizes", [["of several tasks"]], long=[["small"]])
def test_programs_in_other_places(sizes: list[str]) -> None:
    repeated, found = in_child("tests.training.test_places", "print_digests", *sizes)
    assert repeated
    assert found == {pool: {size: dict.fromkeys(PLACES, True) for size in sizes} for pool in settings.POOLS}
