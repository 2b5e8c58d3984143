"""Measure what it costs to compute an image's sum in rows, as where it fits nowhere whole, beside the plain call on it.

python benchmarks/image_rows.py -o image_rows.csv

Problems are weight gradients of one image, cut into about equal rows: where any cut is allowed, and, as "nodes", where
nodes of level 1 of its tree begin, too. All slabs are computed one after another, from arrays in memory. A round takes
one sample of each: plain, in rows, so that a slow second hurts both; a figure is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
from rows import asked, write_rows

from convgrad import notation
from convgrad.functional.partials import sum_of
from convgrad.functional.rows import rows_of, subproblem_of_rows
from convgrad.host import cpu_model
from convgrad.spec.image_cuts import blocks_of, nodes_with_ranges, row_step
from convgrad.spec.problem import canonical_shapes
from convgrad.spec.subproblems import positions

IMAGES = {  # extents, by words
    "512x512": (512, 512), "1024x1024": (1024, 1024), "500x500": (500, 500),
    "600x600, 3 blocks a row": (600, 600), "400x1100, 5 blocks a row": (400, 1100), "64x10980": (64, 10980),
    "128^3": (128,) * 3, "150^3": (150,) * 3, "160^3": (160,) * 3, "10^6": (1_000_000,),
}  # fmt: skip
CHANNELS, CUTS, ROUNDS, SAMPLE_MS = (16, 64), (1, 4, 16), 5, 50.0
MAXIMUM = 1 << 35  # multiply-adds of a problem: larger ones are not measured


def line_of(extents: Sequence[int], channels: int) -> str:
    """Return the problem line of a weight gradient of one image, of kernels of 3 and the same extents."""
    words = "".join(f"i{x}{n}o{x}{n}k{x}3p{x}1" for x, n in zip("dhw"[-len(extents) :], extents, strict=True))
    return f"BWD_W f32 NXC mb1ic{channels}oc{channels}{words}"


def cuts_of(height: int, pieces: int, step: int) -> list[int]:
    """Return where about equal rows begin and end, which begin at multiples of a step."""
    return sorted({0, *(round(height * n / pieces / step) * step for n in range(1, pieces)), height})


def timed(call: Callable[[], Any], times: int) -> tuple[float, Any]:
    """Return the milliseconds of one of so many calls, and what the last one gave."""
    begin, result = time.perf_counter(), None
    for _ in range(times):
        result = call()
    return 1e3 * (time.perf_counter() - begin) / times, result


def measured(words: str, channels: int, pieces: Sequence[int], threads: int, rounds: int) -> list[dict[str, Any]]:
    """Return the rows of figures of a problem."""
    one, rng, extents = notation.problem(line_of(IMAGES[words], channels)), np.random.default_rng(0), IMAGES[words]
    shapes = ((n, *spatial, c) for n, c, *spatial in canonical_shapes(one)[:-1])
    given = [rng.standard_normal(shape, np.float32) for shape in shapes]
    found: list[dict[str, Any]] = []

    def plain() -> Any:
        return sum_of(one, [np.moveaxis(array, -1, 1) for array in given], threads)

    def in_rows(at: Sequence[int]) -> Any:
        rows = None
        for begin, end in pairwise(at):
            slab = subproblem_of_rows(one, 0, range(begin, end))
            read = [array[region] for array, region in zip(given, slab.reads, strict=True)]
            rows = rows_of(slab, one, read, threads, rows)
        assert rows is not None
        return rows.partials().sums[0]

    expected = plain()
    times = max(1, int(SAMPLE_MS / timed(plain, 1)[0]))
    for number, level in ((number, level) for number in pieces for level in (0, 1)):
        step = row_step(extents, level)
        at = cuts_of(positions(one)[0], number, step or positions(one)[0])
        if (number == 1 and level) or len(at) < number // 2:
            continue
        assert in_rows(at).tobytes() == expected.tobytes(), (words, at)
        ratios = []
        for _ in range(rounds):
            whole, _ = timed(plain, times)
            apart, _ = timed(lambda at=at: in_rows(at), times)  # type: ignore[misc]
            ratios.append((whole, apart / whole))
        whole_ms, ratio = (median(each) for each in zip(*ratios, strict=True))
        calls = sum(len(nodes_with_ranges(extents, blocks_of(extents, range(a, b)))) for a, b in pairwise(at))
        found.append({
            "image": words, "channels": channels, "threads": threads, "slabs": len(at) - 1,
            "cut": ("anywhere", "nodes")[level], "calls": calls, "plain_ms": f"{whole_ms:.4g}", "ratio": f"{ratio:.3f}",
            "processor": cpu_model(),
        })  # fmt: skip
        print(" | ".join(str(value) for name, value in found[-1].items() if name != "processor"), flush=True)
    return found


def main() -> None:
    """Print the figures; write them as CSV where asked."""
    parser = argparse.ArgumentParser(description="Measure what it costs to compute an image's sum in rows.")
    parser.add_argument("--images", nargs="*", default=list(IMAGES), choices=list(IMAGES))
    parser.add_argument("--channels", type=int, nargs="*", default=CHANNELS)
    parser.add_argument("--slabs", type=int, nargs="*", default=CUTS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = asked(parser)
    print(cpu_model())
    rows: list[dict[str, Any]] = []
    for words in options.images:
        for channels in options.channels:
            work = notation.problem(line_of(IMAGES[words], channels)).geometry.multiply_adds  # type: ignore[union-attr]
            if work <= MAXIMUM:
                rows += measured(words, channels, options.subproblems, options.threads, options.rounds)
    if options.output:
        write_rows(options.output, rows)


if __name__ == "__main__":
    main()
