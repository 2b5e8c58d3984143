"""Run Dask jobs in chunks of 1 to 64 images by 1 to 4 processes: one hash, how long, what workers sent each other.

python benchmarks/dask_workers.py -o dask_workers.csv

Operands lie in files and are read chunk by chunk. The last of several workers is capped to --cap, by default the
narrowest instruction set that the machine has; ``calls`` says
how many calls each made with what. A figure of time is the median of
the rounds behind one that does not count. What moved is by the workers' own logs, of the last round: values that one
worker fetched from another, by the name of the task that made them. ``result_bytes`` and ``sums_bytes`` are what is
there at least: the result, and one sum of it in f32. The exit code is 1 unless every hash is that of the plain call.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

import distributed
from clusters import WAIT_S, calls, cluster, forget_moved, moved, readers
from dask_jobs import JOBS, Job, expected, hash_of, lazy, operands, posed, saved
from distributed import Client
from distributed.protocol import pickle
from rows import asked, write_rows

import convgrad.dask
from convgrad.dask.chunks import summed
from convgrad.engines.llvm import isas
from convgrad.functional.partials import SUMMED
from convgrad.host import cpu_model
from convgrad.spec.image_cuts import blocks_of
from convgrad.spec.pieces import leaf_images, nodes_of
from convgrad.spec.subproblems import positions, whole

CHUNKS, WORKERS, ROUNDS = (1, 3, 7, 16, 64), (1, 2, 3, 4), 5


def measured(client: Client, job: Job, paths: Sequence[Path], chunk: int, rows: int, rounds: int) -> dict[str, Any]:
    """Return what was found of a job in chunks."""
    journal, times, hashes = paths[0].with_name("journal"), [], set()
    for _ in range(rounds + 1):
        journal.unlink(missing_ok=True)
        forget_moved(client)
        calls(client)
        arrays = lazy(job, paths, journal, chunk, rows)
        with distributed.get_task_stream(client) as stream:
            begin = time.perf_counter()
            result = convgrad.dask.run(job.operator, *arrays, **job.attributes)
            made = client.compute(result)
            hashes.add(hash_of(made.result(timeout=WAIT_S)))
            times.append(time.perf_counter() - begin)
    sent, counted = moved(client), calls(client).values()
    return {
        "seconds": f"{median(times[1:] or times):.4g}", "reads": len(readers(journal)),
        "calls": " ".join(f"{isa}:{n}" for one in counted for isa, n in one.items()), "tasks": len(stream.data),
        "graph_bytes": len(pickle.dumps(result.__dask_graph__())), "messages": sent.messages, "values": sent.values,
        "moved_bytes": sent.nbytes,
        "moved": "; ".join(f"{kind} {n} x {nbytes // n}" for kind, (n, nbytes) in sorted(sent.by_kind.items())),
        "read_bytes": sum(array.nbytes for array in arrays), "result_bytes": result.nbytes,
        "sums_bytes": sums_bytes(job, arrays), "hashes": " ".join(hashes),
    }  # fmt: skip


def sums_bytes(job: Job, arrays: Sequence[Any]) -> int:
    """Return the bytes of the unfinished sums of all pieces; none of what is computed image by image."""
    problem = posed(job)
    if problem.solves_for not in SUMMED:
        return 0
    pieces = summed(problem, {t: array.chunks for t, array in zip(problem.operands, arrays, strict=True)})
    extents, each, sums = positions(problem), leaf_images(problem.geometry), 0
    for piece in pieces:
        if piece.nodes_with_ranges == (whole(problem),):
            sums += len(nodes_of(piece.images.start // each, -(-piece.images.stop // each)))
            continue
        for box in piece.nodes_with_ranges:
            blocks = blocks_of(extents, box[0])
            sums += len(piece.images) * len(nodes_of(blocks.start, blocks.stop))
    return sums * 4 * prod(problem.output_shape)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each, write them as CSV where asked; return the exit code."""
    parser = argparse.ArgumentParser(description="Jobs in chunks, by workers: one hash, and what moved.")
    parser.add_argument("--jobs", nargs="*", choices=JOBS, default=list(JOBS))
    parser.add_argument("--chunks", type=int, nargs="*", default=CHUNKS)
    parser.add_argument("--workers", type=int, nargs="*", default=WORKERS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--cap", default=isas.host_isas()[-1].name, help="of the last of several workers")
    options = asked(parser, arguments)
    found: list[dict[str, Any]] = []
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for name in options.jobs:
            given = operands(JOBS[name])
            (at := Path(folder, name)).mkdir()
            files[name] = saved(given, at), expected(JOBS[name], given)
        for number in options.workers:
            environments = [{}] * (number - 1) + [{"CONVGRAD_MAX_ISA": options.cap} if number > 1 else {}]
            with cluster(environments) as client:
                for name in options.jobs:
                    paths, plain = files[name]
                    # Where images are few they are cut in rows, which need not be an operand's halo apart
                    cuts = [(chunk, 0) for chunk in options.chunks if JOBS[name].images > 3] or [
                        (1, 24),
                        (1, 40),
                        (3, 8),
                    ]
                    for chunk, rows in cuts:
                        row = measured(client, JOBS[name], paths, chunk, rows, options.rounds)
                        wrong += row["hashes"] != plain
                        head = {"job": name, "workers": number, "chunk": chunk, "rows": rows or "all"}
                        found.append(head | row | {"plain": plain, "processor": cpu_model()})
                        print(*(f"{k} {v}" for k, v in found[-1].items() if k != "processor"), sep=", ", flush=True)
    if options.output:
        write_rows(options.output, found)
    print(f"{len(found)} jobs in {len(found) * (options.rounds + 1)} runs, {wrong} with other bits than the plain call")
    return 1 if wrong or not found else 0


if __name__ == "__main__":
    sys.exit(main())
