"""Instruction sets and machines as values: what a plan may know of the hardware. Nothing is detected here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from convgrad.plan.constants import BYTES_PER_NS

LINE_BYTES = 64  # of caches


@dataclass(frozen=True, eq=False)  # rows of a table: each is itself only
class Isa:
    """An instruction set: f32 lanes of a vector, vector registers, tile shapes that stay in them, and LLVM's words.

    ``micro_tiles`` are pairs (max rows, vectors): r rows of v vectors keep r * v accumulators in registers.
    """

    name: str
    triple: str
    features: tuple[str, ...]
    lanes: int
    registers: int
    micro_tiles: tuple[tuple[int, int], ...]
    spare: int = 1  # registers that a tile of several taps leaves for what it loads
    pair_micro_tiles: tuple[tuple[int, int], ...] = ()  # of positions, where rows and lanes are words: LLVM spills more
    pairs: str = ""  # its word for a multiply-add of two terms of bf16: engines/llvm/intrinsics.py has them; or none

    def micro_tiles_of(self, step: int) -> tuple[tuple[int, int], ...]:
        """Return the tiles of positions whose multiply-adds take so many terms."""
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
def modelled(isa: Isa, word: str) -> Isa:
    """Return an instruction set with another word for pairs of bf16: any machine can compute as one with the word does.

    >>> modelled(ISAS["avx2"], "fused").name
    'avx2, pairs fused'
    """
    return replace(isa, name=f"{isa.name}, pairs {word}", pairs=word)


@dataclass(frozen=True, eq=False)  # each is itself only, and quick to look up
class Machine:
    """One machine: its instruction set, caches of a core in bytes, and the rates that costs are told with."""

    isa: Isa
    l1_bytes: int = 32 << 10
    l2_bytes: int = 1 << 20
    fma_per_ns: float = 64.0  # of one core
    bytes_per_ns: float = BYTES_PER_NS  # where operands usually lie, in a shared cache or memory, of one core
    pair_adds: float = 1.0  # multiply-adds of single terms that take as long as one of a pair
