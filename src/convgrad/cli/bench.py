"""``convgrad bench``: problems timed side by side with peers, reported as it goes."""

from __future__ import annotations

import argparse
import csv
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from convgrad import pictures
from convgrad.bench import plot, report, suites
from convgrad.bench.harness import measure
from convgrad.bench.peers import Peer, find_peers
from convgrad.bench.report import Row
from convgrad.bench.roofs import Roofs, measure_roofs
from convgrad.bench.suites import Case
from convgrad.cli.progress import Progress
from convgrad.disk import check_new
from convgrad.errors import ConvgradError
from convgrad.host import usable_cores

_BLAS_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")


def main(options: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    if not (options.problems or options.suite or options.shapes):
        print(f"convgrad bench: give problem lines, --suite or --shapes; suites: {_names()}", file=sys.stderr)
        return 2
    try:
        rows = _bench(options)
    except (ConvgradError, MemoryError) as error:
        print(f"convgrad: {error or 'out of memory'}", file=sys.stderr)
        return 1
    wrong = [row["problem"] for row in rows if row["right"] != "yes"]
    for line in wrong:
        words = ("convgrad", "run", line, "--fill", "normal", "--check", "oracle")
        print(f"reproduce: {shlex.join(words)}", file=sys.stderr)
    return 1 if wrong else 0


def _bench(options: argparse.Namespace) -> list[Row]:
    """Time every case, print and write its row, then the means; return the rows."""
    cases, peers, threads = _cases(options), find_peers(options.against), options.threads or len(usable_cores())
    for place in (options.output, options.plot):
        if place:
            check_new(Path(place), options.force)
    if options.plot:
        pictures.check_target(options.plot, options.force)
    with Progress("measuring the machine:"):
        roofs = measure_roofs(threads)
    print(report.heading(roofs), report.head_line(peers), sep="\n", flush=True)
    rows: list[Row] = []
    with _csv(options.output) as write:
        for number, case in enumerate(cases, 1):
            rows.append(_row(case, f"{number}/{len(cases)}", peers, roofs, options.repeat))
            write(rows[-1])
            print(report.line(rows[-1], peers), flush=True)
    if any(row["engine"] == "numpy" for row in rows):
        _warn_of_blas(threads)
    print(*report.summary(rows, peers), sep="\n")
    if options.plot:
        plot.draw(options.plot, rows, roofs, peers, options.force)
    return rows


def _row(case: Case, place: str, peers: tuple[Peer, ...], roofs: Roofs, repeat: int) -> Row:
    with Progress(f"{place} {case.name}:") as progress:
        outcome = measure(case, peers, roofs.threads, repeat, progress)
    return {**report.row(outcome, roofs), **report.conditions(roofs, repeat, peers)}


def _cases(options: argparse.Namespace) -> list[Case]:
    sources = [("", options.problems)]
    named = suites.names() if options.suite == ["all"] else options.suite
    sources += [(name, suites.suite(name)) for name in named]
    if options.shapes:
        path = Path(options.shapes)
        sources.append((path.stem, suites.shapes_file(path)))
    return [
        case
        for origin, lines in sources
        for case in suites.cases(origin, lines, options.direction, options.type, options.layout)
    ]


def _names() -> str:
    return ", ".join(("all", *suites.names()))


def _warn_of_blas(threads: int) -> None:
    """Say so where the NumPy engine did not run on the threads asked for, which its BLAS library decides."""
    set_to = next((os.environ[name] for name in _BLAS_VARIABLES if name in os.environ), str(len(usable_cores())))
    if set_to != str(threads):
        advice = f"set {_BLAS_VARIABLES[0]}={threads}"
        print(f"convgrad: warning: the NumPy engine's BLAS had {set_to} threads; {advice}", file=sys.stderr)


# -- files -----------------------------------------------------------------------------------------------------------


@contextmanager
def _csv(place: str | None) -> Iterator[Callable[[Row], None]]:
    """Give a function that writes a row at once, so that what was measured outlives an interruption."""
    if place is None:
        yield lambda row: None
        return
    with Path(place).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, report.COLUMNS)
        writer.writeheader()

        def write(row: Row) -> None:
            writer.writerow(row)
            file.flush()

        yield write
