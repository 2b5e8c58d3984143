"""Random calls in pieces whose process is watched, and calls whose memory ends in mid-work; run as a program.

``python -m campaigns memory --calls 60 --starved 60 --seed 7`` says by how much the process's own pages were more
than ``memory``, and what calls raised that could not have it and were gone on with. What is wrong is printed; the exit
code is then 1.
"""

from __future__ import annotations

import gc
import os
import re
import resource
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import convgrad
from campaigns.command import parser_of
from campaigns.resume import LAYERS
from convgrad import scale
from convgrad.formats import FORMATS
from tests.support.classes import CONVOLUTIONS, any_case, draw
from tests.support.helpers import Case, operands_of
from tests.support.places import BENCHMARKS

sys.path.insert(0, str(BENCHMARKS))
from watched import held

Array = np.ndarray
F32 = np.float32
MIB = 1 << 20
PLAIN = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}
CONSTANT_BYTES = 4 * MIB  # beside the arrays: plans of pieces of many shapes, which are remembered, a stack, pages cut
EVERY_S = 0.0005
ROOMS = (0, 10_000, 100_000, 600_000, 1_200_000, 2_000_000, 3_000_000, 6_000_000)  # bytes that are left
MULTIPLY_ADDS, ELEMENTS, BATCHES = 200_000_000, 3_000_000, (3, 40, 200)


class Sliced:
    """What only slices, so that each piece is an array of its own."""

    def __init__(self, array: Array) -> None:
        self.shape, self.dtype, self._array = array.shape, array.dtype, array

    def __getitem__(self, region: Any) -> Array:
        return self._array[region].copy()


@dataclass
class Tally:
    """What processes took beyond what they were told, and what those raised that had too little."""

    calls: int = 0
    pieces: int = 0
    beyond_memory: int = 0
    beyond_plan: int = 0
    starved: int = 0
    raised: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        raised = "".join(f"\n  {number} {words}" for words, number in self.raised.most_common())
        return (
            f"{self.calls} calls, {self.pieces} pieces: at most {self.beyond_memory} bytes above memory, "
            f"{self.beyond_plan} above the plan; {self.starved} starved; {len(self.wrong)} wrong{raised}"
        )


@contextmanager
def highest() -> Iterator[list[int]]:
    """Give the most pages of its own that the process has meanwhile, beyond those that it has now, in bytes."""
    gc.collect()
    before, peak, ended = held()["RssAnon"], [0], threading.Event()

    def watch() -> None:
        while not ended.wait(EVERY_S):
            peak[0] = max(peak[0], held()["RssAnon"] - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        ended.set()
        watcher.join()


def watch_call(case: Case, rng: np.random.Generator, folder: Path, tally: Tally) -> None:
    """Run a call in the least memory, or in more, twice: what is compiled is there the second time."""
    operands = operands_of(case, "normal", int(rng.integers(1 << 30)))
    given: list[Any] = []
    for at, (one, port) in enumerate(zip(operands, case.op.operands, strict=False)):
        if port.is_shape:
            given.append(one)
        elif rng.random() < 0.5:
            given.append(Sliced(mapped(one, folder / str(at))))
        else:
            given.append(mapped(one, folder / str(at)))
    call = {"dtype": case.dtype, "threads": int(rng.integers(1, 3))} | dict(case.attributes)
    del operands
    try:
        scale.plan(case.op.name, *given, memory=1, **call)
        return
    except convgrad.InvalidAttributeError as error:
        least = int(re.findall(r"takes (\d+) bytes", str(error))[0])
    memory = int(least * rng.choice([1, 1, 1.5, 3]))
    plan = scale.plan(case.op.name, *given, memory=memory, **call)
    for _ in range(2):
        with highest() as peak:
            scale.run(case.op.name, *given, memory=memory, **call)
    tally.calls, tally.pieces = tally.calls + 1, tally.pieces + plan.pieces
    tally.beyond_memory = max(tally.beyond_memory, peak[0] - memory)
    tally.beyond_plan = max(tally.beyond_plan, peak[0] - plan.peak_bytes)
    if peak[0] > memory + CONSTANT_BYTES:
        kinds = [type(one).__name__ for one in given]
        tally.wrong.append(f"{case} of {kinds}: {peak[0]} of {memory} bytes, planned {plan}")


def mapped(array: Array, place: Path) -> Array:
    made: Array = np.memmap(place, array.dtype, "w+", shape=array.shape)
    made[...] = array
    made.flush()
    return np.memmap(place, array.dtype, "r", shape=array.shape)


def watch_calls(seed: int, calls: int, tally: Tally) -> None:
    rng = np.random.default_rng([19, seed])
    drawn = [draw(replace(row, batch=BATCHES), rng, MULTIPLY_ADDS, most_elements=ELEMENTS) for row in LAYERS.values()]
    with tempfile.TemporaryDirectory() as folder:
        for number in range(calls):
            conv = next(drawn[number % len(drawn)])
            operand = str(rng.choice(["f32", "bf16", "f16"]))
            case = any_case(conv, rng, FORMATS[operand], FORMATS[str(rng.choice([operand, "f32"]))], CONVOLUTIONS)
            watch_call(case, rng, Path(folder), tally)


SAME = {"auto_pad": "same_upper"}
IMAGES = (200, 28, 28, 16)
STARVED: dict[str, tuple[str, list[tuple[int, ...]], dict[str, Any], bool]] = {
    "weights": ("ConvolutionBackwardWeights", [IMAGES, IMAGES], SAME | {"weights_shape": (3, 3, 16, 16)}, False),
    "large weights": (
        "ConvolutionBackwardWeights",
        [(200, 7, 7, 128), (200, 7, 7, 128)],
        SAME | {"weights_shape": (3, 3, 128, 128)},
        False,
    ),
    "forward": ("Convolution", [IMAGES, (3, 3, 16, 16)], SAME, True),
}


def starve(name: str, rng: np.random.Generator, folder: Path, tally: Tally) -> None:
    """Take a process's memory away after some pieces, and go on with more."""
    operator, shapes, attributes, writes = STARVED[name]
    arrays = [mapped(rng.standard_normal(shape).astype(F32), folder / f"{name}{at}") for at, shape in enumerate(shapes)]
    whole = convgrad.scale.run(operator, *arrays, threads=1, **attributes)
    sliced = bool(rng.random() < 0.5)
    out = np.memmap(folder / "out", F32, "w+", shape=whole.shape) if writes else None
    call = {
        "memory": "12MB",
        "out": out,
        "checkpoint": folder / "kept",
        "threads": int(rng.integers(1, 3)),
    } | attributes
    given = [Sliced(one) for one in arrays] if sliced else arrays
    pieces = scale.plan(operator, *given, **{key: call[key] for key in call if key != "checkpoint"}).pieces
    scale.run(operator, *given, **call)  # LLVM ends a process in which it has no room to compile
    after, room = int(rng.integers(0, pieces)), int(rng.choice(ROOMS))
    told: list[scale.Progress] = []
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)

    def tell(now: scale.Progress) -> None:
        told.append(now)
        if now.done == after:
            resource.setrlimit(resource.RLIMIT_DATA, (held()["VmData"] + room, hard))

    if not after:
        resource.setrlimit(resource.RLIMIT_DATA, (held()["VmData"] + room, hard))
    notes: list[str] = []
    try:
        got = scale.run(operator, *given, progress=tell, **call)
    except BaseException as error:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
        words = re.sub(r"[0-9][0-9.,x() ]*", "N ", f"{type(error).__name__}: {error}")
        tally.raised[words] += 1
        notes = getattr(error, "__notes__", [])
        if not isinstance(error, MemoryError):
            tally.wrong.append(f"{name} after {after} with {room}: {type(error).__name__}: {error}")
        if told and not (folder / "kept").exists():
            tally.wrong.append(f"{name} after {after} with {room}: nothing was kept: {notes}")
        again: list[scale.Progress] = []
        got = scale.run(operator, *given, progress=again.append, **call)
        if told and again[0].resumed != told[-1].done:
            tally.wrong.append(
                f"{name} after {after}: {told[-1].done} were done, {again[0].resumed} were kept: {notes}"
            )
    else:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
        tally.raised["nothing"] += 1
    tally.starved += 1
    if np.asarray(got).tobytes() != whole.tobytes():
        tally.wrong.append(f"{name} after {after} with {room}: other bits")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(
        "memory", "Watch what calls in pieces take, and take it away from them.", calls=60, starved=60, seed=0
    )
    options = parser.parse_args(arguments)
    if os.environ.get("MALLOC_ARENA_MAX") != PLAIN["MALLOC_ARENA_MAX"]:  # the allocator is to keep nothing back
        os.execve(sys.executable, sys.orig_argv, os.environ | PLAIN)
    tally, started = Tally(), time.monotonic()
    watch_calls(options.seed, options.calls, tally)
    rng = np.random.default_rng([20, options.seed])
    for number in range(options.starved):
        with tempfile.TemporaryDirectory() as folder:
            starve(list(STARVED)[number % len(STARVED)], rng, Path(folder), tally)
    for words in tally.wrong:
        print(f"wrong: {words}", flush=True)
    print(f"seed {options.seed}, {time.monotonic() - started:.0f} s: {tally}")
    return 1 if tally.wrong else 0
