"""Measure what a small call costs more on PyTorch's and JAX's arrays than on NumPy's: 1x8x8x8, 3x3 taps, one thread.

python benchmarks/tensors.py -o tensors.csv

A figure is the median of ROUNDS differences of two means of CALLS calls, one after the other, by the number of arrays
that are handed over: the operands, and the result or ``out``. JAX's results are not waited for: they are there.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import Any

import numpy as np
from rows import asked, write_rows
from small_calls import AXES, CALLS, DATA, ROUNDS, TAPS, mean_us

import convgrad
from convgrad import arrays
from convgrad.host import cpu_model

Call = Callable[[], object]
KERNEL = (TAPS, TAPS, DATA[-1], DATA[-1])


def torch_arrays(name: str) -> list[Any]:
    """Return src, weights and dst as tensors."""
    import torch  # noqa: PLC0415 - an extra

    return [torch.randn(shape).to(getattr(torch, name)) for shape in (DATA, KERNEL, DATA)]


def jax_arrays(name: str) -> list[Any]:
    """Return src, weights and dst as JAX's arrays."""
    import jax.numpy as jnp  # noqa: PLC0415 - an extra

    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.standard_normal(shape), dtype=name) for shape in (DATA, KERNEL, DATA)]


MAKERS = {"torch": torch_arrays, "jax": jax_arrays}


def calls_on(src: Any, weights: Any, dst: Any, settled: convgrad.Compiled) -> Iterator[tuple[str, int, Call]]:
    """Yield what each call is, how many arrays it hands over, and the call."""
    pads = {"pads_begin": 1, "pads_end": 1, "threads": 1}
    yield "forward", 3, partial(convgrad.convolution, src, weights, **pads)
    backward = convgrad.convolution_backward_weights
    yield "weight gradient", 3, partial(backward, src, dst, weights.shape, **pads)
    if isinstance(src, np.ndarray) or (find_spec("torch") and type(src).__module__.startswith("torch")):
        yield "forward into out", 3, partial(convgrad.convolution, src, weights, out=dst, **pads)
    yield "compiled forward", 3, partial(settled, src, weights)


def main() -> None:
    """Print the figures; write them as CSV where asked."""
    parser = argparse.ArgumentParser(description="Measure what other libraries' arrays cost.")
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = asked(parser)
    rows: list[dict[str, object]] = []
    print(cpu_model())
    for library, make in MAKERS.items():
        for name in ("float32", "bfloat16", "float16") if find_spec(library) else ():
            theirs = make(name)
            ours = [arrays.take(each, "", "")[0].copy() for each in theirs]
            settled = convgrad.compile("Convolution", *ours[:2], threads=1, **AXES)
            plain = {what: call for what, _, call in calls_on(*ours, settled)}
            for what, number, call in calls_on(*theirs, settled):
                pairs = [
                    (mean_us(plain[what], options.calls), mean_us(call, options.calls))
                    for _ in range(options.rounds + 1)
                ]
                numpy_us = median(pair[0] for pair in pairs[1:])  # the first is to warm up
                more = median(pair[1] - pair[0] for pair in pairs[1:]) / number
                print(
                    f"{library:6} {name:9} {what:17} NumPy {numpy_us:6.2f} us, {more:5.2f} us more for each array",
                    flush=True,
                )
                row = {
                    "library": library,
                    "type": name,
                    "call": what,
                    "numpy_us": f"{numpy_us:.2f}",
                    "more_us": f"{more:.2f}",
                }
                rows.append({"processor": cpu_model(), **row})
    if options.output:
        write_rows(options.output, rows)


if __name__ == "__main__":
    main()
