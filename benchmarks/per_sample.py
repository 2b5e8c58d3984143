"""Measure norms of samples and weighted sums of them against the plain weight gradient, over layers and batches.

python benchmarks/per_sample.py -o per_sample.csv

The three take turns; a ratio is the median of those of each turn. Memory is what a call took at its peak beside its
operands, in a process of its own for each number of samples.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rows import asked, write_rows

import convgrad
from convgrad.formats import FORMATS
from convgrad.host import cpu_model, usable_cores

ROUNDS = 15
BATCHES = (8, 64, 512)
Call = Callable[[], object]


@dataclass(frozen=True)
class Layer:
    """A square layer in NXC and XIO, padded to keep its extents."""

    channels: tuple[int, int]
    extent: int
    kernel: int
    groups: int = 1
    type: str = "f32"
    batch: int = 64

    def __str__(self) -> str:
        c, o = self.channels
        groups = f" g{self.groups}" if self.groups > 1 else ""
        return f"{self.type} N{self.batch} C{c} K{o} {self.extent}x{self.extent} {self.kernel}x{self.kernel}{groups}"

    def calls(self, threads: int) -> dict[str, Call]:
        """Return the plain call, the norms and the weighted sum, of the same operands."""
        rng, (c, o), pad = np.random.default_rng(0), self.channels, self.kernel // 2
        shape = (self.kernel, self.kernel, c // self.groups, o)
        src, diff_dst = (
            rng.standard_normal((self.batch, self.extent, self.extent, n), np.float32).astype(FORMATS[self.type].dtype)
            for n in self.channels
        )
        layer: dict[str, Any] = {"pads_begin": pad, "pads_end": pad, "groups": self.groups, "threads": threads}
        to: dict[str, Any] = {"dtype": "f32", "out": np.empty(shape, np.float32)}
        scale = rng.random(self.batch, np.float32)
        return {
            "plain": lambda: convgrad.convolution_backward_weights(src, diff_dst, shape, **to, **layer),
            "norms": lambda: convgrad.per_sample_weights_norm2(src, diff_dst, shape, **layer),
            "weighted": lambda: convgrad.weighted_weights_sum(src, diff_dst, shape, scale=scale, **to, **layer),
        }


LAYERS = (
    Layer((64, 64), 32, 3),
    Layer((64, 64), 32, 3, type="bf16"),
    Layer((64, 64), 32, 3, type="f16"),
    Layer((3, 64), 32, 7),
    Layer((128, 128), 28, 3),
    Layer((256, 256), 14, 3),
    Layer((512, 512), 7, 3),
    Layer((512, 512), 4, 3),
    Layer((1024, 4096), 4, 1),
    Layer((64, 256), 28, 1),
    Layer((1024, 256), 14, 1),
    Layer((128, 128), 28, 3, groups=128),
    Layer((128, 128), 28, 3, groups=32),
    Layer((8, 8), 8, 3),
    Layer((128, 128), 1, 1),
)


def timed_ms(call: Call) -> float:
    """Return the time of one call that follows one of its own."""
    call()
    begin = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - begin)


def measured(layer: Layer, threads: int, rounds: int) -> dict[str, Any]:
    """Return the plain call's median time and the medians of the others' ratios to it."""
    calls = layer.calls(threads)
    turns = [{name: timed_ms(call) for name, call in calls.items()} for _ in range(rounds + 1)][1:]
    row: dict[str, Any] = {"layer": str(layer), "threads": threads, "plain_ms": median(turn["plain"] for turn in turns)}
    for name in ("norms", "weighted"):
        row[f"{name}_ratio"] = median(turn[name] / turn["plain"] for turn in turns)
    return {name: f"{value:.3f}" if isinstance(value, float) else value for name, value in row.items()}


def peak_kib(batch: int, name: str) -> int:
    """Return what a call raises the process's peak memory by, once one image has had plans and kernels made; Linux."""
    for one in Layer((64, 64), 32, 3, batch=1).calls(1).values():
        one()
    call = Layer((64, 64), 32, 3, batch=batch).calls(1)[name]
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak is what there is
    before = _status_kib("VmRSS")
    call()
    return _status_kib("VmHWM") - before


def _status_kib(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def main() -> None:
    """Print the figures; write the times as CSV where asked."""
    parser = argparse.ArgumentParser(description="Measure norms and weighted sums of samples.")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, len(usable_cores())])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--peak", nargs=2, metavar=("BATCH", "CALL"), help=argparse.SUPPRESS)
    options = asked(parser)
    if options.peak:
        print(peak_kib(int(options.peak[0]), options.peak[1]))
        return
    print(cpu_model())
    rows = []
    for threads in options.threads:
        for layer in LAYERS:
            rows.append({"processor": cpu_model()} | measured(layer, threads, options.rounds))
            row = rows[-1]
            words = f"{layer!s:36} {threads} threads  plain {row['plain_ms']:>8} ms"
            print(f"{words}  norms {row['norms_ratio']}  weighted {row['weighted_ratio']}", flush=True)
    for name in ("norms", "weighted"):
        for batch in BATCHES:
            words = [sys.executable, __file__, "--peak", str(batch), name]
            peak = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
            print(f"N{batch:<4} C64 K64 32x32 3x3, 1 thread: {name} raised the peak by {peak} KiB", flush=True)
    if options.output:
        write_rows(options.output, rows)


if __name__ == "__main__":
    main()
