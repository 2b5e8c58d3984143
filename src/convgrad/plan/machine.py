"""Instruction sets and machines as values: the hardware as the planner sees it. Nothing is detected here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from convgrad.plan.constants import BYTES_PER_NS

LINE_BYTES = 64  # of caches


@dataclass(frozen=True, eq=False)  # rows of a table: each is itself only
class Isa:
    """An instruction set: f32 lanes of a vector, vector registers, and the micro-tiles that fit these registers.

    ``triple`` and ``features`` are LLVM's names. ``micro_tiles`` are pairs (max rows, vectors): r rows of v vectors
    have r * v accumulators. ``pair_micro_tiles`` are smaller, because LLVM needs more registers for bf16 pairs.
    """

    name: str
    triple: str
    features: tuple[str, ...]
    lanes: int
    registers: int
    micro_tiles: tuple[tuple[int, int], ...]
    spare: int = 1  # registers that a micro-tile of several taps leaves for operands
    pair_micro_tiles: tuple[tuple[int, int], ...] = ()  # of positions, with bf16 pairs; none: ``micro_tiles``
    pairs: str = ""  # the multiply-add of bf16 pairs, a row of ``PAIR_SUMS`` in engines/llvm/intrinsics.py; or none

    def micro_tiles_of(self, step: int) -> tuple[tuple[int, int], ...]:
        """Return the micro-tiles of positions whose multiply-adds take ``step`` k."""
        return (self.pair_micro_tiles or self.micro_tiles) if step == 2 else self.micro_tiles

    @property
    def architecture(self) -> str:
        """The family of processors: x86_64, aarch64."""
        return self.triple.split("-")[0]

    def __str__(self) -> str:
        return self.name


_X86 = "x86_64-unknown-linux-gnu"
_AVX2 = ("avx", "avx2", "fma", "f16c", "sse4.2", "popcnt", "bmi", "bmi2", "lzcnt")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512cd", "evex512")

ISAS: Mapping[str, Isa] = {
    isa.name: isa
    for isa in (
        Isa(
            "avx512bf16",
            _X86,
            (*_AVX512, "avx512bf16"),
            lanes=16,
            registers=32,
            micro_tiles=((14, 2), (24, 1), (6, 4)),
            pair_micro_tiles=((13, 2), (23, 1), (5, 4)),
            pairs="dpbf16ps",
        ),
        Isa("avx512", _X86, _AVX512, lanes=16, registers=32, micro_tiles=((14, 2), (24, 1), (6, 4))),
        Isa("avx2", _X86, _AVX2, lanes=8, registers=16, micro_tiles=((6, 2), (12, 1), (2, 4))),
        Isa(
            "neon",
            "aarch64-unknown-linux-gnu",
            ("neon",),
            lanes=4,
            registers=32,
            micro_tiles=((12, 2), (20, 1), (6, 4)),
            spare=6,
        ),
    )
}


@cache
def modelled(isa: Isa, pairs: str) -> Isa:
    """Return an instruction set with another multiply-add of bf16 pairs, so that any machine can compute its bits.

    >>> modelled(ISAS["avx2"], "fused").name
    'avx2, pairs fused'
    """
    return replace(isa, name=f"{isa.name}, pairs {pairs}", pairs=pairs)


@dataclass(frozen=True, eq=False)  # each is itself only, and quick to look up
class Machine:
    """One machine: its instruction set, the caches of a core, and the speeds of the cost model, per core."""

    isa: Isa
    l1_bytes: int = 32 << 10
    l2_bytes: int = 1 << 20
    fma_per_ns: float = 64.0
    bytes_per_ns: float = BYTES_PER_NS  # from a shared cache or memory
    pair_adds: float = 1.0  # multiply-adds of single k in the time of a bf16 pair
