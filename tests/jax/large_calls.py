"""A program for tests: many large calls of a compiled convolution, one after the other, outstanding, from four threads.

``python -m tests.jax.large_calls --calls 500 --megabytes 100`` prints a line for each; it hangs where a call waits for
threads that others have taken. ``--leave`` ends the process while calls are outstanding.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import convgrad.jax as cj

OUTSTANDING, THREADS, CHANNELS = 8, 4, 64


def in_turn(call: Callable[[], Any], calls: int) -> list[Any]:
    return [call().block_until_ready() for _ in range(calls)][-1:]


def outstanding(call: Callable[[], Any], calls: int) -> list[Any]:
    results: list[Any] = []
    for _ in range(0, calls, OUTSTANDING):
        results = jax.block_until_ready([call() for _ in range(OUTSTANDING)])
    return results


def threads(call: Callable[[], Any], calls: int) -> list[Any]:
    with ThreadPoolExecutor(THREADS) as pool:
        return [one for each in pool.map(lambda _: in_turn(call, calls // THREADS), range(THREADS)) for one in each]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--leave", action="store_true")
    options = parser.parse_args()
    positions = options.megabytes * 1_000_000 // (4 * CHANNELS)
    src, weights = jnp.ones((1, positions, CHANNELS)), jnp.ones((1, CHANNELS, 4))
    program = jax.jit(lambda src, weights: cj.convolution(src, weights) + cj.convolution(src, 2 * weights))
    if options.leave:
        kept = [program(src, weights) for _ in range(options.calls)]
        print(f"{len(kept)} outstanding", flush=True)
        return
    for way in (in_turn, outstanding, threads):
        begin = time.perf_counter()
        results = way(lambda: program(src, weights), options.calls)
        took = time.perf_counter() - begin
        assert all(np.all(np.asarray(result) == 3 * CHANNELS) for result in results)
        print(f"{options.calls} calls of {src.nbytes / 1e6:.0f} MB, {way.__name__}: {took:.1f} s", flush=True)


if __name__ == "__main__":
    main()
