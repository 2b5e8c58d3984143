"""Instruction sets and machines, as the planner needs them. ``engines/llvm/isas.py`` detects the actual machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from convgrad.plan import constants

LINE_BYTES = 64  # the bytes of a cache line


@dataclass(frozen=True, eq=False)  # compared by identity, because each value is a row of ``ISAS``
class Isa:
    """An instruction set: f32 lanes of a vector, vector registers, and the micro-tiles that fit these registers.

    ``triple`` and ``features`` are LLVM's names. A processor without a feature of ``HINTS`` ignores its instruction.
    ``micro_tiles`` are pairs (maximum rows, vectors). Those of bf16 pairs have fewer rows, because LLVM needs more
    registers for bf16 pairs.
    """

    name: str
    triple: str
    features: tuple[str, ...]
    lanes: int
    registers: int
    micro_tiles: tuple[tuple[int, int], ...]
    spare: int = 1  # registers for operands that micro-tiles of several taps do not hold
    pair_micro_tiles: tuple[tuple[int, int], ...] = ()  # for bf16 pairs; () means ``micro_tiles``
    portion_micro_tiles: tuple[tuple[int, int], ...] = ()  # for pairs of two chains; () means half of those rows
    pairs: str = ""  # the multiply-add of bf16 pairs, a key of ``PAIR_SUMS`` in engines/llvm/intrinsics.py, or ""
    tiles: str = (
        ""  # the tiles that multiply blocks of 32 bf16 terms, a key of ``TILES`` in engines/llvm/tiles.py, or ""
    )

    def micro_tiles_of(self, k_per_add: int, chains: int = 1) -> tuple[tuple[int, int], ...]:
        """Return the micro-tiles of positions for kernels whose multiply-adds take ``k_per_add`` k each.

        With two chains, a result has two sums in registers or, in ``portion_micro_tiles``, also that of a node.
        """
        if self.portion_micro_tiles and (k_per_add, chains) == (2, 2):
            return self.portion_micro_tiles
        tiles = (self.pair_micro_tiles or self.micro_tiles) if k_per_add == 2 else self.micro_tiles
        return tuple((rows // chains, vectors) for rows, vectors in tiles)

    @property
    def architecture(self) -> str:
        """The family of processors: x86_64 or aarch64."""
        return self.triple.split("-")[0]

    def __str__(self) -> str:
        return self.name


HINTS = {"evex512", "prfchw"}
_X86 = "x86_64-unknown-linux-gnu"
_AVX2 = ("avx", "avx2", "fma", "f16c", "sse4.2", "popcnt", "bmi", "bmi2", "lzcnt", "prfchw")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512cd", "evex512")

_AVX512_BF16 = Isa(
    "avx512bf16",
    _X86,
    (*_AVX512, "avx512bf16"),
    lanes=16,
    registers=32,
    micro_tiles=((14, 2), (24, 1), (6, 4)),
    pair_micro_tiles=((13, 2), (23, 1), (5, 4)),
    portion_micro_tiles=((2, 4), (4, 2), (8, 1)),
    pairs="dpbf16ps",
)

ISAS: Mapping[str, Isa] = {
    isa.name: isa
    for isa in (
        replace(_AVX512_BF16, name="amx", features=(*_AVX512_BF16.features, "amx-tile", "amx-bf16"), tiles="amx"),
        _AVX512_BF16,
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


@dataclass(frozen=True, eq=False)  # identity makes cache lookups fast
class Machine:
    """A machine: its instruction set, cache sizes, and the speeds of one core for the cost model.

    The speeds from ``fma_per_ns`` on are measured by calibration; ``constants.py`` says what they mean.
    """

    isa: Isa
    l1_bytes: int = 32 << 10
    l2_bytes: int = 1 << 20
    l3_bytes: int = 32 << 20
    pair_adds: float = 1.0  # multiply-adds of single k in the time of one multiply-add of a bf16 pair
    call_ns: float = constants.CALL_NS
    wake_ns: float = constants.WAKE_NS
    fma_per_ns: float = 64.0
    bytes_per_ns: float = constants.BYTES_PER_NS
    memory_bytes_per_ns: float = constants.MEMORY_BYTES_PER_NS
    l2_line_cycles: float = constants.L2_LINE_CYCLES
    vector_load_cycles: float = constants.VECTOR_LOAD_CYCLES
    pack_channels_ns: float = constants.PACK_CHANNELS_NS
    pack_spatial_ns: float = constants.PACK_SPATIAL_NS
    store_lanes_ns: float = constants.STORE_LANES_NS
    store_rows_ns: float = constants.STORE_ROWS_NS
    pages_factor: float = constants.PAGES_FACTOR

    @property
    def cycle_ns(self) -> float:
        """The time of one cycle in ns; a core executes two vector multiply-adds per cycle."""
        return 2 * self.isa.lanes / self.fma_per_ns

    def traffic_ns(self, size: float) -> float:
        """Return the time in ns to read or write ``size`` bytes that are not in a core's own caches."""
        return size / self.bytes_per_ns

    def for_traffic(self, size: int) -> Machine:
        """Return this machine with the mean speed of reads and writes in a call that moves ``size`` bytes.

        Up to half of the shared cache, it is the speed of that cache, and from its whole size on, that of memory. Other
        calls and cores use the cache too. All reads and writes of a call have this speed, also repeated ones.
        """
        in_memory = min(max(2 * size / self.l3_bytes - 1, 0.0), 1.0)
        mean_ns = (1 - in_memory) / self.bytes_per_ns + in_memory / self.memory_bytes_per_ns
        return replace(self, bytes_per_ns=1 / mean_ns) if in_memory else self


SPEEDS = tuple(field.name for field in fields(Machine))[7:]  # the speeds that calibration measures
