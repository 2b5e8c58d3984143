"""Memory among pages that nobody may touch: arrays, scratch, what threads share; and a plan that is run in it."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from convgrad.engines.addresses import address_of
from convgrad.engines.llvm.execute import Executable, executable_of
from convgrad.plan.gemm import schedule as gemm
from convgrad.plan.kn2row import schedule as kn2row
from convgrad.plan.recipe import Chosen
from convgrad.plan.split_k import schedule as split_k
from convgrad.plan.stencils import spatial_schedule as spatial
from convgrad.plan.winograd import schedule as winograd
from convgrad.spec.problem import Problem

Array = np.ndarray

PAGE = mmap.PAGESIZE
CANARY = 0xFF  # NaN in every format
CACHE_LINE = 64
MARGIN = 4 * CACHE_LINE  # after a part of scratch: kernels may read it, and not write it
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

    def forbid(self, page: int) -> None:
        """Let nobody touch a page of the bytes."""
        assert _libc.mprotect(ctypes.c_void_p(self.base + (page + 1) * PAGE), PAGE, 0) == 0

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


class Scratch(Guarded):
    """Scratch whose parts are some pages each, with a margin and a page that nobody may touch after each of them.

    A part that is planned too small is seen even if its kernel writes to the part after it.
    """

    ends: ClassVar[dict[int, list[int]]] = {}  # the ends of the parts, by the size of all; the latest of a size

    def __init__(self, size: int, at_end: bool) -> None:
        ends = self.ends.get(size) or self.ends.get(size - MARGIN) or []
        super().__init__(size, at_end and not ends, CACHE_LINE)
        self.margins = [self.inside[end : end + MARGIN] for end in ends]
        for end in ends:
            self.forbid((end + MARGIN) // PAGE)

    def intact(self) -> bool:
        return super().intact() and all((margin == CANARY).all() for margin in self.margins)

    @classmethod
    def placed(cls, sizes: Mapping[str, int]) -> tuple[dict[str, int], int]:
        """Place parts as ``tables.placed`` does, each flush with its margin."""
        places, size, ends = {}, 0, []
        for name, part in sizes.items():
            lines, pages = -(-part // CACHE_LINE) * CACHE_LINE, -(-(part + MARGIN) // PAGE)
            ends.append(size + pages * PAGE - MARGIN)
            places[name] = ends[-1] - lines
            size += (pages + 1) * PAGE
        cls.ends[size] = ends
        return places, size

    @classmethod
    def place_all(cls) -> None:
        """Have the schedules of this process place the parts of their scratch so."""
        for schedule in (gemm, kn2row, spatial, split_k, winograd):
            schedule.placed = cls.placed  # type: ignore[attr-defined]


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

    def address(self, size: int) -> tuple[int, object]:
        self.given.append(Scratch(size, self.at_end))
        return self.given[-1].address, self.given[-1]

    def take(self, count: int) -> Array:
        self.given.append(Guarded(8 * count, self.at_end, CACHE_LINE))
        return self.given[-1].bytes.view(np.int64)

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
    scratch = Scratch(call.schedule.scratch_bytes, at_end)
    shared = Guarded(call.schedule.partial_bytes, at_end, CACHE_LINE)
    words = shared.bytes.view(np.int64) if shared.size else None
    if words is not None:
        words[: call.schedule.counters] = 0
    arguments, _ = call.bound(operands, out, words)
    call.kernel(ctypes.addressof(arguments), scratch.address, 0)
    assert scratch.intact()
    assert shared.intact()
