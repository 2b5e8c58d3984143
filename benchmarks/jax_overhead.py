"""Measure convolutions under jit: convgrad.jax against jax.lax, forward and gradients, small and large, in turn.

python benchmarks/jax_overhead.py -o jax_overhead.csv

A figure is the median of ROUNDS means of as many calls as fill SLICE_MS, each call waited for; whoever is measured
takes a round in turn, and a ratio is the median of the rounds' ratios. Both run on all cores there are.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import jax
import numpy as np
from rows import asked, write_rows

import convgrad
import convgrad.jax
from convgrad.host import cpu_model

ROUNDS, SLICE_MS = 21, 20.0
NUMBERS = ("NHWC", "HWIO", "NHWC")
SHAPES = {"small": ((1, 8, 8, 8), (3, 3, 8, 8)), "large": ((8, 56, 56, 64), (3, 3, 64, 64))}
Call = Callable[[], object]


def programs(convolve: Callable[..., Any]) -> dict[str, Any]:
    """Return what is measured: one convolution, and both of its gradients of a cotangent."""

    def forward(src: Any, weights: Any, diff_dst: Any) -> Any:
        return convolve(src, weights, (1, 1), [(1, 1), (1, 1)], dimension_numbers=NUMBERS)

    def gradients(src: Any, weights: Any, diff_dst: Any) -> Any:
        return jax.vjp(lambda *given: forward(*given, None), src, weights)[1](diff_dst)

    return {"forward": jax.jit(forward), "gradients": jax.jit(gradients)}


def ours(name: str, given: list[Any]) -> Call:
    """Return the same on NumPy arrays: what is left of a program's time is JAX's."""
    src, weights, diff_dst = (np.asarray(array) for array in given)
    pads = {"pads_begin": 1, "pads_end": 1}
    if name == "forward":
        return partial(convgrad.convolution, src, weights, **pads)
    return lambda: (
        convgrad.convolution_backward_data(diff_dst, weights, src.shape, **pads),
        convgrad.convolution_backward_weights(src, diff_dst, weights.shape, **pads),
    )


def mean_us(call: Call, calls: int) -> float:
    """Return the time of one of so many calls."""
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return 1e6 * (time.perf_counter() - begin) / calls


def measured(contenders: dict[str, Call], rounds: int) -> dict[str, list[float]]:
    """Return each contender's times, round by round, all of them in turn."""
    calls = {}
    for name, call in contenders.items():
        call()
        calls[name] = max(1, int(1e3 * SLICE_MS / mean_us(call, 3)))
    found = [{name: mean_us(call, calls[name]) for name, call in contenders.items()} for _ in range(rounds)]
    return {name: [each[name] for each in found] for name in contenders}


def main() -> None:
    """Print the figures; write them as CSV where asked."""
    parser = argparse.ArgumentParser(description="Measure convolutions under jit.")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = asked(parser)
    print(cpu_model())
    rows, rng = [], np.random.default_rng(0)
    who = {"convgrad": programs(convgrad.jax.conv_general_dilated), "lax": programs(jax.lax.conv_general_dilated)}
    for size, shapes in SHAPES.items():
        given = [jax.numpy.asarray(rng.standard_normal(s, np.float32)) for s in (*shapes, shapes[0])]
        for what in who["lax"]:
            contenders: dict[str, Call] = {
                name: lambda program=each[what], given=given: jax.block_until_ready(program(*given))
                for name, each in who.items()
            }
            contenders["numpy"] = ours(what, given)
            times = measured(contenders, options.rounds)
            ratio = median(a / b for a, b in zip(times["convgrad"], times["lax"], strict=True))
            found = {name: median(each) for name, each in times.items()}
            words = "   ".join(f"{name} {us:9.1f} us" for name, us in found.items())
            print(f"{size:6}{what:10}{words}   convgrad / lax {ratio:.2f}", flush=True)
            rows.append(
                {"processor": cpu_model(), "size": size, "what": what, "ratio": f"{ratio:.3f}"}
                | {f"{name}_us": f"{us:.1f}" for name, us in found.items()}
            )
    if options.output:
        write_rows(options.output, rows)


if __name__ == "__main__":
    main()
