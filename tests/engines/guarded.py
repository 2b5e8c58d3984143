"""Memory among pages that nobody may touch: arrays, scratch, what threads share; and a plan that is run in it."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

from convgrad.engines.addresses import address_of
from convgrad.engines.llvm.execute import Executable, executable_of
from convgrad.plan.recipe import Chosen
from convgrad.spec.problem import Problem

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


class GuardedMemory:
    """What scratch and memory that threads share are taken from: as much as asked, NaN, on a cache line, guarded."""

    held = None  # nothing that a thread has between calls

    def __init__(self, at_end: bool) -> None:
        self.at_end = at_end
        self.given: list[Guarded] = []

    def _new(self, size: int) -> Guarded:
        self.given.append(Guarded(size, self.at_end, CACHE_LINE))
        return self.given[-1]

    def address(self, size: int) -> tuple[int, object]:
        memory = self._new(size)
        return memory.address, memory

    def take(self, count: int) -> Array:
        return self._new(8 * count).bytes.view(np.int64)

    def give_back(self, memory: Array) -> None:
        """It is not used again."""


def run_guarded(plan: Chosen, problem: Problem, operands: list[Array], out: Array, at_end: bool) -> None:
    """Execute a plan on this thread; what it takes beside its arrays is NaN in every format, among guard pages."""
    call, given = executable_of(plan, problem, operands, out), [address_of(array) for array in operands]
    if call.packing is not None:
        packed = Guarded(call.schedule.packed_bytes, at_end, CACHE_LINE)
        _run_guarded(call.packing, given, packed.address, at_end)
        assert packed.intact()
        given[call.sides[0]] = packed.address
    _run_guarded(call, given, address_of(out), at_end)


def _run_guarded(call: Executable, operands: list[int], out: int, at_end: bool) -> None:
    scratch, shared = (
        Guarded(size, at_end, CACHE_LINE) for size in (call.schedule.scratch_bytes, call.schedule.partial_bytes)
    )
    words = shared.bytes.view(np.int64) if shared.size else None
    if words is not None:
        words[: call.schedule.counters] = 0
    arguments, _ = call.bound(operands, out, words)
    call.kernel(ctypes.addressof(arguments), scratch.address)
    assert scratch.intact()
    assert shared.intact()
