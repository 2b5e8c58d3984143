"""Time dense bf16 layers against PyTorch on one thread, while AMX's tiles are fast, and while they are slow.

python benchmarks/shared_core.py --seconds 240 -o shared_core.csv

On a virtual machine, the states alternate (``docs/design/measurements.md``). Products of tiles are timed before and
after each measurement, which counts only if they were in the same state both times. A row is a layer in a state: the
medians of the times of convgrad and of PyTorch with channels last, and of their ratios in each round.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Callable
from functools import partial
from statistics import geometric_mean, median
from typing import Any

import numpy as np
from rows import asked, write_rows

from convgrad.arrays import aligned
from convgrad.cli.bench import torch_peer
from convgrad.cli.bench.suites import cases, suite
from convgrad.cli.bench.work import make_work
from convgrad.engines.addresses import address_of
from convgrad.engines.llvm import isas, jit
from convgrad.engines.llvm.emit import Module
from convgrad.engines.llvm.tiles import TileProduct
from convgrad.host import cpu_model
from convgrad.plan.machine import ISAS, LINE_BYTES
from convgrad.plan.tiling import SIDE

FAST_NS, SLOW_NS = 40.0, 55.0  # of a product of 2 x 2 tiles, which usually takes 28 or 66
SAMPLE_S, PRODUCTS = 0.01, 4000


def module() -> str:
    """Return the IR of ``products``, which adds the same product of 2 x 2 tiles many times."""
    made = Module()
    f = made.function("products", public=True, a="ptr", b="ptr", configured="ptr")
    product = TileProduct(f, ISAS["amx"].tiles, (SIDE, SIDE), 2)
    product.configure(f.configured)
    with f.loop(PRODUCTS):
        second = f.at(f.a, SIDE * LINE_BYTES)
        product.multiply((f.a, second), f.value(LINE_BYTES), f.b, 2 * LINE_BYTES)
    product.tiles.release()
    f.done()
    return str(made)


def state(products: Callable[..., None]) -> str:
    """Return the state of the core: fast, slow or ""."""
    a, b = (aligned((2 * SIDE * LINE_BYTES,), np.dtype(np.uint8)) for _ in range(2))
    a[...] = b[...] = 0
    begin = time.perf_counter()
    products(address_of(a), address_of(b), address_of(np.zeros(1, np.int64)))
    ns = 1e9 * (time.perf_counter() - begin) / PRODUCTS
    return "fast" if ns < FAST_NS else "slow" if ns > SLOW_NS else ""


def sample_ms(call: Callable[[], object]) -> float:
    """Return the median time of calls in ms."""
    times, begin = [], time.perf_counter()
    while len(times) < 2 or time.perf_counter() - begin < SAMPLE_S:
        started = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - started))
    return median(times)


def main() -> int:
    """Measure rounds of all layers, and print the geometric mean of each pass and state."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=240.0)
    options = asked(parser)
    if ISAS["amx"] not in isas.host_isas():
        parser.error(f"AMX cannot be used: {isas.why_no_tiles()}")
    (products,) = jit.functions(ISAS["amx"], module, products=(None, *(ctypes.c_void_p,) * 3))
    layers = []
    for case in cases("dense", suite("dense"), ["FWD_D", "BWD_D", "BWD_W"], ("bf16",), ["NXC"]):
        work = make_work(case)
        calls = partial(work.run, 1), torch_peer.contenders(work, 1)[1].call
        for call in calls:
            call()  # compile
        layers.append((case, calls, {"fast": list[tuple[float, float]](), "slow": []}))
    begin = time.monotonic()
    while time.monotonic() - begin < options.seconds:
        for _, calls, times in layers:
            before = state(products)
            pair = sample_ms(calls[0]), sample_ms(calls[1])
            if before and before == state(products):
                times[before].append(pair)
    rows: list[dict[str, Any]] = [
        {
            "name": case.name, "direction": case.line.direction, "problem": case.text,
            "state": name, "rounds": len(pairs), "convgrad_ms": median(ours for ours, _ in pairs),
            "torch_ms": median(theirs for _, theirs in pairs),
            "ratio": median(theirs / ours for ours, theirs in pairs), "machine": cpu_model(),
        }
        for case, _, times in layers for name, pairs in times.items() if pairs
    ]  # fmt: skip
    for key in sorted({(row["state"], row["direction"]) for row in rows}):
        ratios = [row["ratio"] for row in rows if (row["state"], row["direction"]) == key]
        print(*key, f"{geometric_mean(ratios):.2f} in the geometric mean of {len(ratios)} layers")
    if options.output:
        write_rows(options.output, rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
