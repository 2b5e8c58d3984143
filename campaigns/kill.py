"""Processes that compute in pieces and are killed, or interrupted, at any moment: others go on, to the same bits.

``python -m campaigns kill --kills 200 --interrupts 100`` kills (SIGKILL) and interrupts (SIGINT) so often, and
says how many pieces were done again. What is lost or differs is printed; the exit code is then 1.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

import convgrad
from campaigns.command import parser_of
from convgrad import scale
from convgrad.scale import checkpoint
from tests.scale.sources import Slices

Array = np.ndarray
F32 = np.float32
SAME = {"auto_pad": "same_upper"}
ENDS_S = 2.0
KNOWN = {"kept", "told", "result", "out", "out.npy"}
LATE = 2  # exit code of a child that was interrupted outside its call
WEIGHTS, FORWARD, DATA = "ConvolutionBackwardWeights", "Convolution", "ConvolutionBackwardData"


@dataclass(frozen=True)
class Job:
    """A call, the shapes of its operands, what it may take; of what kind its operands and its ``out`` are."""

    operator: str
    shapes: tuple[tuple[int, ...], ...]
    attributes: dict[str, Any]
    memory: int
    out: str = ""  # "map" or "zarr", where there is one
    operands: str = "map"


JOBS = {
    "weights by images": Job(
        WEIGHTS, ((90, 20, 17, 3), (90, 20, 17, 5)), {"weights_shape": (3, 3, 3, 5)} | SAME, 80_000
    ),
    "weights by rows": Job(WEIGHTS, ((5, 9000, 3), (5, 9000, 5)), {"weights_shape": (5, 3, 5)} | SAME, 80_000),
    "bias": Job("BiasAddBackward", ((9000, 9, 3),), {}, 40_000),
    "forward into a map": Job(FORWARD, ((90, 20, 17, 3), (3, 3, 3, 5)), SAME, 40_000, "map"),
    "forward by rows into a map": Job(FORWARD, ((3, 900, 11, 3), (3, 3, 3, 5)), SAME, 30_000, "map"),
    "data into a zarr": Job(
        DATA, ((60, 10, 12, 4), (3, 3, 3, 4)), {"strides": 2, "dst_shape": (60, 21, 25, 3)}, 160_000, "zarr", "zarr"
    ),
}  # fmt: skip


@dataclass
class Tally:
    """What was left and gone on with."""

    left: int = 0
    ended: int = 0
    again: int = 0  # pieces
    pieces: int = 0  # of all calls that ended
    begun_anew: int = 0
    orphans: int = 0  # files that a process that was killed was writing
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"left {self.left} times, {self.begun_anew} of them before anything was kept; {self.ended} ended, of "
            f"{self.pieces} pieces, {self.again} done again; {self.orphans} unfinished files; {len(self.wrong)} wrong"
        )


class Runner:
    """A job in a folder of its own, run by one child after another."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.job, self.folder = name, JOBS[name], folder
        rng = np.random.default_rng(len(name))
        self.arrays = [rng.standard_normal(shape).astype(F32) for shape in self.job.shapes]
        self.whole = convgrad.run(self.job.operator, *self.arrays, threads=1, **self._strict())
        out = np.empty_like(self.whole) if self.job.out else None  # a child has the kernels that this compiles
        options = {"memory": self.job.memory, "out": out, "threads": 1} | self.job.attributes
        scale.run(self.job.operator, *map(Slices, self.arrays), **options)
        for at, array in enumerate(self.arrays):
            self._new(f"operand{at}", self.job.operands, array)
        self.kept, self.told, self.result = folder / "kept", folder / "told", folder / "result"

    def _strict(self) -> dict[str, Any]:
        axes = len(self.job.shapes[0]) - 2
        ties = {} if self.job.operator.startswith("Bias") else {"strides": [1] * axes, "dilations": [1] * axes}
        given = ties | self.job.attributes
        return {key: [value] * axes if key == "strides" and value == 2 else value for key, value in given.items()}

    def _new(self, name: str, kind: str, array: Array) -> None:
        if kind == "map":
            np.save(self.folder / f"{name}.npy", array)
        else:
            import zarr  # noqa: PLC0415 - a guest of some jobs

            chunks = (7, *array.shape[1:]) if len(array) > 7 else array.shape
            shutil.rmtree(self.folder / name, ignore_errors=True)
            zarr.create_array(store=self.folder / name, shape=array.shape, chunks=chunks, dtype="float32")[:] = array

    def _opened(self, name: str, kind: str, mode: str = "r") -> Any:
        if kind == "map":
            return np.load(self.folder / f"{name}.npy", mmap_mode=mode)
        import zarr  # noqa: PLC0415

        return zarr.open_array(self.folder / name, mode=mode)

    def begin(self) -> None:
        """Begin anew, with an ``out`` of nothing."""
        if self.job.out:
            self._new("out", self.job.out, np.full_like(self.whole, np.nan))

    def call(self, **options: Any) -> Any:
        """Return the result that is computed, or gone on with, in this process."""
        operands = [self._opened(f"operand{at}", self.job.operands) for at in range(len(self.arrays))]
        out = self._opened("out", self.job.out, "r+") if self.job.out else None
        call = {"memory": self.job.memory, "out": out, "checkpoint": self.kept} | options | self.job.attributes
        return scale.run(self.job.operator, *operands, **call)

    def child(self, every_s: float, threads: int, ready: int) -> None:
        """Run the call; leave what was told and what came of it in files."""
        checkpoint.EVERY_S = every_s
        told = os.open(self.told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        seen: dict[str, Any] = {}
        try:
            os.write(ready, b".")
            got = self.call(
                threads=threads,
                progress=lambda now: os.write(told, b"%d %d %d\n" % (now.done, now.resumed, now.pieces)),
            )
            seen["hash"] = sha256(np.asarray(got[...]).tobytes()).hexdigest()
        except KeyboardInterrupt as error:
            seen["notes"] = getattr(error, "__notes__", [])
        for one in [one for one in threading.enumerate() if one.name == "convgrad-reader"]:
            end = (
                time.monotonic() + ENDS_S
            )  # one that was not yet there when its caller was interrupted ends as it comes
            while one.ident is not None and one.is_alive() and time.monotonic() < end:
                time.sleep(0.01)
            seen["reader"] = one.ident is not None and one.is_alive()
        self.result.write_text(json.dumps(seen))

    def run(self, how: signal.Signals, delay_s: float | None, every_s: float, threads: int) -> int:
        """Run a child, and end it after so long, if it is not told to end by itself; return its status."""
        self.result.unlink(missing_ok=True)
        self.told.unlink(missing_ok=True)
        listens, ready = os.pipe()
        child = os.fork()
        if not child:
            code = 1
            try:
                self.child(every_s, threads, ready)
                code = 0
            except KeyboardInterrupt:
                code = LATE
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(ready)
        os.read(listens, 1)
        os.close(listens)
        if delay_s is not None:
            time.sleep(delay_s)
            with suppress(ProcessLookupError):
                os.kill(child, how)
        return os.waitpid(child, 0)[1]

    def lines(self) -> list[list[int]]:
        """Return pieces done, done before, and of how many, as often as they were told."""
        text = self.told.read_text() if self.told.exists() else ""
        return [[int(word) for word in line.split()] for line in text.splitlines() if line]


class Campaign:
    """A job whose calls are left, each held against the plain call."""

    def __init__(self, runner: Runner, how: signal.Signals, tally: Tally) -> None:
        self.runner, self.how, self.tally = runner, how, tally
        self.expected = sha256(runner.whole.tobytes()).hexdigest()
        self.reached = self.kept = 0  # pieces that were done; of them those that were told of as kept

    def wrong(self, words: str) -> None:
        self.tally.wrong.append(f"{self.runner.name}: {words}")
        print(f"wrong: {self.tally.wrong[-1]}", flush=True)

    def anew(self) -> None:
        self.reached = self.kept = 0
        self.runner.begin()

    def run(self, times: int, rng: np.random.Generator) -> None:
        """Leave calls so many times, then let one end."""
        self.anew()
        begin = time.perf_counter()
        self.step(None, 0.0, 1)
        full_s, goal = time.perf_counter() - begin, self.tally.left + times
        while self.tally.left < goal:
            every_s = float(rng.choice([0.0, 0.0, full_s / 10]))
            self.step(float(rng.uniform(0, full_s)), every_s, int(rng.integers(1, 3)))
        self.step(None, 0.0, 1)

    def step(self, delay_s: float | None, every_s: float, threads: int) -> None:
        """Run a child, and see what it left."""
        runner = self.runner
        status = runner.run(self.how, delay_s, every_s, threads)
        seen = json.loads(runner.result.read_text()) if runner.result.exists() and not status else {}
        lines = runner.lines()
        if lines:
            found = lines[0][1]
            self.tally.again += max(0, self.reached - found)
            if found < self.kept:
                self.wrong(f"{self.kept} pieces were kept, {found} found")
            self.reached = lines[-1][0]
            if every_s == 0 or self.how == signal.SIGINT:
                self.kept = self.reached
        if "hash" in seen:
            self.ended(seen["hash"], lines[-1][2])
        else:
            self.left(status, bool(lines) and lines[-1][0] == lines[-1][2])
        if seen.get("reader"):
            self.wrong("a reader is left")
        self.look_for_files()

    def ended(self, found: str, pieces: int) -> None:
        self.tally.ended, self.tally.pieces = self.tally.ended + 1, self.tally.pieces + pieces
        if found != self.expected:
            self.wrong("other bits than the plain call")
        if self.runner.kept.exists():
            self.wrong("a checkpoint is left of a call that ended")
        self.anew()

    def left(self, status: int, had_all: bool) -> None:
        self.tally.left += 1
        if status not in {signal.SIGKILL: [signal.SIGKILL], signal.SIGINT: [0, LATE << 8]}[self.how]:
            self.wrong(f"status {status}")
        self.tally.begun_anew += not self.runner.kept.exists()
        if had_all and not self.runner.kept.exists():  # it had ended but for its return
            self.anew()

    def look_for_files(self) -> None:
        for path in self.runner.folder.iterdir():
            if path.name not in KNOWN and not path.name.startswith("operand"):
                self.tally.orphans += 1
                path.unlink()
                if self.how == signal.SIGINT:
                    self.wrong(f"{path.name} is left")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("kill", "Leave processes that compute in pieces at any moment.", kills=200, interrupts=0, seed=0)
    parser.add_argument("--jobs", nargs="*", default=list(JOBS))
    options = parser.parse_args(arguments)
    failed = False
    for how, times in ((signal.SIGKILL, options.kills), (signal.SIGINT, options.interrupts)):
        tally, begin = Tally(), time.monotonic()
        for at, name in enumerate(options.jobs if times else ()):
            with tempfile.TemporaryDirectory() as folder:
                rng = np.random.default_rng([options.seed, at, how])
                each = times * (at + 1) // len(options.jobs) - times * at // len(options.jobs)
                Campaign(Runner(name, Path(folder)), how, tally).run(each, rng)
        if times:
            print(f"{how.name}, seed {options.seed}, {time.monotonic() - begin:.0f} s: {tally}", flush=True)
            failed |= bool(tally.wrong)
    return 1 if failed else 0
