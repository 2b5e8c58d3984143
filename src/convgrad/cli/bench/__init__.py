"""``convgrad bench``: time problems, also with other libraries, and print each time as soon as it is measured."""

from __future__ import annotations

import argparse
import csv
import json
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from convgrad.cli.arguments import typed
from convgrad.cli.bench import report, suites
from convgrad.cli.bench.harness import keep_freed_memory, measure
from convgrad.cli.bench.peers import Peer, find_peers
from convgrad.cli.bench.report import Row
from convgrad.cli.bench.roofs import Roofs, measure_roofs
from convgrad.cli.bench.suites import TimedCase
from convgrad.cli.console import complain, say, wrote
from convgrad.cli.exits import DONE, WRONG, UsageError
from convgrad.cli.progress import ProgressLine
from convgrad.disk import check_new, growing
from convgrad.engines.settings import max_error
from convgrad.host import usable_cores
from convgrad.spec.winograd.choice import DIRECT
from convgrad.words import counted

PHASE = 0.3  # the largest change of the processor's speed during a run without a warning
_BLAS_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")


def main(options: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    if not (options.problems or options.suite or options.shapes):
        raise UsageError(f"give problem lines, --suite or --shapes; suites: {_names()}")
    with max_error(options.max_error or DIRECT):
        wrong = [row["problem"] for row in _bench(options) if row["right"] != "yes"]
    for line in wrong:
        words = ["convgrad", "run", line, "--fill", "normal", "--check", "oracle"]
        if options.max_error is not None:
            words += ["--max-error", typed(options.max_error)]
        complain(f"reproduce: {shlex.join(words)}")
    return WRONG if wrong else DONE


def _bench(options: argparse.Namespace) -> list[Row]:
    """Time every case, print and write its row, and print the means of all rows; return the rows."""
    cases, peers, cores = _cases(options), find_peers(options.against), len(usable_cores())
    threads = options.threads or cores
    if threads > cores:
        bound = f"--threads must be at most {cores}, the cores that this process may run on"
        raise UsageError(f"{bound}, because the peak of more threads cannot be measured; got {threads}")
    if options.output:
        check_new(Path(options.output), options.force)
    keep_freed_memory()
    with ProgressLine("measuring the machine:", options.json):
        roofs = measure_roofs(threads)
    if not options.json:
        say(f"{report.heading(roofs)}\n{report.SHARES}\n{report.head_line(peers)}")
    rows: list[Row] = []
    with _csv(options.output, options.force) as write:
        for number, case in enumerate(cases, 1):
            rows.append(_row(case, f"{number}/{len(cases)}", peers, roofs, options))
            write(rows[-1])
            say(_json(rows[-1]) if options.json else report.line(rows[-1], peers))
    if any(row["engine"] == "numpy" for row in rows):
        _warn_of_blas(threads)
    _warn_of_phases(rows)
    if not options.json:
        say("\n".join(report.summary(rows, peers)))
    if options.output:
        wrote(options.output)
    return rows


def _row(case: TimedCase, place: str, peers: tuple[Peer, ...], roofs: Roofs, options: argparse.Namespace) -> Row:
    with ProgressLine(f"{place} {case.name}:", options.json) as progress:
        outcome = measure(case, peers, roofs.threads, options.repeat, progress)
    return {**report.row(outcome, roofs), **report.conditions(roofs, options.repeat, peers)}


def _cases(options: argparse.Namespace) -> list[TimedCase]:
    instead = options.direction, options.type, options.layout
    cases = suites.cases("", options.problems, *instead)
    for name in suites.names() if options.suite == ["all"] else options.suite:
        cases += suites.cases(name, suites.suite(name), *instead)
    if options.shapes:
        cases += suites.cases_of_file(Path(options.shapes), *instead)
    return cases


def _json(figures: Row) -> str:
    """Return a row as JSON, without values that were not measured; ``right`` becomes a boolean."""
    known = {name: value for name, value in figures.items() if value is not None}
    return json.dumps(known | {"right": figures["right"] == "yes"})


def _names() -> str:
    return ", ".join(("all", *suites.names()))


def _warn_of_blas(threads: int) -> None:
    """Warn if the BLAS library of the NumPy engine has a different number of threads than requested."""
    set_to = next((os.environ[name] for name in _BLAS_VARIABLES if name in os.environ), str(len(usable_cores())))
    if set_to != str(threads):
        advice = f"set {_BLAS_VARIABLES[0]}={threads}"
        complain(f"convgrad: warning: the NumPy engine's BLAS had {set_to} threads; {advice}")


def _warn_of_phases(rows: Sequence[Row]) -> None:
    """Warn if the processor was slower or faster during some rows than at the start."""
    peaks = [row["peak_gflops"] / row["fma_gflops"] for row in rows if row["type"] == "f32"]
    changed = sum(not 1 - PHASE < share < 1 / (1 - PHASE) for share in peaks)
    if changed:
        speed = f"the processor's speed changed by more than {PHASE:.0%} since the start"
        complain(f"convgrad: warning: {speed} in {counted(changed, 'problem')}; measure again")


# -- files -----------------------------------------------------------------------------------------------------------


@contextmanager
def _csv(place: str | None, force: bool) -> Iterator[Callable[[Row], None]]:
    """Yield a function that writes each row to the file immediately, so that an interruption loses no row."""
    if place is None:
        yield lambda row: None
        return
    with growing(Path(place), force) as file:
        writer = csv.DictWriter(file, report.COLUMNS)
        writer.writeheader()

        def write(row: Row) -> None:
            writer.writerow(row)
            file.flush()

        yield write
