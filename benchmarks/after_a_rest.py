"""Measure what threads are worth after a rest: calls on one thread and on two, some time without calls before each.

python benchmarks/after_a_rest.py -o after_a_rest.csv
python benchmarks/after_a_rest.py --role forward "data gradient" --busy 0 -o after_a_rest_data.csv

A cell is a role, a layer, a gap, and how many other processes are busy. Its calls come in blocks, one thread and two
in turns, and a call on two threads is held against the median of the blocks on one thread beside its own, so that a
slow second hurts both. Where there is no gap, the first call of a block does not count. Calls on one thread held
against the same median tell what the machine does by itself.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from functools import partial
from itertools import pairwise, product

import numpy as np
from others import busy
from rows import asked, write_rows

import convgrad
from convgrad.host import cpu_model, usable_cores

LAYERS = {  # batch, extent, channels of src and dst, groups; 3x3, f32, channels last
    "1x28x28x64-96": (1, 28, 64, 96, 1),
    "1x56x56x64": (1, 56, 64, 64, 1),
    "2x56x56x64": (2, 56, 64, 64, 1),
    "4x56x56x64": (4, 56, 64, 64, 1),
    "5x56x56x64": (5, 56, 64, 64, 1),
    "depthwise 1x56x56x144": (1, 56, 144, 144, 144),
    "depthwise 2x56x56x144": (2, 56, 144, 144, 144),
    "depthwise 4x56x56x144": (4, 56, 144, 144, 144),
}
GAPS_MS = (0, 1, 3, 20, 100)
BLOCK, BLOCKS = 10, 20
SLOW, FAST = 1.4, 0.8  # times as long as one thread


ROLES = ("weight gradient", "forward", "data gradient")


class Call:
    """A call into an array of the caller's, ready to be timed."""

    def __init__(self, role: str, batch: int, extent: int, inner: int, outer: int, groups: int) -> None:
        rng = np.random.default_rng(0)
        shapes = ((batch, extent, extent, inner), (3, 3, inner // groups, outer), (batch, extent, extent, outer))
        src, weights, dst = (rng.standard_normal(shape, np.float32) for shape in shapes)
        self.run, self.operands, self.out = {
            "weight gradient": (convgrad.convolution_backward_weights, (src, dst, weights.shape), weights),
            "forward": (convgrad.convolution, (src, weights), dst),
            "data gradient": (partial(convgrad.convolution_backward_data, dst_shape=src.shape), (dst, weights), src),
        }[role]
        self.groups = groups

    def milliseconds(self, threads: int) -> float:
        """Return how long a call takes."""
        begin = time.perf_counter()
        self.run(*self.operands, groups=self.groups, auto_pad="same_upper", out=self.out, threads=threads)
        return 1e3 * (time.perf_counter() - begin)


def block(call: Call, threads: int, gap_ms: float) -> list[float]:
    """Return the times of a block of calls."""
    if not gap_ms:
        call.milliseconds(threads)
    times = []
    for _ in range(BLOCK):
        time.sleep(gap_ms / 1e3)
        times.append(call.milliseconds(threads))
    return times


def cell(call: Call, gap_ms: float, blocks: int) -> dict[str, float]:
    """Return the figures of one cell."""
    found = [block(call, 1 + at % 2, gap_ms) for at in range(2 * blocks + 1)]
    ones, twos = found[::2], found[1::2]
    beside = [np.median(before + after) for before, after in pairwise(ones)]
    ratios, alike = (
        np.array([t / median for one, median in zip(times, beside, strict=False) for t in one])
        for times in (twos, ones)
    )
    return {
        "samples": len(ratios),
        "one_ms": float(np.median(ones)),
        "two_ms": float(np.median(twos)),
        "ratio": float(np.median(ratios)),
        "worst": float(ratios.max()),
        "slow": float(np.mean(ratios > SLOW)),
        "fast": float(np.mean(ratios < FAST)),
        "slow_one": float(np.mean(alike > SLOW)),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print each cell; write them as CSV where asked."""
    parser = argparse.ArgumentParser(description="Measure what threads are worth after a rest.")
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 2], help="numbers of other busy processes")
    parser.add_argument("--layers", choices=list(LAYERS), nargs="+", default=list(LAYERS), metavar="LAYER")
    parser.add_argument("--pool", choices=("own", "openmp"), default="own", help="openmp: PyTorch's threads")
    parser.add_argument("--role", choices=ROLES, nargs="+", default=ROLES[:1])
    options, rows = asked(parser, arguments), []
    if options.pool == "openmp":
        import torch  # noqa: F401, PLC0415 - it brings the OpenMP runtime
    with convgrad.threads(pool=options.pool):
        measure(options, rows)
    if options.output:
        write_rows(options.output, rows)


def measure(options: argparse.Namespace, rows: list[dict[str, object]]) -> None:
    """Measure each cell that is asked for, print it, and add it to the rows."""
    print(f"{cpu_model()}, {len(usable_cores())} cores; {SLOW} and {FAST} are times one thread")
    for others, role, name in product(options.busy, options.role, options.layers):
        call = Call(role, *LAYERS[name])
        for gap_ms in GAPS_MS:
            with busy(others):
                found = cell(call, gap_ms, max(5, min(BLOCKS, 2000 // (BLOCK * max(gap_ms, 1)))))
            which = {"busy": others, "pool": options.pool, "role": role, "layer": name, "gap_ms": gap_ms}
            rows.append({**which, **found, "processor": cpu_model()})
            print(
                f"busy {others}  {role}  {name:14} gap {gap_ms:3} ms"
                f"  one {found['one_ms']:6.3f}  two {found['two_ms']:6.3f}"
                f"  ratio {found['ratio']:.2f} (worst {found['worst']:.2f})"
                f"  slow {found['slow']:6.1%} (one thread {found['slow_one']:.1%})  fast {found['fast']:6.1%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
