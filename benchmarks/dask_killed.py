"""Kill a worker, by SIGKILL, in the middle of each of 50 Dask jobs: one hash, what was done again, what time it cost.

python benchmarks/dask_killed.py -o dask_killed.csv

Jobs take turns, in chunks of 1, 3 and 7 images; reading a chunk waits --delay-ms. Each runs once whole, then with the
worker killed that has read the last of a random number of chunks, so that what it has made is lost; then the nanny's
new worker is waited for. Every worker has computed the problem before, and all together the job without waiting: only
the second run's new worker has modules to load and kernels to compile. The exit code is 1 unless a worker was killed in
each job and all hashes are those of plain calls.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from clusters import WAIT_S, Kill, cluster, killing, pids, readers
from dask_jobs import JOBS, Job, expected, hash_of, lazy, operands, saved
from distributed import Client
from rows import asked, write_rows

import convgrad.dask
from convgrad.host import cpu_model

CHUNKS = (1, 3, 7)


def run(
    client: Client, job: Job, paths: Sequence[Path], chunk: int, rows: int, delay_s: float, after: int = 0
) -> tuple[str, float, int, Kill]:
    """Return the hash, the seconds, how many chunks were read, and who was killed after so many (0: nobody)."""
    journal = paths[0].with_name("journal")
    journal.unlink(missing_ok=True)
    arrays = lazy(job, paths, journal, chunk, rows, delay_s=delay_s)
    begin = time.perf_counter()
    with killing(client, journal, after or sys.maxsize) as kill:
        result = client.compute(convgrad.dask.run(job.operator, *arrays, **job.attributes)).result(timeout=WAIT_S)
    return hash_of(result), time.perf_counter() - begin, len(readers(journal)), kill


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each job, write them as CSV where asked; return the exit code."""
    parser = argparse.ArgumentParser(description="Kill a worker in each of many jobs.")
    parser.add_argument("--number", type=int, default=50)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--delay-ms", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", nargs="*", choices=JOBS, default=list(JOBS))
    options = asked(parser, arguments)
    chance, rows, wrong = random.Random(options.seed), [], 0
    with tempfile.TemporaryDirectory() as folder, cluster([{}] * options.workers) as client:
        for number in range(options.number):
            name = options.jobs[number % len(options.jobs)]
            job = JOBS[name]
            given = operands(job)
            paths, plain = saved(given, Path(folder)), expected(job, given)
            chunk, cut = (1, 16) if job.images == 3 else (chance.choice(CHUNKS), 0)
            client.run(expected, job, given)
            run(client, job, paths, chunk, cut, 0.0)
            whole, whole_s, reads, _ = run(client, job, paths, chunk, cut, options.delay_ms / 1e3)
            after = chance.randrange(1, reads)
            hash_, killed_s, reads_killed, kill = run(client, job, paths, chunk, cut, options.delay_ms / 1e3, after)
            client.wait_for_workers(options.workers, timeout=WAIT_S)
            right = whole == hash_ == plain and kill.pid and kill.pid not in pids(client).values()
            wrong += not right
            row = {
                "job": name, "workers": options.workers, "chunk": chunk, "rows": cut or "all", "reads": reads,
                "killed_after": kill.after, "reads_with_kill": reads_killed, "read_again": reads_killed - reads,
                "seconds": f"{whole_s:.3f}", "seconds_with_kill": f"{killed_s:.3f}",
                "lost_seconds": f"{killed_s - whole_s:.3f}", "hash": hash_, "plain": plain,
                "delay_ms": options.delay_ms, "processor": cpu_model(),
            }  # fmt: skip
            rows.append(row)
            print(*(f"{k} {v}" for k, v in row.items() if k != "processor"), sep=", ", flush=True)
    print(said(rows, wrong))
    if options.output:
        write_rows(options.output, rows)
    return 1 if wrong or not rows else 0


def said(rows: Sequence[dict[str, Any]], wrong: int) -> str:
    """Return what the jobs say together."""
    lost, times = ([float(row[column]) for row in rows] for column in ("lost_seconds", "seconds"))
    again = median(row["read_again"] / row["reads"] for row in rows)
    return (
        f"{len(rows)} jobs with a worker killed, {wrong} with other bits or nobody killed; "
        f"median {median(times):.3f} s without and {median(lost):.3f} s more with a kill, "
        f"{100 * again:.0f} % of reads again"
    )


if __name__ == "__main__":
    sys.exit(main())
