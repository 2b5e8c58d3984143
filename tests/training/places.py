"""Hashes of programs of several stages, computed in other threads and in forked processes, on both pools."""

from __future__ import annotations

import contextvars
import faulthandler
import hashlib
import math
import os
import threading
from collections.abc import Callable, Iterator
from itertools import product

import torch

import convgrad
import convgrad.torch as ct
from convgrad.engines import settings
from convgrad.torch import same_bits
from tests.support.children import HANG_S

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


def in_a_fork(compute: Callable[[], str], threads: int | None = 1) -> str:
    """Return what a forked child computes; by default, PyTorch has one thread in it."""
    compute()  # so that the parent has a pool, whose threads the child does not have
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            faulthandler.dump_traceback_later(HANG_S, exit=True)
            if threads is not None:  # as PyTorch's DataLoader does, because OpenMP's threads stayed in the parent
                torch.set_num_threads(threads)
            os.write(writing, compute().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        found = pipe.read()
    os.waitpid(child, 0)
    return found


def three_operators(seed: int, rows: int) -> list[bytes]:
    x = torch.randn((rows, 24), generator=torch.Generator().manual_seed(seed))
    results = torch.nn.functional.layer_norm(x, [24]), torch.softmax(x, -1), torch.add(x, x.neg(), alpha=0.3)
    return [result.numpy().tobytes() for result in results]


def repeated() -> str:
    """Return the hash of calls of which the later ones run again what the first ones have recorded."""
    return hashlib.sha256(b"".join(one for seed in (0, 1, 2) for one in three_operators(seed, 400))).hexdigest()


PLACES: list[Callable[[Callable[[], str]], str]] = [lambda compute: compute(), in_a_thread, in_a_fork]


def places(which: str, forks: bool) -> Iterator[tuple[str, str]]:
    """Yield cases and hashes: of this thread only, or of each pool and place, which shall be the same."""
    with same_bits():
        yield "repeated calls", repeated()
        if forks:
            yield "repeated calls", in_a_fork(repeated, None)
        for size in SHAPES if which == "long" else ("of several tasks",):
            torch.manual_seed(0)
            operands = operands_of(SHAPES[size])

            def compute(operands: list[torch.Tensor] = operands) -> str:
                with same_bits():
                    return digest(*operands)

            with convgrad.threads(1):
                yield size, digest(*operands)
            for pool, place in product(settings.POOLS if forks else (), PLACES):
                with convgrad.threads(3, pool=pool):
                    yield size, place(compute)
