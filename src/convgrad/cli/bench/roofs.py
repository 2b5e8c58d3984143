"""The machine's limits (roofs): its multiply-add peak, the read bandwidth of each memory level, minimum times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt
from pathlib import Path

from convgrad.cli.bench.measure import FmaPeak, read_bandwidth

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_USUAL_BYTES = {1: 32 << 10, 2: 1 << 20, 3: 16 << 20}  # cache sizes by level if the system does not report them
_FIRST_SHARED = 3
_LARGEST_SET = 1 << 30


@dataclass(frozen=True)
class Level:
    """A level of memory: its capacity for all threads together (None if unlimited), and its read bandwidth in GB/s."""

    name: str
    capacity_bytes: int | None
    gbs: float


@dataclass(frozen=True)
class Roofs:
    """The limits for a number of threads: multiply-adds in GFLOP/s, and the memory levels, the fastest level first."""

    threads: int
    fma_gflops: float
    levels: tuple[Level, ...]

    def level(self, size: int) -> Level:
        """Return the fastest level whose capacity is at least ``size`` bytes."""
        return next(lv for lv in self.levels if lv.capacity_bytes is None or size <= lv.capacity_bytes)

    def floor_ms(self, flops: int, size: int, fma_gflops: float | None = None) -> float:
        """Return the minimum time in ms: the larger of the operations' time and the time to read ``size`` bytes once.

        >>> roofs = Roofs(1, 100.0, (Level("L2", 1000, 50.0), Level("memory", None, 10.0)))
        >>> roofs.floor_ms(10**8, 10**6), roofs.floor_ms(10**8, 10**8)
        (1.0, 10.0)
        """
        compute_s = flops / (fma_gflops or self.fma_gflops) / 1e9
        return 1e3 * max(compute_s, size / self.level(size).gbs / 1e9)


def measure_roofs(threads: int) -> Roofs:
    """Return the limits for a number of threads, measured in about half a second.

    The working set of a level is the geometric mean of the level's capacity and that of the next smaller level.
    """
    levels, below = [], 0
    for number, size in sorted(cache_bytes().items()):
        capacity = size if number >= _FIRST_SHARED else size * threads
        working_set = isqrt(below * capacity) if below else capacity // 2
        levels.append(Level(f"L{number}", capacity, read_bandwidth(threads, working_set // threads)))
        below = capacity
    in_memory = min(4 * below, _LARGEST_SET)
    levels.append(Level("memory", None, read_bandwidth(threads, in_memory // threads)))
    peak = FmaPeak(threads, "f32")
    return Roofs(threads, max(peak() for _ in range(5)), tuple(levels))


def cache_bytes() -> Mapping[int, int]:
    """Return the sizes in bytes of one core's data caches, by level."""
    sizes: dict[int, int] = {}
    for index in sorted(_CACHES.glob("index*")):
        try:
            level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        if kind != "Instruction" and size.endswith("K") and size[:-1].isdecimal():
            sizes[int(level)] = int(size[:-1]) << 10
    return sizes or _USUAL_BYTES
