"""Measure what it costs to keep a checkpoint: a state saved to the disk and loaded, beside the computing of a piece.

python benchmarks/checkpoint.py -o checkpoint.csv

A state of a weight gradient has a sum for each level of the tree, here 1 and 3. It is saved at most every ``EVERY_S``
seconds, so the share of a call that saving takes is at most ``save_ms`` of that. A piece has as many images as 64 MiB
of operands hold. A figure is the median of the rounds; the folder tells which disk.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rows import asked, write_rows

from convgrad import notation
from convgrad.functional.partials import partials_of
from convgrad.host import cpu_model
from convgrad.scale.checkpoint import EVERY_S, Checkpoint, State
from convgrad.spec.pieces import nodes_of
from convgrad.spec.problem import canonical_shapes, of_images

LAYERS = (
    "BWD_W f32 NXC mb1ic64ih56oc64oh56kh3ph1",
    "BWD_W f32 NXC mb1ic256ih14oc256oh14kh3ph1",
    "BWD_W f32 NXC mb1ic512ih28oc512oh28kh3ph1",
)
PIECE_BYTES, ROUNDS = 64 << 20, 9


def timed(call: Callable[[], Any], rounds: int) -> float:
    """Return the median milliseconds of a call."""
    found = []
    for _ in range(rounds):
        begin = time.perf_counter()
        call()
        found.append(1e3 * (time.perf_counter() - begin))
    return median(found)


def measured(text: str, folder: Path, threads: int, rounds: int) -> list[dict[str, Any]]:
    """Return the rows of a layer."""
    one = notation.problem(text)
    *shapes, _ = canonical_shapes(one)
    images = max(1, PIECE_BYTES // sum(4 * int(np.prod(shape)) for shape in shapes))
    piece, rng = of_images(one, images), np.random.default_rng(0)
    lying = [(images, *shape[2:], shape[1]) for shape in shapes]
    operands = [np.moveaxis(rng.standard_normal(shape, np.float32), -1, 1) for shape in lying]
    rows = []
    for finished in (256, 256 + 16 + 1):
        sums = [rng.standard_normal(one.output_shape, np.float32) for _ in nodes_of(0, finished)]
        state = State(finished, sums=tuple(sums))
        kept = Checkpoint(folder / "kept", one, {})
        save_ms, load_ms = timed(lambda: kept.save(state), rounds), timed(kept.load, rounds)  # noqa: B023 - called here
        kept.remove()
        rows.append(
            {
                "problem": text,
                "sums": len(sums),
                "megabytes": round(sum(array.nbytes for array in sums) / 1e6, 2),
                "save_ms": round(save_ms, 2),
                "load_ms": round(load_ms, 2),
                "share_at_most": round(save_ms / (1e3 * EVERY_S), 5),
                "piece_images": images,
                "piece_ms": round(timed(lambda: partials_of(piece, operands, 0, threads), max(3, rounds // 3)), 2),
                "threads": threads,
                "processor": cpu_model(),
            }
        )
    return rows


def main() -> None:
    """Measure, print and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where the file is kept (default: where temporary files are)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = asked(parser, required=True)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        rows = [row for text in LAYERS for row in measured(text, Path(folder), options.threads, options.rounds)]
    for row in rows:
        print(row)
    write_rows(options.output, rows)


if __name__ == "__main__":
    main()
