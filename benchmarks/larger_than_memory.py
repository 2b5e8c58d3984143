"""Measure calls on files that are larger than the memory they may take: bits, memory, time beside reading alone.

python benchmarks/larger_than_memory.py -o larger_than_memory.csv

Files are made in a folder of their own, which is removed at the end. Each call is a process of its own, under an
RLIMIT_DATA of --limit, and told how much of it its arrays may take. Its pages are sampled every 10 ms: RssAnon are its
own, RssFile are pages of the files, which the kernel may take back at any time. Beside it stand the time to read the
files alone, by plain reads (read) and by the call's own reader (reader), and the plain call on arrays loaded whole,
without a limit, whose SHA-256 must be the same.

A call is cold where the kernel was told to forget the files before, warm where it had read them: ``cached_GB`` is what
``fincore`` says of them. Where this is a guest, its host may still have what the guest forgot.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import on_disk
from on_disk import PROBLEMS
from rows import asked, write_rows
from watched import watched

from convgrad.host import cpu_model

CALL = Path(__file__).with_name("one_call.py")
GB, MB = 1e9, 1e6
TIMEOUT_S = 300
MEMORIES = ("20MB", "100MB", "200MB", "500MB")  # the least that is measured holds no two good pieces
SHOWN = {
    "problem": 19, "GB": 6, "how": 9, "stored": 6, "cached_GB": 9, "memory": 6, "threads": 7, "seconds": 7, "MB/s": 6,
    "waiting_s": 9, "pieces": 6, "read_again_MB": 13, "planned_MB": 10, "RssAnon_before_MB": 17, "RssAnon_MB": 10,
    "VmData_MB": 9, "RssFile_MB": 10, "sha256": 16,
}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """A call on a problem of so many bytes: how, in how much memory, by how many threads, after what."""

    problem: str
    size: int
    how: str = "in pieces"
    memory: str = ""
    threads: int = 2
    cold: bool = False
    stored: str = "npy"


def runs(size: int, threads: Sequence[int], memories: Sequence[str]) -> Iterator[Run]:
    """Yield what is measured: of each problem the call in pieces, its control, and its files read alone."""
    images, volume, *written = PROBLEMS
    most, ample = max(threads), memories[-1]
    first = Run(images, size, memory=ample, threads=most, cold=True)
    yield from (replace(first, how="read"), replace(first, how="reader"), first)
    yield from (replace(first, how="read", cold=False), replace(first, how="reader", cold=False))
    for number in threads:
        for memory in memories:
            yield Run(images, size, memory=memory, threads=number)
    yield replace(first, how="whole", cold=False)
    for name in written:
        yield Run(name, size, memory=ample, threads=most, cold=True)
        yield Run(name, size, "whole", threads=most)
    half = replace(first, problem=volume, size=size // 2)
    yield from (replace(half, how="read"), half, replace(half, cold=False), replace(half, how="whole", cold=False))
    small = Run(images, size // 8, memory="50MB", threads=most)
    stored = replace(small, stored="zarr")
    yield from (small, stored, replace(stored, how="reader"), replace(small, how="whole"))


def measured(run: Run, folder: Path, limit: int, shown: bool) -> dict[str, Any]:
    """Return the row of a call, whose files are there."""
    problem = PROBLEMS[run.problem](run.size)
    files = [on_disk.path_of(folder, name, problem.operands[name]) for name in problem.files]
    if run.cold:
        for file in files:
            on_disk.let_go(file)
    cached = sum(map(on_disk.cached_bytes, files))
    job = vars(run) | {"folder": str(folder), "limit": limit if run.how == "in pieces" else 0, "shown": shown}
    seen = watched(CALL, [json.dumps(job)], TIMEOUT_S)
    told = seen.told
    return {
        "problem": run.problem, "GB": f"{problem.nbytes / GB:.3g}", "how": run.how, "stored": run.stored,
        "cached_GB": f"{cached / GB:.3g}" if run.stored == "npy" else "",
        "memory": run.memory if run.how == "in pieces" else "",
        "threads": run.threads, "seconds": f"{told['seconds']:.3g}", "pieces": told.get("pieces", ""),
        "MB/s": f"{told['read_bytes'] / told['seconds'] / MB:.0f}",
        "read_again_MB": f"{told.get('again_bytes', 0) / MB:.0f}",
        "waiting_s": _short(told.get("waiting_s")), "computing_s": _short(told.get("computing_s")),
        "on_disk_s": _short(told.get("on_disk_s")),
        "planned_MB": f"{told['planned_bytes'] / MB:.0f}" if "planned_bytes" in told else "",
        **{f"{kind}_MB": f"{peak / MB:.0f}" for kind, peak in seen.peaks.items()},
        **{f"{kind}_before_MB": f"{told['before'][kind] / MB:.0f}" for kind in seen.peaks},
        "samples": seen.samples, "sha256": told.get("sha256", "")[:16], "processor": cpu_model(),
    }  # fmt: skip


def _short(number: float | None) -> str:
    return "" if number is None else f"{number:.3g}"


def make(run: Run, folder: Path) -> None:
    """Have the files of a call there."""
    problem = PROBLEMS[run.problem](run.size)
    on_disk.make_files(problem, folder)
    if run.stored == "zarr":
        on_disk.make_stores(problem, folder)


def disagree(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the problems whose results have not all one hash."""
    hashes: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        if row["sha256"]:
            hashes.setdefault((row["problem"], row["GB"]), set()).add(row["sha256"])
    return [f"{problem} of {size} GB" for (problem, size), found in hashes.items() if len(found) > 1]


def line(row: Mapping[str, str]) -> str:
    """Return a row, or its heads, as a line of a table."""
    return " ".join(
        f"{row[name]:<{width}}" if name == "problem" else f"{row[name]:>{width}}" for name, width in SHOWN.items()
    )


def main() -> None:
    """Print the figures; write them as CSV where asked; fail where a hash differs."""
    parser = argparse.ArgumentParser(description="Measure calls on files that are larger than memory.")
    parser.add_argument("--size", type=float, default=8, help="GB of the largest problem's operands")
    parser.add_argument("--limit", type=float, default=1, help="GB that RLIMIT_DATA allows a call in pieces")
    parser.add_argument("--threads", type=int, nargs="+", default=[2, 1])
    parser.add_argument("--memory", nargs="+", default=MEMORIES)
    parser.add_argument(
        "--folder", type=Path, help="where the files' folder is made; default: where temporary ones are"
    )
    options = asked(parser)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal; the files are removed"))
    print(cpu_model())
    print(line({name: name for name in SHOWN}))
    rows: list[dict[str, Any]] = []
    begin, limit = time.monotonic(), int(options.limit * GB)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for run in runs(int(options.size * GB), options.threads, options.memory):
            make(run, Path(folder))
            rows.append(measured(run, Path(folder), limit, shown=run.cold and sys.stderr is not None))
            print(line({name: str(value) for name, value in rows[-1].items()}), flush=True)
            if options.output:
                write_rows(options.output, rows)
    print(f"{len(rows)} calls, {time.monotonic() - begin:.0f} s")
    if wrong := disagree(rows):
        sys.exit(f"the bits are others: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
