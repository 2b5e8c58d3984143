"""Measure what a call suffers from busy cores: a forward and a data gradient, quiet and beside processes that spin.

python benchmarks/busy_cores.py -o busy_cores.csv

Quiet and busy take turns, so that a slow second of the machine hurts both. "worst" is of all calls, "over" how many
take more than OVER times the quiet median. Ctrl-C ends the other processes, too.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from others import busy
from rows import asked, write_rows

from convgrad.cli.bench.harness import settle
from convgrad.cli.bench.suites import TimedCase, cases
from convgrad.cli.bench.work import make_work, ours
from convgrad.engines.settings import count
from convgrad.host import cpu_model, usable_cores

LAYERS = (
    "mb8ic64ih56oc64kh3ph1n64_56_3x3",
    "mb8ic256ih14oc256kh3ph1n256_14_3x3",
    "mb8ic256ih28oc512kh1ph0n256_512_28_1x1",
)
PROBLEMS = [f"{role} f32 NXC {layer}" for layer in LAYERS for role in ("FWD_D", "BWD_D")]
CALLS, TURNS = 200, 5
OVER = 3.0


def block(call: Callable[[], object], calls: int) -> list[float]:
    """Return the times of so many calls in ms, after some of its own."""
    settle(call)
    times = []
    for _ in range(calls):
        begin = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - begin))
    return times


def measured(
    problems: Sequence[TimedCase], others: Sequence[int], threads: int, calls: int
) -> dict[tuple[int, int], Any]:
    """Return the times of every problem's calls, by its place and the number of other processes."""
    made = [ours(make_work(case), threads).call for case in problems]
    found: dict[tuple[int, int], list[float]] = {(n, at): [] for n in others for at in range(len(made))}
    turns = min(calls, TURNS)
    for turn in range(turns):
        share = calls * (turn + 1) // turns - calls * turn // turns
        for number in others:
            with busy(number):
                for at, call in enumerate(made):
                    found[number, at] += block(call, share)
    return found


def rows(problems: Sequence[TimedCase], others: Sequence[int], threads: int, calls: int) -> list[dict[str, Any]]:
    """Return a row for every problem and number of other processes; all are held against the first number's."""
    found, made = measured(problems, others, threads, calls), []
    for at, case in enumerate(problems):
        quiet = float(np.median(found[others[0], at]))
        for number in others:
            times = np.array(found[number, at])
            made.append(
                {
                    "problem": case.text,
                    "busy": number,
                    "threads": threads,
                    "calls": len(times),
                    "median_ms": float(np.median(times)),
                    "worst_ms": float(times.max()),
                    "median_ratio": float(np.median(times)) / quiet,
                    "worst_ratio": float(times.max()) / quiet,
                    "over": float(np.mean(times > OVER * quiet)),
                    "cores": len(usable_cores()),
                    "processor": cpu_model(),
                }
            )
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Print each row; write them as CSV where asked."""
    parser = argparse.ArgumentParser(description="Measure what a call suffers from busy cores.")
    parser.add_argument(
        "problems", nargs="*", default=PROBLEMS, metavar="PROBLEM", help="lines as convgrad bench takes"
    )
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 2], help="numbers of other processes (default 0 2)")
    parser.add_argument("--threads", type=int, help="default: as convgrad chooses")
    parser.add_argument("--calls", type=int, default=CALLS, help=f"default {CALLS}")
    options = asked(parser, arguments)
    threads = count(options.threads)
    print(f"{cpu_model()}, {len(usable_cores())} cores, threads: {threads}; in brackets: times the quiet median")
    made = rows(cases("", options.problems), options.busy, threads, options.calls)
    for row in made:
        print(
            f"{row['problem']:52} busy {row['busy']}"
            f"  median {row['median_ms']:8.3f} ms ({row['median_ratio']:.2f})"
            f"  worst {row['worst_ms']:8.3f} ms ({row['worst_ratio']:.2f})"
            f"  over {OVER:g} times {row['over']:5.1%}"
        )
    if options.output:
        write_rows(options.output, made)


if __name__ == "__main__":
    main()
