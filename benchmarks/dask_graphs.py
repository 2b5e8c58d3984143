"""Measure what Dask's graphs cost: to build, to optimize, to send, and each of their tasks beside the plain call.

python benchmarks/dask_graphs.py -o dask_graphs.csv

Of each call graphs of so many chunks are built, of arrays that are never made. Then the call is computed on arrays in
memory in this process, by Dask's synchronous scheduler, beside the plain call, both on one thread: a round takes
one sample of either, and a figure is the median of the rounds.
"""

from __future__ import annotations

import argparse
import pickle
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import dask
import dask.array as da
import numpy as np
from rows import asked, write_rows

import convgrad
import convgrad.dask
from convgrad.host import cpu_model

LAYER = {"auto_pad": "same_upper"}
CHUNKS, ROUNDS = (100, 1000, 10_000), 7

# What is asked of an array of images, how many images and rows a chunk has, and the plain call
Call = tuple[tuple[int, ...], int, int, Callable[[Any, Any], Any]]
WEIGHTS = np.ones((3, 3, 64, 64), np.float32)
CALLS: dict[str, Call] = {
    "weight gradient, 1 image": ((56, 56, 64), 1, 56, lambda of, x: of.convolution_backward_weights(
        x, x, (3, 3, 64, 64), **LAYER)),
    "weight gradient, 7 images": ((56, 56, 64), 7, 56, lambda of, x: of.convolution_backward_weights(
        x, x, (3, 3, 64, 64), **LAYER)),
    "weight gradient, 16 images": ((56, 56, 64), 16, 56, lambda of, x: of.convolution_backward_weights(
        x, x, (3, 3, 64, 64), **LAYER)),
    "weight gradient, 8 rows": ((56, 56, 64), 1, 8, lambda of, x: of.convolution_backward_weights(
        x, x, (3, 3, 64, 64), **LAYER)),
    "forward, 8 rows": ((56, 56, 64), 1, 8, lambda of, x: of.convolution(x, WEIGHTS, **LAYER)),
}  # fmt: skip


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the milliseconds of a call, and what it gave."""
    begin = time.perf_counter()
    result = call()
    return 1e3 * (time.perf_counter() - begin), result


def graph_row(name: str, chunks: int) -> dict[str, Any]:
    """Return what a graph of so many chunks costs."""
    image, images, rows, call = CALLS[name]
    batch = -(-chunks * images * rows // image[0])
    x = da.zeros((batch, *image), dtype=np.float32, chunks=(images, rows, -1, -1))
    build_ms, lazy = timed(lambda: call(convgrad.dask, x))
    optimize_ms, _ = timed(lambda: dask.optimize(lazy))
    layers = [layer for name, layer in lazy.dask.layers.items() if name not in x.dask.layers]
    tasks, size = sum(map(len, layers)), len(pickle.dumps(layers))
    return {"call": name, "chunks": x.npartitions, "tasks": tasks, "build_ms": round(build_ms, 1),
            "optimize_ms": round(optimize_ms, 1), "bytes_a_task": round(size / tasks)}  # fmt: skip


def call_row(name: str, batch: int, rounds: int) -> dict[str, Any]:
    """Return what a call of some images takes beside the plain one."""
    image, images, rows, call = CALLS[name]
    array = np.random.default_rng(0).standard_normal((batch, *image), np.float32)
    x = da.from_array(array, chunks=(images, rows, -1, -1))
    lazy = call(convgrad.dask, x)
    times: list[tuple[float, float]] = []
    with convgrad.threads(1):
        for n in range(rounds + 1):
            plain_ms, plain = timed(lambda: call(convgrad, array))
            dask_ms, got = timed(lambda: lazy.compute(scheduler="synchronous"))
            assert got.tobytes() == plain.tobytes()
            times += [(plain_ms, dask_ms)] * bool(n)  # the first compiles
    plain_ms, dask_ms = (median(one) for one in zip(*times, strict=True))
    ratio = median(mine / plain for plain, mine in times)
    return {"call": name, "images": batch, "plain_ms": round(plain_ms, 1), "dask_ms": round(dask_ms, 1),
            "ratio": round(ratio, 3)}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure what Dask's graphs cost.")
    parser.add_argument("--chunks", type=int, nargs="+", default=CHUNKS)
    parser.add_argument("--batch", type=int, default=48, help="images of the calls that are computed")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = asked(parser, arguments, default=Path("dask_graphs.csv"))
    host = {"processor": cpu_model(), "dask": dask.__version__}
    found = [host | graph_row(name, chunks) for name in CALLS for chunks in options.chunks]
    found += [host | call_row(name, options.batch, options.rounds) for name in CALLS]
    names = dict.fromkeys(name for row in found for name in row)
    write_rows(options.output, [{name: row.get(name, "") for name in names} for row in found])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
