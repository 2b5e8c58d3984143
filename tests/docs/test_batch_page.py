"""docs/batch.md: its table is what the order of sums says, and workers of any number train to one hash."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from itertools import starmap
from typing import Any

import pytest

from convgrad.spec.geometry import Channels
from convgrad.spec.pieces import chunk_images, leaf_images
from tests.support.places import DOCS, EXAMPLES

PAGE = (DOCS / "batch.md").read_text(encoding="utf-8")
EXAMPLE = EXAMPLES / "data_parallel.py"


def test_the_table_is_what_the_order_says() -> None:
    head, _, *rows = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("|")]
    batches = [int(number) for cell in head[2:] for number in re.findall(r"\d+", cell)]
    assert batches == [32, 256, 1024]
    assert len(rows) > 5
    for extents, *cells in rows:
        height, width = map(int, extents.split(" x "))
        geometries = [Channels(batch, 1, (height, width)) for batch in batches]
        assert list(map(int, cells)) == [leaf_images(geometries[0]), *map(chunk_images, geometries)], extents


class HereAtOnce:
    """A pool whose workers are this process."""

    def starmap(self, work: Any, given: Any) -> list[Any]:
        return list(starmap(work, given))


def test_any_number_of_workers_trains_to_one_hash() -> None:
    example = runpy.run_path(str(EXAMPLE))
    hashes = {example["train"](HereAtOnce(), workers) for workers in ([1], [3], [11])}
    assert len(hashes) == 1


@pytest.mark.long
def test_processes_train_to_one_hash() -> None:
    command = [sys.executable, "-W", "error", str(EXAMPLE)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert len({line.rsplit(maxsplit=1)[-1] for line in run.stdout.splitlines()}) == 1
