"""Dask jobs on a cluster of processes: one hash, whatever is cut, who computes it with what, and who dies meanwhile."""

from __future__ import annotations

import csv
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.places import BENCHMARKS

pytest.importorskip("distributed")
sys.path.append(str(BENCHMARKS))  # workers start with this path, and find the jobs there

import dask
import dask.array as da
import dask_killed
import dask_workers
from clusters import WAIT_S, calls, cluster, killing, pids, readers
from dask_jobs import JOBS, expected, hash_of, lazy, operands, saved
from distributed import Client, wait

import convgrad.dask
from convgrad.engines.llvm import isas
from tests.support.engine_helpers import HOST
from tests.support.tiers import tiers

WEIGHTS = "ConvolutionBackwardWeights"
# Images and rows of a chunk; every third job is of the quick tier
CUTS = {"weights": (7, 0), "bias": (16, 0), "forward": (7, 0), "rows": (1, 24), "data": (16, 6)}


@pytest.fixture(scope="module", autouse=True)
def environment() -> Iterator[None]:
    """Leave the environment as it was: a nanny sets OMP_NUM_THREADS, by which later tests would have one thread."""
    before = set(os.environ)
    yield
    for name in set(os.environ) - before - {"PYTEST_CURRENT_TEST"}:
        del os.environ[name]


@pytest.fixture(scope="module")
def two() -> Iterator[Client]:
    """A worker with all instruction sets of this machine, and one with the narrowest."""
    with cluster([{}, {"CONVGRAD_MAX_ISA": HOST[-1]}]) as client:
        yield client


def files(name: str, folder: Path) -> tuple[list[Path], str]:
    """Return a job's operands in files, and the hash of the plain call."""
    given = operands(JOBS[name])
    return saved(given, folder), expected(JOBS[name], given)


def made(name: str, arrays: Sequence[Any]) -> da.Array:
    job = JOBS[name]
    return convgrad.dask.run(job.operator, *arrays, **job.attributes)


def computed(client: Client, name: str, arrays: Sequence[Any]) -> str:
    """Return the hash of what a cluster computes."""
    return hash_of(client.compute(made(name, arrays)).result(timeout=WAIT_S))


@tiers("name", list(CUTS), every=3)
def test_workers_of_two_instruction_sets_compute_one_hash(two: Client, tmp_path: Path, name: str) -> None:
    paths, plain = files(name, tmp_path)
    calls(two)
    assert computed(two, name, lazy(JOBS[name], paths, tmp_path / "journal", *CUTS[name])) == plain
    counted = calls(two).values()
    assert sorted(isa for one in counted for isa in one) == sorted([str(isas.isa()), HOST[-1]])
    assert all(one.total() > 0 for one in counted)


@pytest.mark.long
def test_chunks_of_any_number_of_images_have_one_hash(two: Client, tmp_path: Path) -> None:
    """Of packs of 5 images, so that no chunk but those of all begins and ends with leaves."""
    paths, plain = files("packs", tmp_path)
    found = {n: computed(two, "packs", lazy(JOBS["packs"], paths, tmp_path / "journal", n)) for n in (1, 3, 7, 16, 64)}
    assert found == dict.fromkeys(found, plain)


def test_a_batch_that_cannot_be_computed_is_told_in_our_words(two: Client) -> None:
    """At once where shapes tell; the error of a task that reads is the reader's own."""
    src = da.zeros((6, 9, 9, 4), chunks=(2, 9, 9, 4), dtype=np.float32)
    with pytest.raises(convgrad.InvalidShapeError, match=r"^ConvolutionBackwardWeights: .*\[[A-Z]\d+\]$"):
        made("weights", [src, src[:5]])

    def unreadable(block: Any) -> Any:
        raise OSError("the disk is gone")

    broken = src.map_blocks(unreadable, dtype=src.dtype, meta=np.empty((0,) * 4, np.float32))
    job = JOBS["weights"]
    lazily = convgrad.dask.run(job.operator, broken, src, **job.attributes | {"weights_shape": [3, 3, 4, 4]})
    with pytest.raises(OSError, match="the disk is gone"):
        two.compute(lazily).result(timeout=WAIT_S)


def test_a_worker_is_killed_in_the_middle(two: Client, tmp_path: Path) -> None:
    paths, plain = files("weights", tmp_path)
    journal = tmp_path / "journal"
    arrays = lazy(JOBS["weights"], paths, journal, 7, delay_s=0.01)
    with killing(two, journal, 8) as kill:
        assert computed(two, "weights", arrays) == plain
    assert kill.pid
    two.wait_for_workers(2, timeout=WAIT_S)
    assert kill.pid not in pids(two).values()
    assert len(readers(journal)) > 2 * -(-67 // 7), "what the killed worker had made is made again"


@pytest.mark.long
@pytest.mark.parametrize("workers", [2, 4])
def test_fifty_jobs_with_a_worker_killed_in_each(workers: int, tmp_path: Path) -> None:
    table = tmp_path / "killed.csv"
    assert dask_killed.main(["--workers", str(workers), "-o", str(table)]) == 0
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 50
    assert all(int(row["killed_after"]) for row in rows)
    assert all(row["hash"] == row["plain"] for row in rows)
    assert {row["job"] for row in rows} == set(JOBS)


@pytest.mark.long
def test_chunks_and_workers_have_one_hash(tmp_path: Path) -> None:
    table = tmp_path / "workers.csv"
    assert dask_workers.main(["--rounds", "1", "-o", str(table)]) == 0
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    for name in JOBS:
        mine = [row for row in rows if row["job"] == name]
        assert len({row["hashes"] for row in mine}) == 1
        assert {row["workers"] for row in mine} == set("1234")


@pytest.mark.long
@pytest.mark.parametrize("name", JOBS)
def test_pieces_end_in_any_order(two: Client, tmp_path: Path, name: str) -> None:
    """Reading takes a random time, so that what is added comes in another order each time."""
    paths, plain = files(name, tmp_path)
    orders = set()
    for n in range(5):
        journal = tmp_path / f"journal_{n}"
        arrays = lazy(JOBS[name], paths, journal, *CUTS.get(name, (3, 0)), delay_s=0.01, random=True)
        assert computed(two, name, arrays) == plain
        orders.add(tuple(readers(journal)))
    assert len(orders) > 1


@pytest.mark.long
def test_workers_come_and_go_in_the_middle(tmp_path: Path) -> None:
    paths, plain = files("weights", tmp_path)
    with cluster([{}]) as client:
        for number in (3, 1, 2):
            journal = tmp_path / f"journal_{number}"
            arrays = lazy(JOBS["weights"], paths, journal, 1, delay_s=0.02)
            future = client.compute(made("weights", arrays))
            wait_for(lambda journal=journal: len(readers(journal)) > 20)
            client.cluster.scale(number)
            assert hash_of(future.result(timeout=WAIT_S)) == plain
            client.wait_for_workers(number, timeout=WAIT_S)
            wait_for(lambda number=number: len(pids(client)) == number)


@pytest.mark.long
def test_interrupted_and_asked_again(two: Client, tmp_path: Path) -> None:
    """Ctrl-C ends the wait; what was asked for is dropped, and the cluster serves on."""
    paths, plain = files("weights", tmp_path)
    lazily = made("weights", lazy(JOBS["weights"], paths, tmp_path / "journal", 1, delay_s=0.05))
    thread = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        lazily.compute()
    thread.join()
    assert len(readers(tmp_path / "journal")) < 2 * 67
    assert computed(two, "weights", lazy(JOBS["weights"], paths, tmp_path / "again", 16)) == plain


@pytest.mark.long
def test_functions_are_submitted_and_parts_are_spilled_and_come_back() -> None:
    """A cluster without dask arrays: one worker holds 16 parts, 31 MiB, and may keep 10 MiB in memory."""
    rng = np.random.default_rng(5)
    src, diff_dst = (rng.standard_normal((32, 17, 17, 512), np.float32) for _ in range(2))
    layer = {"weights_shape": (1, 1, 512, 512), "strides": 1, "dilations": 1}
    plain = convgrad.convolution_backward_weights(src, diff_dst, layer["weights_shape"])
    with dask.config.set({"distributed.worker.memory.target": 0.01}), cluster([{}], memory_limit="1GiB") as client:
        parts = [
            client.submit(convgrad.partials, WEIGHTS, src[n : n + 2], diff_dst[n : n + 2], first=n, threads=1, **layer)
            for n in range(0, 32, 2)
        ]
        wait(parts, timeout=WAIT_S)
        (spilled,) = client.run(lambda dask_worker: dict(dask_worker.data.spilled_total._asdict())).values()
        assert spilled["memory"] >= 15 * 2**20
        assert hash_of(client.submit(convgrad.join, parts).result(timeout=WAIT_S)) == hash_of(plain)


@pytest.mark.long
def test_from_zarr_to_zarr(two: Client, tmp_path: Path) -> None:
    """Workers read the chunks, and write those of the result."""
    zarr = pytest.importorskip("zarr")
    paths, plain = files("data", tmp_path)
    diff_dst, weights = map(np.load, paths)
    store = zarr.create_array(tmp_path / "diff_dst.zarr", shape=diff_dst.shape, dtype="f4", chunks=(9, 5, 17, 6))
    store[:] = diff_dst
    lazily = made("data", [da.from_zarr(tmp_path / "diff_dst.zarr"), weights])
    written = lazily.rechunk((10, 8, -1, -1)).to_zarr(tmp_path / "diff_src.zarr", compute=False)
    two.compute(written).result(timeout=WAIT_S)
    assert hash_of(zarr.open_array(tmp_path / "diff_src.zarr")[:]) == plain


def wait_for(what: Any) -> None:
    """Wait until something holds."""
    end = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)
