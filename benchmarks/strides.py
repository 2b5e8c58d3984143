"""Find layers whose sizes are powers of two and that are slower than layers of neighbouring sizes.

python benchmarks/strides.py -o benchmarks/results/strides.csv

Rows or lines that are a power of two apart use few sets of a cache. A row is a size with a pass, a type and a memory
format. ``ratio`` is its time per multiply-add divided by the mean of both neighbours' times. ``offset_ratio`` is its
time with operands that begin 4 bytes after the start of a cache line, divided by its time with aligned operands.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from rows import asked, write_rows

from convgrad.arrays import aligned
from convgrad.cli.bench.suites import cases
from convgrad.cli.bench.work import make_work
from convgrad.functional.run import run
from convgrad.host import core_count, cpu_model

SAMPLE_S, ROUNDS, OFFSET = 0.03, 5, 4
SIZES = (
    ("1024 channels in", "mb2ic{0}ih14oc128oh14", (1000, 1024, 1040)),
    ("1024 channels out", "mb2ic128ih14oc{0}oh14", (1000, 1024, 1040)),
    ("2048 to 10 channels", "mb2ic{0}ih14oc10oh14", (2040, 2048, 2056)),
    ("512 channels in", "mb2ic{0}ih14oc128oh14", (500, 512, 528)),
    ("256 channels in and out", "mb4ic{0}ih14oc{0}oh14", (240, 256, 272)),
    ("512 depthwise channels", "g{0}mb4ic{0}ih14oc{0}oh14", (496, 512, 528)),
    ("image of 16x16", "mb8ic64ih{0}oc64oh{0}", (14, 16, 18)),
    ("image of 32x32", "mb4ic64ih{0}oc64oh{0}", (30, 32, 34)),
    ("image of 64x64", "mb2ic32ih{0}oc64oh{0}", (62, 64, 66)),
    ("image of 128x128", "mb1ic16ih{0}oc32oh{0}", (126, 128, 130)),
)
KERNELS = ("kh1ph0", "kh3ph1")
Timed = tuple[Callable[[], object], int]  # a call, and its multiply-adds


def moved(array: Any) -> Any:
    """Return a copy whose first element is ``OFFSET`` bytes after the start of a cache line."""
    memory = aligned((array.nbytes + OFFSET,), np.dtype(np.uint8))
    copy: Any = np.ndarray(array.shape, array.dtype, memory, OFFSET)
    copy[...] = array
    return copy


def timed(text: str, threads: int, offset: bool) -> Timed:
    """Return the call of a problem line, with operands and a result of which no page is new."""
    (case,) = cases("", [text])
    work = make_work(case)
    inputs = [moved(given) if offset and isinstance(given, np.ndarray) else given for given in work.inputs]
    result = work.run(threads)
    call = partial(run, work.call.operator, *inputs, threads=threads, **dict[str, Any](work.call.attributes))
    return partial(call, out=moved(result) if offset else result), work.conv.multiply_adds


def fastest_ns(calls: list[Timed]) -> list[float]:
    """Return the shortest time per multiply-add of each call. The calls take turns."""
    best = [float("inf")] * len(calls)
    for _ in range(ROUNDS):
        for number, (call, adds) in enumerate(calls):
            end = time.perf_counter() + SAMPLE_S
            while (begin := time.perf_counter()) < end:
                call()
                best[number] = min(best[number], 1e9 * (time.perf_counter() - begin) / adds)
    return best


def row(layer: tuple[str, str, str, str, tuple[str, str, tuple[int, int, int]]], threads: int) -> dict[str, Any]:
    """Return the figures of a size."""
    fmt, layout, direction, kernel, (name, shape, sizes) = layer
    texts = [f"{direction} {fmt} {layout} {shape.format(size)}{kernel}" for size in sizes]
    calls = [*(timed(text, threads, False) for text in texts), timed(texts[1], threads, True)]
    before, here, after, offset = fastest_ns(calls)
    return {
        "size": name, "problem": texts[1], "threads": threads, "ns_per_multiply_add": here,
        "ratio": 2 * here / (before + after), "offset_ratio": offset / here, "machine": cpu_model(),
    }  # fmt: skip


def main() -> None:
    """Measure the sizes, and print those that are slower than their neighbours."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--threads", type=int, default=core_count())
    options = asked(parser)
    layers = product(("f32", "bf16"), ("NXC", "NCX"), ("FWD_D", "BWD_D", "BWD_W"), KERNELS, SIZES)
    rows = [row(layer, options.threads) for layer in layers]
    for slow in sorted(rows, key=lambda one: -one["ratio"])[:10]:
        print(f"{slow['ratio']:.2f} {slow['offset_ratio']:.2f} {slow['size']}: {slow['problem']}")
    if options.output:
        write_rows(options.output, rows)


if __name__ == "__main__":
    main()
