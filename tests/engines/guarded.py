"""Weight gradients among pages that nobody may touch; run as a program, so that a fault ends only this process.

``python -m tests.engines.guarded SEED COUNT`` names each problem before it runs it, and ends with a line of what it
did; with a COUNT of 0 it has the engine read one image beyond an operand.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import mmap
import sys
from collections import Counter
from typing import Any

import numpy as np

import convgrad
from convgrad.engines import scratch as kept_memory
from convgrad.engines.addresses import address_of
from convgrad.engines.llvm.execute import executable_of
from convgrad.functional.call import prepare
from convgrad.plan.recipe import Chosen
from convgrad.spec import exact_result
from convgrad.spec.problem import Problem
from tests.support.classes import ALL_TYPES, NAMES, layer_case
from tests.support.helpers import assert_same_bits, operands_of

Array = np.ndarray

PAGE = mmap.PAGESIZE
CANARY = 0xFF  # NaN in every format
CACHE_LINE = 64
_libc = ctypes.CDLL(None, use_errno=True)


class Guarded:
    """Some bytes that end, or begin, at a page nobody may touch; at their other side are canaries, then such a page."""

    def __init__(self, size: int, at_end: bool, alignment: int = 1) -> None:
        pages = -(-max(size, 1) // PAGE)
        self.map = mmap.mmap(-1, (pages + 2) * PAGE)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        for page in (0, pages + 1):
            assert _libc.mprotect(ctypes.c_void_p(self.base + page * PAGE), PAGE, 0) == 0
        self.inside = np.frombuffer(self.map, np.uint8, pages * PAGE, PAGE)
        self.inside[...] = CANARY
        room = pages * PAGE - size
        self.start = room - room % alignment if at_end else 0
        self.size = size

    @property
    def address(self) -> int:
        return self.base + PAGE + self.start

    @property
    def bytes(self) -> Array:
        return self.inside[self.start : self.start + self.size]

    def intact(self) -> bool:
        """Tell whether the canaries are as they were."""
        before, behind = self.inside[: self.start], self.inside[self.start + self.size :]
        return bool((before == CANARY).all() and (behind == CANARY).all())


class Placed:
    """An array's values in guarded memory that is just as long as the array spans."""

    def __init__(self, array: Array, strides: tuple[int, ...], at_end: bool) -> None:
        reach = [(n - 1) * s for n, s in zip(array.shape, strides, strict=True)]
        first = -sum(r for r in reach if r < 0)
        self.memory = Guarded(sum(map(abs, reach)) + array.itemsize, at_end)
        self.array: Array = np.ndarray(array.shape, array.dtype, self.memory.bytes.data, first, strides)
        self.array[...] = array
        self.gaps = self._gaps()

    def _gaps(self) -> bytes:
        kept = self.array.copy()
        self.array.view(f"V{self.array.itemsize}")[...] = np.zeros((), f"V{self.array.itemsize}")
        gaps = self.memory.inside.tobytes()
        self.array[...] = kept
        return gaps

    def intact(self) -> bool:
        """Tell whether nothing changed around the array's elements, which are lost."""
        return self._gaps() == self.gaps


def lying(rng: np.random.Generator, array: Array, strided: bool) -> tuple[int, ...]:
    """Return strides in bytes for an array: packed as its layout says, or axes in any order, spread, some backwards."""
    order = rng.permutation(array.ndim) if strided and rng.random() < 0.5 else range(array.ndim)
    step = array.itemsize
    if strided and rng.random() < 0.5:
        step = step * int(rng.integers(1, 4)) + int(rng.integers(0, 2))
    strides = [0] * array.ndim
    for axis in reversed(list(order)):
        back = strided and rng.random() < 0.15
        strides[axis] = -step if back else step
        step *= array.shape[axis]
        if strided and rng.random() < 0.3:
            step += array.itemsize * int(rng.integers(1, 9))
    return tuple(strides)


class GuardedScratch:
    """What the pool takes scratch memory from: just as much as is asked, NaN, on a cache line, among guard pages."""

    held = None  # nothing that a thread has between calls

    def __init__(self, at_end: bool) -> None:
        self.at_end = at_end
        self.given: list[Guarded] = []

    def address(self, size: int) -> tuple[int, object]:
        memory = Guarded(size, self.at_end, CACHE_LINE)
        self.given.append(memory)
        return memory.address, memory


class GuardedShared:
    """What a call takes memory from that its threads share: likewise."""

    def __init__(self, at_end: bool) -> None:
        self.at_end = at_end
        self.given: list[Guarded] = []

    def take(self, words: int) -> Array:
        memory = Guarded(8 * words, self.at_end, CACHE_LINE)
        self.given.append(memory)
        return memory.bytes.view(np.int64)

    def give_back(self, memory: Array) -> None:
        """It is not used again."""


def run_guarded(plan: Chosen, problem: Problem, operands: list[Array], out: Array, at_end: bool) -> None:
    """Execute a plan on this thread; what it takes beside its arrays is NaN in every format, among guard pages."""
    call = executable_of(plan, problem, operands, out)
    scratch = Guarded(call.schedule.scratch_bytes, at_end, CACHE_LINE)
    shared = Guarded(call.schedule.partial_bytes, at_end, CACHE_LINE)
    scratch.bytes[...] = shared.bytes[...] = 0xFF
    words = shared.bytes.view(np.int64) if shared.size else None
    if words is not None:
        words[: call.schedule.counters] = 0
    arguments, _ = call.bound([address_of(array) for array in operands], address_of(out), words)
    call.kernel(ctypes.addressof(arguments), scratch.address)
    assert scratch.intact()
    assert shared.intact()


def values_of(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, accumulate: bool) -> Array:
    """Return what an output holds before: integers to add to, or NaN."""
    return rng.integers(-8, 9, shape).astype(dtype) if accumulate else np.full(shape, np.nan, dtype)


def run_one(rng: np.random.Generator, name: str, operand: str, output: str, done: Counter[str]) -> None:
    """Run a random problem of a class in both placements and compare with the oracle."""
    case, seed = layer_case(name, rng, operand, output), int(rng.integers(1 << 30))
    plain = operands_of(case, "integers", seed)
    accumulate, threads = bool(rng.random() < 0.3), int(rng.choice([1, 1, 2]))
    prepared = prepare(case.op.name, plain, case.attributes, case.dtype, accumulate)
    problem = prepared.problem
    old = values_of(rng, problem.output_shape, problem.output_format.dtype, accumulate)
    answer = exact_result.evaluate(problem, prepared.operands, prepared.canonical_output(old) if accumulate else None)
    expected = answer.rounded(problem)
    shapes = [port.is_shape for port in case.op.operands[: len(plain)]]
    arrays = [np.asarray(a) for a, is_shape in zip(plain, shapes, strict=True) if not is_shape]
    strided = [bool(rng.random() < 0.4) for _ in (*arrays, old)]
    strides = [lying(rng, a, odd) for a, odd in zip((*arrays, old), strided, strict=True)]
    for at_end in (True, False):
        words = f"{name}: {case} seed {seed} strides {strides} accumulate {accumulate} threads {threads} "
        words += f"guard {'behind' if at_end else 'before'}"
        print(words, flush=True)
        placed = [Placed(a, s, at_end) for a, s in zip((*arrays, old), strides, strict=True)]
        *given, out = (p.array for p in placed)
        scratch = GuardedScratch(at_end)
        shared = GuardedShared(at_end)
        kept_memory.own, kept_memory.shared = scratch, shared  # type: ignore[assignment]
        each = iter(given)
        operands = [a if is_shape else next(each) for a, is_shape in zip(plain, shapes, strict=True)]
        convgrad.run(
            case.op.name, *operands, dtype=case.dtype, out=out, accumulate=accumulate, threads=threads,
            **case.attributes,
        )  # fmt: skip
        assert_same_bits(np.ascontiguousarray(prepared.canonical_output(out)), expected, words)
        for array, before in zip(given, arrays, strict=True):
            assert array.tobytes() == before.tobytes(), f"an operand changed: {words}"
        assert all(p.intact() for p in placed), f"bytes around an array changed: {words}"
        assert all(m.intact() for m in (*scratch.given, *shared.given)), f"bytes around scratch changed: {words}"
        done["placements"] += 1
        done["scratch"] += len(scratch.given)
        done["shared"] += len(shared.given)
    done["problems"] += 1
    done["strided"] += any(strided)
    done["accumulated"] += accumulate


def reach_beyond() -> None:
    """Have the engine read an image that is not there."""
    print("an image too many", flush=True)
    placed = Placed(np.ones((1, 9, 9, 16), np.float32), (16 * 81 * 4, 16 * 9 * 4, 64, 4), at_end=True)
    too_many = np.lib.stride_tricks.as_strided(placed.array, (2, 9, 9, 16))
    convgrad.convolution_backward_weights(too_many, np.ones((2, 9, 9, 16), np.float32), (1, 1, 16, 16), threads=1)


def main(seed: int, count: int) -> None:
    faulthandler.enable()
    done: Counter[str] = Counter()
    if count == 0:
        reach_beyond()
    for number in range(count):
        operand, output = ALL_TYPES[seed % 5], ALL_TYPES[(seed + seed // 5) % 5]
        name = NAMES[(number + seed * count) % len(NAMES)]
        run_one(np.random.default_rng([71, seed, number]), name, operand, output, done)
        done[name] += 1
    print(json.dumps(done))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
