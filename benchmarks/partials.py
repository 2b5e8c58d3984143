"""Measure what it costs to cut a batch: its pieces and their joining, beside the plain call on all of it.

python benchmarks/partials.py -o partials.csv

Layers are those of a suite, of --batch images, cut into about equal pieces between leaves, and into single leaves. All
pieces are computed one after another, as by one worker. A round takes one sample of each: plain, pieces, join, so that
a slow second hurts all alike; a figure is the median of the rounds' ratios to that round's plain call.
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

import convgrad
from convgrad import notation
from convgrad.cli.bench import suites
from convgrad.host import cpu_model
from convgrad.spec.geometry import Conv
from convgrad.spec.layouts import from_canonical
from convgrad.spec.pieces import leaf_images

PIECES, ROUNDS, SAMPLE_MS = (2, 4, 8, 16, 0), 9, 20.0  # pieces of 0: single leaves


def cuts_of(batch: int, each: int, pieces: int) -> list[int]:
    """Return where pieces begin and end, as equal as leaves allow; none where there are fewer leaves than pieces."""
    leaves = -(-batch // each)
    pieces = pieces or leaves
    return [] if leaves < pieces else [min(leaves * n // pieces * each, batch) for n in range(pieces + 1)]


def timed(call: Callable[[], Any], times: int) -> tuple[float, Any]:
    """Return the milliseconds of one of so many calls, and what the last one gave."""
    begin, result = time.perf_counter(), None
    for _ in range(times):
        result = call()
    return 1e3 * (time.perf_counter() - begin) / times, result


def measured(text: str, batch: int, pieces: Sequence[int], threads: int, rounds: int) -> list[dict[str, Any]]:
    """Return the rows of a layer."""
    (call,) = notation.calls(notation.read(text))
    problem = notation.problem(text)
    conv = problem.geometry
    assert isinstance(conv, Conv)
    rng, lies = np.random.default_rng(0), problem.layouts[0]
    shapes = (from_canonical((batch, *shape[1:]), lies) for shape in (conv.src_shape, conv.dst_shape))
    src, dst = (rng.standard_normal(shape, np.float32).astype(problem.operand_format.dtype) for shape in shapes)
    attributes: dict[str, Any] = {"weights_shape": problem.output_shape} | dict(call.attributes)
    each, rows = leaf_images(conv), []

    def plain() -> Any:
        return convgrad.run(call.operator, src, dst, dtype="f32", threads=threads, **attributes)

    def cut(at: Sequence[int]) -> list[convgrad.Partials]:
        return [
            convgrad.partials(call.operator, src[a:b], dst[a:b], first=a, threads=threads, **attributes)
            for a, b in pairwise(at)
        ]

    expected = plain()
    times = max(1, int(SAMPLE_MS / timed(plain, 1)[0]))
    for number in pieces:
        at = cuts_of(batch, each, number)
        if not at:
            continue
        parts = cut(at)
        assert convgrad.join(parts).tobytes() == expected.tobytes(), (text, at)
        found = []
        for _ in range(rounds):
            whole, _ = timed(plain, times)
            apart, parts = timed(lambda at=at: cut(at), times)  # type: ignore[misc]
            joined, _ = timed(lambda parts=parts: convgrad.join(parts), times)  # type: ignore[misc]
            found.append((whole, apart / whole, joined / whole))
        plain_ms, in_pieces, join = (median(each) for each in zip(*found, strict=True))
        rows.append({
            "layer": text.rsplit(maxsplit=1)[-1], "batch": batch, "threads": threads, "leaf_images": each,
            "pieces": len(at) - 1 if number else "leaves", "sums": sum(len(part.sums) for part in parts),
            "plain_ms": f"{plain_ms:.4g}", "pieces_ratio": f"{in_pieces:.3f}", "join_ratio": f"{join:.3f}",
            "ratio": f"{median(apart + joined for _, apart, joined in found):.3f}", "processor": cpu_model(),
        })  # fmt: skip
        print(" ".join(str(value) for name, value in rows[-1].items() if name != "processor"), flush=True)
    return rows


def main() -> None:
    """Print the figures; write them as CSV where asked."""
    parser = argparse.ArgumentParser(description="Measure what it costs to cut a batch.")
    parser.add_argument("--suite", default="resnet50")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pieces", type=int, nargs="*", default=PIECES, help="0: single leaves")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = asked(parser)
    print(cpu_model())
    rows: list[dict[str, Any]] = []
    for text in suites.suite(options.suite):
        rows += measured(text, options.batch, options.pieces, options.threads, options.rounds)
    for pieces in dict.fromkeys(row["pieces"] for row in rows):
        ratios = [float(row["ratio"]) for row in rows if row["pieces"] == pieces]
        print(f"in {pieces}: median {median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f} of the plain call")
    if options.output:
        write_rows(options.output, rows)


if __name__ == "__main__":
    main()
