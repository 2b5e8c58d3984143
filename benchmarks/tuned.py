"""Time plans chosen by measurement against plans of the cost model, in turns on the same operands.

python benchmarks/tuned.py --suite depthwise,pointwise --layout NCX -o tuned.csv

A row is a problem. ``gain`` is the time with the plan of the cost model divided by the time with the measured plan, the
median over all rounds. ``plan`` says whether the measured plan is another one.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from functools import partial
from statistics import geometric_mean, median
from typing import Any

from rows import asked, write_rows

import convgrad
from convgrad import engines
from convgrad.cli.bench.harness import settle
from convgrad.cli.bench.suites import TimedCase, cases, names, suite
from convgrad.cli.bench.work import make_work
from convgrad.host import core_count, cpu_model

SAMPLE_S, ROUNDS = 0.01, 7


def sample_ms(work: Any, threads: int, loops: int, tuned: bool) -> float:
    """Return the mean time of some calls in ms."""
    with convgrad.tune(tuned):
        settle(partial(work.run, threads))  # until the pool's threads are awake
        begin = time.perf_counter()
        for _ in range(loops):
            work.run(threads)
        return 1e3 * (time.perf_counter() - begin) / loops


def row(case: TimedCase, threads: int) -> dict[str, Any]:
    """Return the figures of a problem."""
    work, machine = make_work(case), engines.machine_of(case.problem)
    assert machine is not None, "kernels are timed"
    plans = []
    for tuned in (False, True):
        with convgrad.tune(tuned):
            begin = time.perf_counter()
            plans.append(engines.plan_of(case.problem, machine, threads))
            work.run(threads)
            tuning_s = time.perf_counter() - begin
    loops = max(1, math.ceil(1e3 * SAMPLE_S / sample_ms(work, threads, 1, False)))
    times = [[sample_ms(work, threads, loops, tuned) for tuned in (False, True)] for _ in range(ROUNDS)]
    predicted_ms, tuned_ms = (median(column) for column in zip(*times, strict=True))
    return {
        "suite": case.suite, "name": case.name, "problem": case.text, "threads": threads,
        "plan": "same" if plans[0].spec == plans[1].spec and plans[0].parts == plans[1].parts else "other",
        "model_ms": predicted_ms, "tuned_ms": tuned_ms, "gain": median(a / b for a, b in times),
        "tuning_s": tuning_s, "strategy": plans[1].strategy, "machine": cpu_model(),
    }  # fmt: skip


def report(row: Callable[[TimedCase, int], dict[str, Any]], about: str) -> None:
    """Print the gain of each problem, and the geometric mean of each suite and direction, and write the rows."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", default=",".join(names()), help="suites, separated by commas")
    parser.add_argument("--direction", default="FWD_D,BWD_D,BWD_W")
    parser.add_argument("--layout", default="NXC,NCX")
    parser.add_argument("--threads", type=int, default=core_count())
    options = asked(parser)
    chosen = [options.direction.split(","), (), options.layout.split(",")]
    rows = []
    for case in [case for name in options.suite.split(",") for case in cases(name, suite(name), *chosen)]:
        rows.append(row(case, options.threads))
        print(f"{rows[-1]['gain']:5.2f}  {rows[-1]['plan']:5}  {case.text}", flush=True)
    if options.output:
        write_rows(options.output, rows)
    classes: dict[tuple[str, ...], list[float]] = {}
    for one in rows:
        direction, _, layout = one["problem"].removeprefix("deconv ").split()[:3]
        classes.setdefault((one["suite"], direction, layout), []).append(one["gain"])
    for key, gains in classes.items():
        print(f"{' '.join(key)}: {geometric_mean(gains):.3f} in the geometric mean of {len(gains)} problems")


if __name__ == "__main__":
    report(row, __doc__)
