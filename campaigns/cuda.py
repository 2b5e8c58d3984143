"""Random problems on a GPU and on the CPU: no bit of a result may differ.

``python -m campaigns cuda --problems 2000 --seed 7`` computes so many of all passes, on operands in any memory layout,
some of them with infinities and NaN. Every fourth problem is large, for kernels with tiles and trees of several levels.
The problems of a chunk share types, so that few kernels are compiled; chunks are computed in several processes. A wrong
problem is printed with the arguments that run it alone; the exit code is then 1. ``--hashes`` compares the hashes of
``tests/golden/hashes.txt`` instead. With ``--emulated``, the GPU's kernels run on the CPU.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np

from campaigns.classes import BIASED, MULTIPLY_ADDS, small
from campaigns.command import parser_of
from convgrad import engines
from convgrad.engines.addresses import address_of
from convgrad.engines.cuda import driver
from convgrad.engines.cuda.engine import DeviceCall
from convgrad.engines.cuda.kernels import ptx
from convgrad.formats import FORMATS
from convgrad.functional.call import prepare
from convgrad.plan.cuda.plan import DevicePlan, in_order, plan, refusal
from convgrad.plan.cuda.vectors import are_aligned
from convgrad.spec.activation import RELU, activates
from convgrad.spec.problem import Problem
from convgrad.starting import run_on_large_stack
from tests.hashes import FILE, hashes_in
from tests.support import emulated
from tests.support.classes import (
    BIAS,
    CLASSES,
    CONVOLUTIONS,
    ELEMENTS,
    QUICK_ELEMENTS,
    TYPES,
    Class,
    any_case,
    draw,
    layer_case,
)
from tests.support.engine_helpers import Array
from tests.support.hash_problems import operands_and_out, problems
from tests.support.helpers import Case, operands_of
from tests.support.roles import WRITABLE, memory

CHUNK, HASHES = 125, 30  # problems that a process computes
LARGE = {
    "tiles": Class((1, 1, 2, 3), (3, 16, 33, 64), (16, 33, 64, 130), strides=(1, 1, 2, 3), dilations=(1, 2)),
    "many terms": Class((1, 1, 2), (64, 130, 520), (16, 33, 130), (1, 2), (1, 2, 17), kernel=(1, 3, 5), strides=(1, 2)),
    "many positions": Class(
        (1, 1, 2, 3), (1, 3, 16, 20), (1, 16, 40), (1, 2), (1, 2, 3), (300, 5000, 70_000), (1, 2, 3), strides=(1, 1, 2)
    ),
}  # fmt: skip
EACH_LARGE, EACH_BIAS = 4, 25  # every so many problems
LARGE_MULTIPLY_ADDS = 30_000_000
LAYOUTS = {name: make for name, make in WRITABLE.items() if name != "record_field"}
SPECIAL = (np.inf, -np.inf, np.nan)
MAX_WRONG = 3  # of a chunk, which then ends
MAX_TEXT = 900  # characters of a wrong problem


@dataclass
class Tally:
    """The number of problems, what was counted of them, seconds by activity, and the wrong problems."""

    problems: int = 0
    found: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        found = ", ".join(f"{name} {number}" for name, number in sorted(self.found.items()))
        refused = "".join(f"\nnot computed: {number} problems: {why}" for why, number in self.refused.items())
        seconds = ", ".join(f"{name} {number:.1f}" for name, number in self.seconds.items())
        figures = f"{self.problems} problems, {len(self.wrong)} problems wrong"
        return f"{figures}; {found}{refused}\nseconds of all processes: {seconds}"

    @contextmanager
    def timed(self, activity: str) -> Iterator[None]:
        """Add the time of a ``with`` block to an activity."""
        started = time.monotonic()
        yield
        self._spend(activity, time.monotonic() - started)

    def _spend(self, activity: str, seconds: float) -> None:
        self.seconds[activity] = self.seconds.get(activity, 0.0) + seconds

    def add(self, other: Tally) -> None:
        """Add the counts of another tally."""
        self.problems += other.problems
        self.wrong += other.wrong
        self.found.update(other.found)
        self.refused.update(other.refused)
        for activity, seconds in other.seconds.items():
            self._spend(activity, seconds)


class Drawn(NamedTuple):
    """A problem with canonical operands and old results, which are NaN if the problem does not read them."""

    case: Case
    problem: Problem
    operands: tuple[Array, ...]
    old: Array
    text: str


class Computes(Protocol):
    """A way to compute a problem into a canonical output."""

    def __call__(self, problem: Problem, operands: Sequence[Array], out: Array, tally: Tally) -> DevicePlan:
        """Compute the problem and return its plan."""


def types_of(operands: Sequence[str]) -> list[tuple[str, str]]:
    """Return pairs of types of operands and results."""
    return list(dict.fromkeys((operand, output) for operand in operands for output in ("f32", operand)))


def _case(number: int, rng: np.random.Generator, operand: str, output: str) -> Case:
    if number % EACH_BIAS == 1:
        return layer_case(BIAS, rng, operand, output)
    if number % EACH_LARGE == 0:
        large = LARGE[str(rng.choice(list(LARGE)))]
        conv = next(draw(large, rng, LARGE_MULTIPLY_ADDS, most_elements=8 * ELEMENTS))
    else:
        rows = [*CLASSES.values(), *BIASED.values()]
        conv = next(small(draw(rows[rng.integers(len(rows))], rng, MULTIPLY_ADDS, most_elements=QUICK_ELEMENTS)))
    return any_case(conv, rng, FORMATS[operand], FORMATS[output], CONVOLUTIONS)


def drawn(seed: int, number: int, operand: str, output: str) -> Drawn:
    """Return a problem, which depends on nothing but the arguments."""
    rng = np.random.default_rng([133, seed, number])
    case = _case(number, rng, operand, output)
    operands, how = list(operands_of(case, "normal", int(rng.integers(1 << 30)))), []
    special = rng.random() < 0.3
    for at, array in enumerate(operands):
        assert isinstance(array, np.ndarray)
        if array.dtype == np.int32:
            continue
        if special and array.size and rng.random() < 0.7:
            values = array.reshape(-1)
            values[rng.integers(values.size, size=rng.integers(1, 4))] = rng.choice(SPECIAL)
        operands[at], layout = _stored(array, rng)
        how.append(layout)
    prepared = prepare(case.op.name, tuple(operands), case.attributes, case.dtype, bool(rng.random() < 0.4))
    if activates(case.op.name) and rng.random() < 0.4:
        prepared = prepared.activated(RELU)
    problem = prepared.problem
    old = np.full(problem.output_shape, np.nan, problem.output_format.dtype)
    if problem.accumulate:
        old = rng.standard_normal(problem.output_shape).astype(old.dtype)
    old, layout = _stored(old, rng)
    options = f"accumulate {problem.accumulate} activation {problem.activation or None} special {special}"
    text = f"{case} to {problem.output_format} {options} layouts {how} {layout}"
    return Drawn(case, problem, prepared.operands, prepared.canonical_output(old), text)


def _stored(array: Array, rng: np.random.Generator) -> tuple[Array, str]:
    """Return an array in a memory layout that callers may use, and the layout's name."""
    layout = "contiguous" if rng.random() < 0.6 else str(rng.choice(list(LAYOUTS)))
    return (LAYOUTS[layout](array) if layout in LAYOUTS else array), layout


def copied(array: Array) -> Array:
    """Return a copy in the same layout, with the memory between the elements."""
    room = _bytes(array).copy()
    offset = address_of(array) - address_of(memory(array))
    return np.ndarray(array.shape, array.dtype, room, offset, array.strides)


def _bytes(array: Array) -> Array:
    """Return the bytes of the memory that contains an array."""
    flat: Array = memory(array).reshape(-1, order="A").view(np.uint8)
    return flat


def on_cpu(problem: Problem, operands: Sequence[Array], out: Array, tally: Tally) -> DevicePlan:
    """Compute a problem with the GPU's kernels on the CPU."""
    arrays = (*operands, out)
    with tally.timed("plans"):
        strides = tuple(array.strides for array in arrays)
        made = plan(problem, strides, emulated.PROCESSORS, are_aligned(problem, [*map(address_of, arrays)]))
    before = emulated.kernel.cache_info().currsize
    with tally.timed("compilation"):
        for launch in made.launches:
            emulated.kernel(launch.spec)
    with tally.timed("emulated GPU"):
        emulated.run(problem, operands, out, made)
    tally.found["kernels compiled"] += emulated.kernel.cache_info().currsize - before
    return made


def on_gpu(problem: Problem, operands: Sequence[Array], out: Array, tally: Tally) -> DevicePlan:
    """Compute a problem on the first GPU. PyTorch allocates its memory."""
    import torch  # noqa: PLC0415 - not needed without a GPU

    with tally.timed("first use of the GPU"):
        torch.zeros(1, device="cuda")
        processors = driver.device(0).processors
    arrays = (*operands, out)
    held = [torch.from_numpy(np.append(_bytes(array), np.uint8(0))).cuda() for array in arrays]
    places = [
        room.data_ptr() + address_of(array) - address_of(memory(array))
        for room, array in zip(held, arrays, strict=True)
    ]
    strides, aligned = tuple(array.strides for array in arrays), are_aligned(problem, places)
    with tally.timed("plans"):
        made = plan(problem, strides, processors, aligned)
    before = ptx.cache_info().currsize
    with tally.timed("PTX"):
        for spec in {launch.spec for launch in made.launches}:
            run_on_large_stack(partial(ptx, spec))
    with tally.timed("loading, plans"):
        call = DeviceCall(problem, strides, 0, aligned)
    with tally.timed("GPU"):
        table = torch.frombuffer(bytearray(call.take_table()), dtype=torch.uint8).cuda()
        scratch = torch.full((call.scratch_bytes // 4 + 1,), np.nan, device="cuda")
        stream = torch.cuda.current_stream().cuda_stream
        call.launch(places[:-1], places[-1], table.data_ptr(), scratch.data_ptr(), stream)
        torch.cuda.synchronize()
        _bytes(out)[:] = held[-1].cpu().numpy()[:-1]
    tally.found["kernels compiled"] += ptx.cache_info().currsize - before
    return made


def run(seed: int, number: int, types: Sequence[tuple[str, str]], compute: Computes, tally: Tally) -> None:
    """Compute a problem by both kernels and compare all bytes of the outputs' memory."""
    operand, output = types[number // CHUNK % len(types)]
    with tally.timed("drawing"):
        one = drawn(seed, number, operand, output)
    problem, choice = one.problem, engines.choose(one.problem)
    why_not = refusal(problem) or ("" if choice.has_order else f"no CPU kernel: {choice.reason}")
    if why_not:
        tally.refused[why_not] += 1
        return
    expected, got = copied(one.old), copied(one.old)
    with tally.timed("CPU results"):
        engines.execute(problem, one.operands, expected, 1)
    operands = ",".join(dict.fromkeys(name for name, _ in types))
    where = f"python -m campaigns cuda --types {operands} --seed {seed} --first {number} --problems 1"
    tally.problems += 1
    tally.found[f"solved for {problem.solves_for}"] += 1
    tally.found["with infinities or NaN"] += not all(np.isfinite(a.astype(np.float32)).all() for a in one.operands)
    launches = ""
    try:
        made = compute(problem, one.operands, got, tally)
        launches = "; ".join(in_order(made))
        _count(made, tally)
        wrong = _differences(got, expected)
    except Exception as error:  # any error is a wrong problem, and its arguments must be printed
        wrong = f"{type(error).__name__}: {error}"
    if wrong:
        tally.wrong.append(f"{where}: {wrong}; {launches:.200}; {one.text}"[:MAX_TEXT])


def _differences(got: Array, expected: Array) -> str:
    """Return which elements differ in their bits, or the empty string."""
    if _bytes(got).tobytes() == _bytes(expected).tobytes():
        return ""
    kind = f"u{got.itemsize}"
    ours, theirs = (np.ascontiguousarray(array).view(kind) for array in (got, expected))
    differ = np.argwhere(ours != theirs)
    if not len(differ):
        return "memory between the outputs was written"
    first = tuple(differ[0].tolist())
    values = f"{got[first]} instead of {expected[first]}"
    return f"{len(differ)} of {got.size} elements differ, first {first}: {values}"


def _count(made: DevicePlan, tally: Tally) -> None:
    """Count a plan's kernels."""
    names = [launch.spec.name for launch in made.launches]
    for name in names:
        tally.found[f"launches of {name}"] += 1
    tally.found["with tiles"] += "tile" in names
    tally.found["with a tree of several levels"] += names.count("level") > 1


def run_chunk(seed: int, first: int, count: int, types: Sequence[tuple[str, str]], is_emulated: bool) -> Tally:
    """Compute a part of a chunk, and return its tally."""
    tally, compute = Tally(), on_cpu if is_emulated else on_gpu
    for number in range(first, first + count):
        run(seed, number, types, compute, tally)
        if len(tally.wrong) >= MAX_WRONG:
            break
    return tally


def run_hashes(first: int, count: int, is_emulated: bool) -> Tally:
    """Compute problems of the golden file, and return their tally."""
    tally, compute = Tally(), on_cpu if is_emulated else on_gpu
    for words, expected in islice(hashes_in(FILE).items(), first, first + count):
        some, found = problems(words), hashlib.sha256()
        if why_not := next(filter(None, map(refusal, some)), ""):
            tally.refused[why_not] += 1
            continue
        for one in some:
            operands, out = operands_and_out(one, words)
            _count(compute(one, operands, out, tally), tally)
            found.update(np.ascontiguousarray(out).tobytes())
        tally.problems += 1
        if found.hexdigest() != expected:
            tally.wrong.append(f"another hash: {words}")
    return tally


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("cuda", "Compute random problems on a GPU and on the CPU.", problems=1000, seed=0, first=0)
    parser.add_argument("--types", default=",".join(TYPES), help="types of the operands (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: processors)")
    parser.add_argument("--emulated", action="store_true", help="run the GPU's kernels on the CPU")
    parser.add_argument("--hashes", action="store_true", help="compare the hashes of the golden file")
    options = parser.parse_args(arguments)
    types, last = types_of(options.types.split(",")), options.first + options.problems
    parts: list[tuple[Any, ...]] = []
    if options.hashes:
        parts = [(run_hashes, at, HASHES, options.emulated) for at in range(0, len(hashes_in(FILE)), HASHES)]
        last = 0
    for at in range(options.first // CHUNK * CHUNK, last, CHUNK):
        begin, end = max(at, options.first), min(at + CHUNK, last)
        parts.append((run_chunk, options.seed, begin, end - begin, types, options.emulated))
    tally, started = Tally(), time.monotonic()
    for one in _computed(parts, min(options.jobs, len(parts))):
        for text in one.wrong:
            print(f"wrong: {text}", flush=True)
        tally.add(one)
        figures = f"{tally.problems} problems, {len(tally.wrong)} wrong"
        print(f"seed {options.seed}, {time.monotonic() - started:.0f} s: {figures}", flush=True)
    print(tally, flush=True)
    return 1 if tally.wrong else 0


def _computed(parts: Sequence[tuple[Any, ...]], jobs: int) -> Iterator[Tally]:
    """Yield the tallies of parts as they are computed, in this process or in several."""
    if jobs <= 1:
        yield from (compute(*given) for compute, *given in parts)
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        for future in as_completed([pool.submit(*part) for part in parts]):
            yield future.result()
