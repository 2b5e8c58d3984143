"""Measure whether there are cliffs: problems that differ by one channel, group, tap or stride take like times.

python benchmarks/cliffs.py --direction FWD_D --threads 1 -o cliffs.csv --plot cliffs.png

Points of a sweep take one sample a round, in turns, and count by their median. What is compared is the time of an
existing multiply-add, of neighbours; or, of a sweep over groups, the time itself, with that of one group. "floor" is
the same step of the least times that the machine allows: where it is high too, memory makes the cliff. The exit code is
1 where a sweep has a cliff.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, log10
from pathlib import Path
from typing import Any

from rows import asked, write_rows

from convgrad.cli.bench.figures import Series
from convgrad.cli.bench.harness import SAMPLE_S, Runner
from convgrad.cli.bench.report import conditions, heading, predicted_ms
from convgrad.cli.bench.roofs import Roofs, measure_roofs
from convgrad.cli.bench.suites import cases
from convgrad.cli.bench.work import Work, make_work, ours
from convgrad.engines.settings import count
from convgrad.formats import FORMATS
from convgrad.spec.layouts import DATA
from convgrad.spec.work import moved_bytes, needed_flops

ROLES = ("FWD_D", "BWD_D", "BWD_W")
NEIGHBOURS, ONE_GROUP = 2.0, 1.3  # the largest ratios allowed
WARM_S = 0.02
FEWEST_TICKS = 3


@dataclass(frozen=True)
class Sweep:
    """Descriptors by the number that grows; ``to_first``: times are compared with the first one's.

    ``doubling``: it grows by factors, and is drawn so.
    """

    descriptors: Mapping[int, str]
    to_first: bool = False
    doubling: bool = False

    @property
    def limit(self) -> float:
        """The largest ratio that is no cliff."""
        return ONE_GROUP if self.to_first else NEIGHBOURS


@dataclass(frozen=True)
class Point:
    """One problem timed; ``ratio`` is its cost over that of ``against``, ``floor_ratio`` the same of least times."""

    number: int
    problem: str
    engine: str
    multiply_adds: int
    ms: float
    floor_ms: float
    predicted_ms: float | None = None
    against: int | None = None
    ratio: float = 1.0
    floor_ratio: float = 1.0

    @property
    def ns(self) -> float:
        """The time of an existing multiply-add."""
        return 1e6 * self.ms / self.multiply_adds


# -- what is swept -----------------------------------------------------------------------------------------------------

FAMILIES = {"dense": "g1ic64oc64", "depthwise": "g128ic128oc128", "stem": "g1ic3oc64"}
LONG = {"dense": "g1ic32oc32", "depthwise": "g32ic32oc32", "stem": "g1ic3oc64"}  # in long rows
LARGEST = {"dense": 11, "depthwise": 31, "stem": 11}  # kernels of a plane
CHANNELS = (*range(16, 71), 79, 80, 81, 95, 96, 97, 111, 112, 113, 127, 128, 129, 130)
DEPTHWISE, FEW, A_GROUP = range(1, 71), range(1, 21), range(1, 34)  # in larger batches: a call is to take long
ROWS = (*range(1, 10), 15, 16, 17, 31, 32, 33, 63, 64, 65)
LONG_ROWS = (64, *(taps + more for taps in (128, 256, 512, 1024, 2048) for more in (-1, 0, 1)), 4095, 4096)


def _of_family(name: str, channels: str) -> dict[str, Sweep]:
    kernels = range(1, LARGEST[name] + 1)
    return {
        f"{name}_kernels": Sweep({k: f"mb4{channels}ih28kh{k}ph{k // 2}" for k in kernels}),
        f"{name}_strides": Sweep({s: f"mb32{channels}ih28kh3sh{s}ph1" for s in range(1, 9)}),
        f"{name}_dilations": Sweep({d: f"mb8{channels}ih28kh3dh{d - 1}ph{d}" for d in range(1, 17)}),
        f"{name}_rows": Sweep({k: f"mb4{channels}iw1024kw{k}pw{k // 2}" for k in ROWS}, doubling=True),
        f"{name}_long_rows": Sweep({k: f"mb1{LONG[name]}iw1024kw{k}pw{k // 2}" for k in LONG_ROWS}, doubling=True),
    }


def _groups(channels: int) -> Sweep:
    divisors = [g for g in range(1, channels + 1) if channels % g == 0]
    descriptors = {g: f"g{g}mb8ic{channels}ih28oc{channels}kh3ph1" for g in divisors}
    return Sweep(descriptors, to_first=True, doubling=True)


SWEEPS = {
    "channels": Sweep({c: f"mb4ic{c}ih28oc{c}kh3ph1" for c in CHANNELS}),
    "few_channels": Sweep({c: f"mb64ic{c}ih28oc{c}kh3ph1" for c in FEW}),
    "few_channels_to_64": Sweep({c: f"mb16ic{c}ih28oc64kh3ph1" for c in FEW}),
    "64_to_few_channels": Sweep({c: f"mb16ic64ih28oc{c}kh3ph1" for c in FEW}),
    "depthwise_channels": Sweep({c: f"g{c}mb64ic{c}ih28oc{c}kh3ph1" for c in DEPTHWISE}),
    "channels_a_group": Sweep({c: f"g16mb16ic{16 * c}ih28oc{16 * c}kh3ph1" for c in A_GROUP}),
    **{f"groups_of_{c}": _groups(c) for c in (64, 96, 128, 240, 256)},
    **{name: sweep for family in FAMILIES.items() for name, sweep in _of_family(*family).items()},
}

# -- measuring ---------------------------------------------------------------------------------------------------------


def ready(work: Work, threads: int) -> Runner:
    """Return convgrad's own calls, compiled and warm, so many a sample that it lasts."""
    contender = ours(work, threads)
    started = time.perf_counter()
    contender.call()
    first, best, spent = time.perf_counter() - started, float("inf"), 0.0
    while spent < WARM_S:
        started = time.perf_counter()
        contender.call()
        taken = time.perf_counter() - started
        best, spent = min(best, taken), spent + taken
    return Runner(contender, 1e3 * first, ceil(SAMPLE_S / best), 0, False, ())


def timed(sweep: Sweep, words: str, threads: int, repeat: int, roofs: Roofs) -> list[Point]:
    """Return the points of a sweep, timed; ``words`` are what stands before a descriptor in a problem line."""
    lines = [f"{words} {descriptor}" for descriptor in sweep.descriptors.values()]
    works = [make_work(case) for case in cases("", lines)]
    runners = [ready(work, threads) for work in works]
    samples: list[list[float]] = [[] for _ in runners]
    for _ in range(repeat):
        for runner, times in zip(runners, samples, strict=True):
            runner.contender.call()  # brings its operands back
            times.append(runner.sample_ms())
    points = []
    for number, work, times in zip(sweep.descriptors, works, samples, strict=True):
        operations, size = needed_flops(work.conv), moved_bytes(work.problem)
        points.append(
            Point(
                number,
                work.case.text,
                work.engine,
                operations // 2,
                Series("", 0, tuple(times)).median_ms,
                roofs.floor_ms(operations, size),
                predicted_ms(work.problem, roofs.threads),
            )
        )
    return compared(points, sweep.to_first)


# -- judging -----------------------------------------------------------------------------------------------------------


def compared(points: Sequence[Point], to_first: bool) -> list[Point]:
    """Return the points with their ratios: of times to the first, or of times of a multiply-add to the one before."""
    before, made = [points[0]] * len(points) if to_first else [points[0], *points[:-1]], []
    for one, other in zip(points, before, strict=True):
        work = 1.0 if to_first else one.multiply_adds / other.multiply_adds
        ratios = {"ratio": one.ms / other.ms / work, "floor_ratio": one.floor_ms / other.floor_ms / work}
        made.append(replace(one, against=other.number, **ratios))
    return made


def height(point: Point, to_first: bool) -> float:
    """Return how high the step at a point is: up or down between neighbours, up only against the first."""
    return point.ratio if to_first else max(point.ratio, 1 / point.ratio)


def worst(points: Sequence[Point], to_first: bool) -> Point:
    """Return the point of the highest step."""
    return max(points[1:] or points, key=lambda point: height(point, to_first))


def is_flat(points: Sequence[Point], sweep: Sweep) -> bool:
    """Tell whether no step is higher than allowed."""
    return height(worst(points, sweep.to_first), sweep.to_first) <= sweep.limit


def verdict(name: str, points: Sequence[Point], sweep: Sweep) -> str:
    """Return what a sweep says, as a line."""
    at, costs = worst(points, sweep.to_first), [point.ns for point in points]
    steps = [point for point in points[1:] if height(point, sweep.to_first) > sweep.limit]
    words = f"CLIFFS: {len(steps)} of {len(points) - 1}" if steps else "flat"
    floor = height(replace(at, ratio=at.floor_ratio), sweep.to_first)
    step = f"{height(at, sweep.to_first):5.2f} from {at.against} to {at.number}, floor {floor:.2f}"
    span = f"max/min {max(costs) / min(costs):.2f}"
    return f"{name:20} {len(points):4} points  worst {step:36} {span:16} limit {sweep.limit}  {words}"


# -- what is written ---------------------------------------------------------------------------------------------------

_FIGURES = ("ms", "ns_per_multiply_add", "against", "ratio", "limit", "flat", "floor_ms", "floor_ratio", "predicted_ms")
COLUMNS = ("sweep", "number", "problem", "engine", "multiply_adds", *_FIGURES)


def row(name: str, point: Point, sweep: Sweep) -> dict[str, Any]:
    """Return a point as a row of the CSV."""
    flat = "yes" if height(point, sweep.to_first) <= sweep.limit else "no"
    values = (name, point.number, point.problem, point.engine, point.multiply_adds, point.ms, point.ns, point.against)
    figures = (*values, point.ratio, sweep.limit, flat, point.floor_ms, point.floor_ratio, point.predicted_ms)
    return dict(zip(COLUMNS, figures, strict=True))


def points_of(rows: Sequence[Mapping[str, str]]) -> dict[str, list[Point]]:
    """Return the points of a CSV by sweep, judged again."""
    found: dict[str, list[Point]] = {}
    for one in rows:
        ms, floor_ms, predicted_ms = (float(one[name] or "nan") for name in ("ms", "floor_ms", "predicted_ms"))
        point = Point(
            int(one["number"]), one["problem"], one["engine"], int(one["multiply_adds"]), ms, floor_ms, predicted_ms
        )
        found.setdefault(one["sweep"], []).append(point)
    return {name: compared(points, SWEEPS[name].to_first) for name, points in found.items()}


def draw(path: Path, found: Mapping[str, Sequence[Point]], run: Mapping[str, Any]) -> None:
    """Write the picture, a panel a sweep: measured and least time of a multiply-add, steps that are too high in red."""
    columns = min(4, len(found))
    rows = ceil(len(found) / columns)
    from matplotlib.figure import Figure  # noqa: PLC0415 - for who asks for a picture

    figure = Figure(figsize=(max(8.0, 4 * columns), 2.6 * rows + 0.9), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes, (name, points) in zip(grid.flat, found.items(), strict=False):
        _draw_sweep(axes, name, points)
    for axes in grid.flat[len(found) :]:
        axes.set_visible(False)
    handles = {label: one for axes in grid.flat for one, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, frameon=False)
    what = " ".join(str(run[name]) for name in ("direction", "type", "layout"))
    threads = f"{run['threads']} thread{'s' * (int(run['threads']) > 1)}"
    peak = f"f32 multiply-add peak {float(run['fma_gflops']):.0f} GFLOP/s, measured in this run"
    figure.suptitle(f"Steps between neighbouring problems: {what} on {run['machine']}, {threads}\n{peak}", fontsize=12)
    figure.savefig(path, dpi=100)


def _draw_sweep(axes: Any, name: str, points: Sequence[Point]) -> None:
    sweep, numbers = SWEEPS[name], [point.number for point in points]
    unit = [1.0 if sweep.to_first else 1e6 / point.multiply_adds for point in points]
    times = [point.ms * u for point, u in zip(points, unit, strict=True)]
    least = [point.floor_ms * u for point, u in zip(points, unit, strict=True)]
    steps = [(p.number, t) for p, t in zip(points, times, strict=True) if height(p, sweep.to_first) > sweep.limit]
    axes.plot(numbers, times, ".-", markersize=4, linewidth=0.8, label="measured")
    axes.plot(numbers, least, "--", color="0.5", linewidth=0.8, label="least time by the roofs")
    if steps:
        look = {"color": "C3", "fillstyle": "none", "markersize": 9, "label": "a step higher than allowed"}
        axes.plot(*zip(*steps, strict=True), "o", **look)
    seen = [*times, *least]
    if sweep.to_first:
        seen.append(sweep.limit * points[0].ms)
        axes.axhline(seen[-1], color="C3", linewidth=0.8, linestyle=":", label="the most that groups may take")
    low, high = min(seen) / 1.15, max(seen) * 1.15
    axes.set(yscale="log", ylim=(low, high), ylabel="ms" if sweep.to_first else "ns a multiply-add")
    plain_ticks(axes.yaxis, low, high)
    worst_step = height(worst(points, sweep.to_first), sweep.to_first)
    axes.set_title(f"{name.replace('_', ' ')}: highest step {worst_step:.2f}", fontsize=9)
    if sweep.doubling:
        axes.set(xscale="log")
        plain_ticks(axes.xaxis, min(numbers), max(numbers))
    else:
        axes.locator_params(axis="x", integer=True)


def plain_ticks(axis: Any, low: float, high: float) -> None:
    """Have the ticks of a logarithmic axis say plain numbers: 10, 100, or where it is shorter some between."""
    from matplotlib.ticker import FixedLocator, NullLocator  # noqa: PLC0415 - for who asks for a picture

    axis.set_major_locator(FixedLocator(plain_numbers(low, high)))
    axis.set_major_formatter(lambda value, place: f"{value:,.15g}")
    axis.set_minor_locator(NullLocator())


def plain_numbers(low: float, high: float) -> list[float]:
    """Return round numbers from ``low`` to ``high``: three of them at least, of the roundest kind that has as many.

    >>> plain_numbers(0.4, 2000), plain_numbers(0.4, 30), plain_numbers(7.9, 9.3)
    ([1.0, 10.0, 100.0, 1000.0], [0.5, 1.0, 2.0, 5.0, 10.0, 20.0], [8.0, 8.5, 9.0])
    """
    ticks = []
    for heads in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        decades = range(floor(log10(low)), ceil(log10(high)) + 1)
        numbers = (float(f"{head}e{decade}") for decade in decades for head in heads)
        ticks = [number for number in numbers if low <= number <= high]
        if len(ticks) >= FEWEST_TICKS:
            return ticks
    step = 10.0 ** floor(log10(high - low))
    step = next(s for s in (step, step / 2, step / 5, step / 10) if floor(high / s) - ceil(low / s) + 1 >= FEWEST_TICKS)
    return [float(f"{number * step:.12g}") for number in range(ceil(low / step), floor(high / step) + 1)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Look for cliffs in the times of a role.")
    parser.add_argument("--direction", default="BWD_W", choices=ROLES, help="what is solved for")
    parser.add_argument("--threads", type=int, help="default: as convgrad chooses")
    parser.add_argument("--type", default="f32", choices=FORMATS)
    parser.add_argument("--layout", default="NXC", choices=DATA)
    parser.add_argument("--repeat", type=int, default=7, help="rounds")
    parser.add_argument("--only", action="append", choices=SWEEPS, metavar="SWEEP", help=", ".join(SWEEPS))
    parser.add_argument("--plot", type=Path, metavar="PNG")
    parser.add_argument("--measured", type=Path, metavar="CSV", help="measure nothing: draw what -o wrote once")
    options = asked(parser, arguments)
    if options.measured:
        if not options.plot:
            parser.error("--measured goes with --plot")
        with options.measured.open(newline="") as file:
            rows = list(csv.DictReader(file))
        draw(options.plot, points_of(rows), rows[0])
        return 0
    roofs = measure_roofs(count(options.threads))
    words = f"{options.direction} {options.type} {options.layout}"
    print(f"{heading(roofs)}; {words}")
    found = {}
    for name in options.only or SWEEPS:
        sweep = SWEEPS[name]
        found[name] = timed(sweep, words, roofs.threads, options.repeat, roofs)
        print(verdict(name, found[name], sweep), flush=True)
    run = {name: getattr(options, name) for name in ("direction", "type", "layout")}
    run |= conditions(roofs, options.repeat, ())
    if options.output:
        made = [row(name, one, SWEEPS[name]) | run for name, points in found.items() for one in points]
        write_rows(options.output, made)
    if options.plot:
        draw(options.plot, found, run)
    return 0 if all(is_flat(points, SWEEPS[name]) for name, points in found.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
