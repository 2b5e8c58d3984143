"""Measure what a call costs beside its arithmetic: a repeated one, one of a new size, a new kernel, a new process.

python benchmarks/fixed_costs.py -o fixed_costs.csv
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
from rows import asked, write_rows

import convgrad
from convgrad.engines.llvm import jit

CALLS = 2000
SIZES = 300
PROCESSES = 7
FRESH = """
import numpy, time
src = numpy.ones((1, 8, 8, 8), numpy.float32)
begin = time.perf_counter()
import convgrad
imported = time.perf_counter()
convgrad.convolution_backward_weights(src, src, (3, 3, 8, 8), pads_begin=1, pads_end=1)
print(imported - begin, time.perf_counter() - begin)
"""


def milliseconds(call: Callable[[], object]) -> float:
    """Return how long a call takes."""
    begin = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - begin)


def repeated() -> Iterator[tuple[str, list[float]]]:
    """A small call again and again, into an array of the caller's."""
    src, out = np.ones((1, 8, 8, 8), np.float32), np.empty((3, 3, 8, 8), np.float32)

    def call() -> None:
        convgrad.convolution_backward_weights(src, src, out.shape, pads_begin=1, pads_end=1, threads=1, out=out)

    call()
    yield "a repeated 1x8x8x8 3x3 call", [milliseconds(call) for _ in range(CALLS)]


def new_sizes() -> Iterator[tuple[str, list[float]]]:
    """Calls of one layer, no two of one size: those that compile a kernel, and the others."""
    rng, known, compiling = np.random.default_rng(0), [], []
    for batch, h, w in {tuple(rng.integers((1, 3, 3), (5, 25, 25)).tolist()) for _ in range(SIZES)}:
        src = np.ones((batch, h, w, 64), np.float32)
        dst, kernels = np.ones((batch, h, w, 48), np.float32), jit._linker.number

        def call(src: np.ndarray = src, dst: np.ndarray = dst) -> None:
            convgrad.convolution_backward_weights(src, dst, (3, 3, 64, 48), pads_begin=1, pads_end=1, threads=1)

        first = milliseconds(call)
        beside = first - milliseconds(call)
        (known if jit._linker.number == kernels else compiling).append(beside)
    yield "a new size of a known layer: checks, plan, tables", known
    yield f"a new kernel: {len(compiling)} for {len(known) + len(compiling)} sizes", compiling


def fresh() -> Iterator[tuple[str, list[float]]]:
    """The first call of a process."""
    found = [
        subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(PROCESSES)
    ]
    yield "import convgrad after numpy", [1e3 * float(imported) for imported, _ in found]
    yield "import and first call in a fresh process", [1e3 * float(called) for _, called in found]


def main() -> None:
    """Print each cost's quartiles; write them as CSV where asked."""
    parser = argparse.ArgumentParser(description="Measure what a call costs beside its arithmetic.")
    output = asked(parser).output
    rows = []
    for name, times in (pair for made in (repeated(), new_sizes(), fresh()) for pair in made):
        low, middle, high = np.quantile(times, (0.25, 0.5, 0.75))
        rows.append({"what": name, "samples": len(times), "low_ms": low, "median_ms": middle, "high_ms": high})
        print(f"{name:52} {middle:9.3f} ms ({low:.3f} to {high:.3f}, {len(times)} samples)")
    if output:
        write_rows(output, rows)


if __name__ == "__main__":
    main()
