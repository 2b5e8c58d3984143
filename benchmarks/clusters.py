"""Dask clusters of processes on this machine: who computes with what, what moves between them, how one is killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import numpy as np
from distributed import Client, Nanny, Scheduler, SpecCluster, WorkerPlugin
from numpy.typing import NDArray

from convgrad import engines

Array = NDArray[Any]
QUIET = 50  # the level of logging's CRITICAL: a worker that is killed is not news here
WAIT_S = 60.0
LINE = "{:>10}\n"  # of the journal: each line is written at once, and all are of one length


@contextmanager
def cluster(environments: Sequence[Mapping[str, str]], **options: Any) -> Iterator[Client]:
    """Start a worker of one thread for each environment, and a client; a nanny replaces a worker that is killed."""
    quiet = {"dashboard": False, "host": "127.0.0.1"}
    one = quiet | {"nthreads": 1, "silence_logs": QUIET} | options
    workers = {at: {"cls": Nanny, "options": one | {"env": dict(env)}} for at, env in enumerate(environments)}
    scheduler = {"cls": Scheduler, "options": quiet | {"port": 0, "dashboard_address": "127.0.0.1:0"}}
    with (
        # A worker that is killed twice within this time would be given up, if its third start were not done by then
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 day"}),
        SpecCluster(workers, scheduler, {"cls": Nanny, "options": one}, silence_logs=QUIET) as made,
        Client(made, timeout=WAIT_S) as client,
    ):
        client.wait_for_workers(len(environments), timeout=WAIT_S)
        client.register_plugin(Counted())
        yield client


class Counted(WorkerPlugin):
    """Counts a worker's calls of engines by the instruction set that each has used, also of one that starts later."""

    name = "counted"

    def setup(self, worker: Any) -> None:
        """Count from now on."""
        execute, self.calls = engines.execute, Counter[str]()

        def counted(*arguments: Any) -> engines.Choice:
            choice = execute(*arguments)
            self.calls[choice.detail] += 1
            return choice

        engines.execute = counted


def calls(client: Client) -> dict[str, Counter[str]]:
    """Return the calls of engines since the last time, by the worker's address and the instruction set."""
    found: dict[str, Counter[str]] = client.run(_calls)
    return found


def _calls(dask_worker: Any) -> Counter[str]:
    counted = dask_worker.plugins["counted"]
    calls, counted.calls = counted.calls, Counter()
    return calls


def pids(client: Client) -> dict[str, int]:
    """Return the processes of the workers, by address."""
    found: dict[str, int] = client.run(os.getpid)
    return found


class Slow:
    """An array in a file that slices, slowly, and keeps a journal: a line is the process that has read a region.

    It waits ``delay_s``, or a random share of twice that.
    """

    def __init__(self, path: Path, journal: Path, delay_s: float = 0.0, random: bool = False) -> None:
        self.path, self.journal, self.delay_s, self.random = path, journal, delay_s, random
        array = np.load(path, mmap_mode="r")
        self.shape, self.dtype, self.ndim = array.shape, array.dtype, array.ndim

    def __getitem__(self, region: Any) -> Array:
        share = 2 * np.random.default_rng().random() if self.random else 1.0
        time.sleep(self.delay_s * share)
        array = np.array(np.load(self.path, mmap_mode="r")[region])
        with self.journal.open("a", encoding="ascii") as file:
            file.write(LINE.format(os.getpid()))
        return array


def readers(journal: Path) -> list[int]:
    """Return the processes that have read a region, each in its turn."""
    return [int(line) for line in journal.read_text(encoding="ascii").split()] if journal.exists() else []


@dataclass
class Kill:
    """Which process was killed, and after how many regions had been read; none as long as none was."""

    pid: int = 0
    after: int = 0


@contextmanager
def killing(client: Client, journal: Path, after: int) -> Iterator[Kill]:
    """Kill, by SIGKILL, the worker that reads the region of this number, as soon as it has: what it made is lost."""
    kill, over, workers = Kill(), threading.Event(), set(pids(client).values())

    def watch() -> None:
        while not over.wait(0.001):
            if len(found := readers(journal)) >= after and found[-1] in workers:
                kill.pid, kill.after = found[-1], len(found)
                os.kill(kill.pid, signal.SIGKILL)
                return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield kill
    finally:
        over.set()
        thread.join()


@dataclass(frozen=True)
class Moved:
    """What workers have sent each other: how many arrays or values, in how many messages, of how many bytes."""

    messages: int
    values: int
    by_kind: Mapping[str, tuple[int, int]]  # of a task's name: values, bytes

    @property
    def nbytes(self) -> int:
        """The bytes of all."""
        return sum(nbytes for _, nbytes in self.by_kind.values())


def forget_moved(client: Client) -> None:
    """Forget what was moved until now."""
    client.run(_forget)


def moved(client: Client) -> Moved:
    """Return what workers have received of one another since it was forgotten, by their own logs."""
    logs = [entry for log in client.run(_received).values() for entry in log]
    kinds: dict[str, tuple[int, int]] = {}
    for keys in logs:
        for kind, nbytes in keys:
            values, total = kinds.get(kind, (0, 0))
            kinds[kind] = values + 1, total + nbytes
    return Moved(len(logs), sum(map(len, logs)), kinds)


def _forget(dask_worker: Any) -> None:
    dask_worker.transfer_incoming_log.clear()


def _received(dask_worker: Any) -> list[list[tuple[str, int]]]:
    return [
        [(dask.utils.key_split(key), nbytes) for key, nbytes in entry["keys"].items()]
        for entry in dask_worker.transfer_incoming_log
    ]
