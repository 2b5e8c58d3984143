"""Constants that several kernels share: the value, unit, meaning and origin of each. Each room has its own, too.

Fit these numbers again for another machine. The origin is a file in ``benchmarks/results``. Numbers without a
file were found by trying values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

BY_HAND = "by hand"


class Fitted:
    """A fitted number's unit, meaning, and the file of the run that it was fitted to."""

    def __init__(self, value: float, unit: str, about: str, run: str = BY_HAND) -> None:
        self.unit, self.about, self.run = unit, about, run


class Rate(Fitted, float):
    """A fitted number that may be a fraction."""

    def __new__(cls, value: float, *_: str) -> Self:
        """Return the number."""
        return super().__new__(cls, value)


class Count(Fitted, int):
    """A fitted whole number."""

    def __new__(cls, value: int, *_: str) -> Self:
        """Return the number."""
        return super().__new__(cls, value)


# The speeds that calibration measured, in the order of ``SPEEDS`` in ``machine.py``, by vendor, family and f32 lanes.
# Others have the values below.
MEASURED: Mapping[tuple[str, str, int], tuple[float, ...]] = {
    ("GenuineIntel", "6", 16): (88.0, 39.0, 17.0, 1.05, 0.74, 0.068, 0.16, 0.18, 0.7, 1.15),  # a Xeon with AMX
    ("AuthenticAMD", "26", 16): (146.0, 119.0, 35.0, 1.0, 0.58, 0.039, 0.069, 0.081, 0.7, 0.96),  # Zen 5
}

# -- a machine ---------------------------------------------------------------------------------------------------------

GHZ = Rate(3.3, "cycles/ns", "clock rate of a core: converts cycles to ns")
BYTES_PER_NS = Rate(20.0, "bytes/ns", "speed of one core's reads and writes in a shared cache")
MEMORY_BYTES_PER_NS = Rate(12.0, "bytes/ns", "speed of one core's reads and writes in memory")

# -- a call ------------------------------------------------------------------------------------------------------------

CALL_NS = Rate(20_000.0, "ns", "time of a call outside compiled code, such as checks", "fixed_costs.csv")
WAKE_NS = Rate(15_000.0, "ns", "start of helpers: 3 us if they poll for work, 50 us if they sleep", "after_a_rest.csv")
SMALL_PROBLEM = Count(1 << 16, "multiply-adds", "smaller problems share one kernel")
MAX_KERNELS_PLANNED = Count(4, "kernels", "fastest kernels of a loop nest on one thread; only their cuts are compared")

# -- threads that wait -------------------------------------------------------------------------------------------------

LOOKS = Count(20_000, "looks", "polls of an idle thread before it sleeps, for half a ms", "after_a_rest.csv")
CALLER_LOOKS = Count(4_000, "looks", "polls of a waiting caller, 0.1 ms, before it releases the interpreter's lock")
MIN_WAKE_MS = Rate(0.4, "ms", "shorter calls wake no sleeping thread: waking takes 0.05 to 0.15 ms", "after_a_rest.csv")
SUCCESSION_S = Rate(1e-3, "s", "a call that starts within this time after another wakes threads for the next call")
CALLS_WEIGHED = Count(8, "calls", "horizon of the running mean of the share of calls that waited for helpers")
MAX_ALONE = Count(32, "calls", "calls without helpers after each call with helpers, if all calls with helpers waited")

# -- micro-tiles -------------------------------------------------------------------------------------------------------

MIN_STEP_CYCLES = Rate(4.0, "cycles", "minimum time of a step of K: the latency of a multiply-add")
STEP_CYCLES = Rate(0.3, "cycles", "loop overhead per step of K, or per position in the depthwise kernel")
LOAD_CYCLES = Rate(0.58, "cycles", "load of a value of A; the load of a vector of B takes twice as long")
L2_LINE_CYCLES = Rate(1.2, "cycles", "load of a cache line from the second cache")
PORTION_FACTOR = Rate(1.06, "times", "multiply-adds of portions whose nodes stay in registers, compared with one chain")
PORTION_ROW_CYCLES = Rate(0.62, "cycles", "load of a value of A into all lanes, for such portions")
PORTION_STEP_CYCLES = Rate(
    0.06, "cycles", "time per row of a step of K that multiply-adds do not hide, for such portions"
)
AMX_BLOCK_CYCLES = Rate(14.0, "cycles", "block of 32 K, per tile of A or B")
AMX_ROW_CYCLES = Rate(0.3, "cycles", "block of 32 K, per row of a product of tiles")
SET_CONFLICT_FACTOR = Rate(1.15, "times", "time with set conflicts between taps, compared with none")
PAGES_FACTOR = Rate(1.15, "times", "time of micro-tiles whose A in place touches more than MAX_PAGES")
VECTOR_LOAD_CYCLES = Rate(1.0, "cycles", "load of a vector in place, which often crosses a cache line")
SEGMENT_CYCLES = Rate(8.0, "cycles", "start of a segment of K, or making its entry in a list")

# -- packing and store -------------------------------------------------------------------------------------------------

PACK_CHANNELS_NS = Rate(0.08, "ns", "packing of an element in cache, if channels are contiguous")
PACK_SPATIAL_NS = Rate(0.2, "ns", "packing of an element in cache, if positions are contiguous")
PACK_STRIDED_FACTOR = Rate(7.5, "times", "packing of an element if nothing is contiguous, compared with positions")
PACK_PAIR_NS = Rate(0.03, "ns", "additional packing time of an element for bf16 pairs and their exponents")
PAIR_ADDS = Rate(
    4.0, "multiply-adds", "single multiply-adds in the time of one of a pair; 1 on Zen 4 and later", "pair_adds.csv"
)
SEGMENT_BYTES = Rate(96.0, "bytes", "cost of starting to read at a new address, in bytes of a contiguous read")
STORE_LANES_NS = Rate(0.3, "ns", "store of an output, if lanes of a vector are contiguous outputs")
STORE_ROWS_NS = Rate(0.65, "ns", "store of an output, if rows of a micro-tile are contiguous outputs")
STORE_TAPS_FACTOR = Rate(0.6, "times", "store of an output if taps are contiguous, compared with rows")
STORE_STRIDED_FACTOR = Rate(1.5, "times", "store of an output if nothing is contiguous, compared with rows")

# -- division of the work ----------------------------------------------------------------------------------------------

MAX_SCRATCH_BYTES = Count(64 << 20, "bytes", "maximum scratch without SCRATCH_FACTOR, and maximum copy of A")

# -- forward and backward data -----------------------------------------------------------------------------------------

PACK_TAPS_FACTOR = Rate(1.5, "times", "packing of a weight if taps are contiguous, compared with positions")
REGION_CYCLES = Rate(150.0, "cycles", "start of a region")
POSITIONS_IMBALANCE = Rate(0.04, "of a task", "additional time of the slowest thread, for forward and backward data")
PREFETCH_B = Count(16, "terms", "distance in K at which micro-tiles prefetch B")
MAX_OUTPUT_BLOCK_BYTES = Count(16 << 20, "bytes", "maximum A of an output block, even if smaller blocks are slower")
FEWER_ROWS_POSITIONS = Count(10, "rows", "heights that are tried, from the maximum down: one may divide the positions")

# -- prefetch ----------------------------------------------------------------------------------------------------------

PREFETCH_PACK_POSITIONS = Count(16, "positions", "distance at which packing prefetches strided positions")
PREFETCH_PACK_BYTES = Count(8192, "bytes", "distance at which packing prefetches contiguous memory")
