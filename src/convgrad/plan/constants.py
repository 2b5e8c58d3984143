"""Constants of the cost model and of tuning: the value, unit, meaning and origin of each.

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


def fitted() -> dict[str, Rate | Count]:
    """Return all fitted numbers by name, in the order of this file.

    >>> call = fitted()["CALL_NS"]
    >>> float(call), call.unit, call.run
    (20000.0, 'ns', 'fixed_costs.csv')
    """
    return {name: value for name, value in globals().items() if isinstance(value, Rate | Count)}


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
CACHE_WAYS = Count(8, "ways", "least associativity of the caches in use")

# -- a call ------------------------------------------------------------------------------------------------------------

CALL_NS = Rate(20_000.0, "ns", "time of a call outside compiled code, such as checks", "fixed_costs.csv")
WAKE_NS = Rate(15_000.0, "ns", "start of helpers: 3 us if they poll for work, 50 us if they sleep", "after_a_rest.csv")
IMBALANCE = Rate(0.1, "of a task", "additional time of the slowest thread")
REMOTE_READ_FACTOR = Rate(5.0, "times", "time to read data that another core has written, compared with other data")
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
MAX_TAPS_IN_L1 = Count(8, "taps", "taps that read a cache line from the first cache after one tap has loaded it")
SET_CONFLICT_FACTOR = Rate(1.15, "times", "time with set conflicts between taps, compared with none")
SET_CONFLICT_BYTES = Count(1024, "bytes", "strides that are multiples of this use few sets of a cache")
SET_CONFLICT_CHANNELS = Count(64, "channels", "maximum channels of an A in place that causes no set conflicts")
MAX_PAGES = Count(192, "pages", "maximum memory pages that a panel of A in place touches without TLB misses")
PAGES_FACTOR = Rate(1.15, "times", "time of micro-tiles whose A in place touches more than MAX_PAGES")
IN_PLACE_LINES = Count(2, "lines", "cache lines that a panel of A in place touches at a position")
IN_PLACE_SHARE = Rate(0.75, "of the second cache", "maximum lines of a panel of A in place without L2 misses")
IN_PLACE_L2_MISS_FACTOR = Rate(1.5, "times", "time of micro-tiles whose A in place exceeds IN_PLACE_SHARE")
VECTOR_LOAD_CYCLES = Rate(1.0, "cycles", "load of a vector in place, which often crosses a cache line")
DEPTHWISE_LOAD_FACTOR = Rate(2.4, "times", "load in the depthwise kernel of weight gradients, compared with others")
TAPS_REGISTER_SHARE = Rate(0.78, "of the registers", "sums of several taps above which TAPS_REGISTER_FACTOR applies")
TAPS_REGISTER_FACTOR = Rate(1.25, "times", "time of a micro-tile whose sums exceed TAPS_REGISTER_SHARE")
GROUP_LINE_FACTOR = Rate(1.4, "times", "load of a cache line from the second cache in micro-tiles of groups")
LINE_START_CYCLES = Rate(12.0, "cycles", "start of a run of positions that have the same taps")
SEGMENT_CYCLES = Rate(8.0, "cycles", "start of a segment of K, or making its entry in a list")
COMBINE_CYCLES = Rate(1.5, "cycles", "addition of a stored vector of sums")

# -- direct depthwise kernel -------------------------------------------------------------------------------------------

DEPTHWISE_POSITIONS = Count(64, "positions", "positions of a row that the depthwise kernel reads at a time")
BORDER_TAP_CYCLES = Rate(3.0, "cycles", "additional time per tap at a position where some taps are absent")
DEPTHWISE_REREAD_FACTOR = Rate(1.4, "times", "time if rows are read again from the second cache")

# -- packing and store -------------------------------------------------------------------------------------------------

PACK_CHANNELS_NS = Rate(0.08, "ns", "packing of an element in cache, if channels are contiguous")
PACK_SPATIAL_NS = Rate(0.2, "ns", "packing of an element in cache, if positions are contiguous")
PACK_STRIDED_FACTOR = Rate(7.5, "times", "packing of an element if nothing is contiguous, compared with positions")
PACK_SPREAD_NS = Rate(0.015, "ns", "additional packing time of an element per channel of a group, if lanes are groups")
PACK_PAIR_NS = Rate(0.03, "ns", "additional packing time of an element for bf16 pairs and their exponents")
PAIR_ADDS = Rate(
    4.0, "multiply-adds", "single multiply-adds in the time of one of a pair; 1 on Zen 4 and later", "pair_adds.csv"
)
PACK_PAIRS_CHANNELS_NS = Rate(0.05, "ns", "packing of an element into compact bf16 pairs, if channels are contiguous")
PACK_PAIRS_SPATIAL_NS = Rate(0.12, "ns", "packing of an element into compact bf16 pairs, if positions are contiguous")
MIN_EXPONENT_NS = Rate(0.015, "ns", "search for the minimum exponent, per element that is read in place")
SEGMENT_BYTES = Rate(96.0, "bytes", "cost of starting to read at a new address, in bytes of a contiguous read")
STORE_LANES_NS = Rate(0.3, "ns", "store of an output, if lanes of a vector are contiguous outputs")
STORE_ROWS_NS = Rate(0.65, "ns", "store of an output, if rows of a micro-tile are contiguous outputs")
STORE_TAPS_FACTOR = Rate(0.6, "times", "store of an output if taps are contiguous, compared with rows")
STORE_STRIDED_FACTOR = Rate(1.5, "times", "store of an output if nothing is contiguous, compared with rows")
MIN_STORE_LINE = Count(4, "outputs", "minimum contiguous outputs for vector stores")

# -- division of the work ----------------------------------------------------------------------------------------------

MAX_SCRATCH_BYTES = Count(64 << 20, "bytes", "maximum scratch without SCRATCH_FACTOR, and maximum copy of A")
SCRATCH_FACTOR = Rate(10.0, "times", "penalty on the time of plans that need more than MAX_SCRATCH_BYTES")
MAX_PACK_ALL_BYTES = Count(8 << 20, "bytes", "maximum size of operands that a task packs all at once")
MAX_INDIRECTION_FACTOR = Count(16, "times", "entries of all indirection tables, compared with one for an image")
MAX_B_STRIDE_BYTES = Count(256, "bytes", "maximum stride between positions of a B that is read in place")
MAX_B_READS = Count(5, "tiles", "maximum micro-tiles that read the same B in place; more make packing worthwhile")

# -- forward and backward data -----------------------------------------------------------------------------------------

PACK_TAPS_FACTOR = Rate(1.5, "times", "packing of a weight if taps are contiguous, compared with positions")
REGION_CYCLES = Rate(150.0, "cycles", "start of a region")
MICRO_TILE_ROW_CYCLES = Rate(6.0, "cycles", "start and store of a micro-tile's row, per panel")
POSITIONS_IMBALANCE = Rate(0.04, "of a task", "additional time of the slowest thread, for forward and backward data")
PANELS_SHARE = Rate(0.5, "of the second cache", "maximum weights that are packed at a time")
PANELS_BYTES = Count(16 << 20, "bytes", "maximum weights that are packed at a time, if A is packed again for each part")
PANEL_L2_MISS_FACTOR = Rate(0.5, "times", "additional time per second cache by which a panel exceeds its share")
PANELS_READ_FACTOR = Rate(2.0, "times", "time to read panels of B from a shared cache, compared with other data")
PASS_SHARE = Rate(0.4, "of the second cache", "weights that all micro-tiles of a region use in one pass")
MAX_OPEN_SUMS_BYTES = Count(4 << 20, "bytes", "maximum sums that wait in scratch between passes")
OUTPUT_BLOCK_SHARE = Rate(0.25, "of the second cache", "maximum A that an output block reads")
SPATIAL_BLOCK_SHARE = Rate(0.5, "of the second cache", "the same, if packing transposes positions of A")
PACK_TOGETHER = Count(64, "positions", "minimum positions that a task packs, if A is packed once")
PACK_TOGETHER_BYTES = Count(1 << 16, "bytes", "packed A of a task, if A is packed once")
FAR_COPY_FACTOR = Rate(4.0, "times", "time to write and read packed A that exceeds the second cache")
PACK_ONCE_LINES = Count(4096, "lines", "maximum separate lines of an A that is packed once")
KN2ROW_SHARE = Rate(0.3, "of the second cache", "tap sums of the lines that kn2row computes together")
KN2ROW_LINE_ROOMS = Count(2, "shares", "tap sums of the longest line that kn2row does not cut")
KN2ROW_PACKED_SHARE = Rate(0.125, "of the second cache", "packed data, or packed weights, of a cache block of kn2row")
SPATIAL_WEIGHT_CYCLES = Rate(0.5, "cycles", "load of a weight into all lanes in the spatial stencil")
SPATIAL_STORE_CYCLES = Rate(2.0, "cycles", "store of a vector of sums in the spatial stencil")
SPATIAL_TILE_CYCLES = Rate(48.0, "cycles", "start of a micro-tile of the spatial stencil")
SPATIAL_MAX_TERMS = Count(100, "terms", "maximum terms of a sum of the spatial stencil, which is unrolled")
SPATIAL_MAX_CHANNELS = Count(16, "channels", "maximum channels of a group in the spatial stencil")
KN2ROW_MIN_POSITIONS = Count(
    256, "positions", "positions with stored tap sums in kn2row; fewer are recomputed too often"
)
KN2ROW_ADD_NS = Rate(2.2, "ns", "addition of a vector of tap sums to its output in kn2row")
PAIR_SPLIT_FACTOR = Rate(1.03, "times", "time if a kernel splits bf16 pairs in A in place, compared with f32")
GROUPED_MAX_ROWS = Count(14, "rows", "maximum rows of a micro-tile of the grouped stencil")
GROUPED_OTHER_REGISTERS = Count(4, "registers", "registers that hold neither sums nor weights in the grouped stencil")
GROUPED_MAX_WEIGHTS = Count(48, "weights", "maximum weights per lane of the unrolled taps of the grouped stencil")
GROUPED_CYCLES = Rate(40.0, "cycles", "start of a micro-tile of the grouped stencil")
GROUPED_ROW_CYCLES = Rate(2.0, "cycles", "store of a vector of sums of the grouped stencil")
GROUPED_ALONE_FACTOR = Rate(1.1, "times", "time if one vector of groups is read in place at a time, compared with two")
COLLECTED_STORE_FACTOR = Rate(0.2, "times", "store of an output that is collected, compared with rows of a micro-tile")
GROUPED_MAX_READ_VECTORS = Count(4, "vectors", "vectors of channels that lanes of the grouped stencil select from")
GROUPED_MAX_SPREAD_REGISTERS = Count(8, "registers", "maximum registers for selected lanes in the grouped stencil")
GROUPED_MAX_VECTORS = Count(5, "vectors", "maximum vectors of a panel of the grouped stencil")
MAX_B_READS_POSITIONS = Count(4, "tiles", "maximum micro-tiles that read the same B in place")
PREFETCH_MAX_TILE_BYTES = Count(128, "bytes", "maximum bytes per K that are prefetched for the next micro-tile")
PREFETCH_B = Count(16, "terms", "distance in K at which micro-tiles prefetch B")
DISTANT_LINE_FACTOR = Rate(4.0, "times", "load of an L2 line if rows are in different pages, compared with others")
PREFETCH_PANELS = Count(2, "panels", "distance at which the first micro-tile of a panel of positions prefetches B")
MAX_OUTPUT_BLOCK_BYTES = Count(16 << 20, "bytes", "maximum A of an output block, even if smaller blocks are slower")
MIN_OUTPUT_BLOCK_TILES = Count(4, "tiles", "minimum micro-tiles of an output block along the axis that they run along")
SMALL_KERNEL_ROWS = Count(8, "rows", "rows of the kernel for small problems; more compile twice as long")
FEWER_ROWS_POSITIONS = Count(10, "rows", "heights that are tried, from the maximum down: one may divide the positions")
INNER_AXIS_FACTOR = Rate(1.02, "times", "an inner axis is preferred up to this waste, compared with the least")

# -- simplified loop nests ---------------------------------------------------------------------------------------------

MAX_FOLDED_CHANNELS = Count(8, "channels", "maximum channels that are packed together with their taps")
SPARSE_POSITIONS = Count(8, "positions", "from this ratio of a row to its read positions, only these are packed")

# -- Winograd ----------------------------------------------------------------------------------------------------------

WINOGRAD_SRC_CHANNELS = Count(32, "src channels", "granularity of the src channels of a task")
WINOGRAD_TRANSFORM_ADDS = Rate(16.0, "multiply-adds", "multiply-adds in the time to transform one value")
WINOGRAD_TASK_SHARE = Rate(3.0, "times the second cache", "larger tasks of a weight gradient read from memory")
WINOGRAD_BLOCK_SHARE = Rate(0.7, "of the second cache", "maximum points and sums of a cache block of Winograd tiles")
WINOGRAD_CHANNELS_A_TILE = Count(4, "channels", "channels per tile above which weights move more bytes than tiles")
WINOGRAD_MIN_TILES = Count(96, "tiles", "tiles of a cache block above WINOGRAD_CHANNELS_A_TILE")
WINOGRAD_BLOCK = Count(64, "channels", "src and dst channels whose sums a task of a weight gradient has at a time")
WINOGRAD_UNIT_SHARE = Rate(12.0, "times the second cache", "maximum points of all tiles of a task of a weight gradient")
WINOGRAD_RESULTS = Count(64, "results", "maximum result channels of a cache block if tiles are few")

# -- limits of kernels -------------------------------------------------------------------------------------------------

MAX_GROUP_CHANNELS = Count(16, "channels", "maximum channels of a group in kernels whose lanes are groups")
MAX_ADDRESSES = Count(7, "taps", "maximum taps of a micro-tile with dilation, because each tap needs an address")
FEWER_ROWS_WEIGHTS = Count(5, "rows", "heights that are tried, from the maximum down: one may divide the channels")
DEPTHWISE_MAX_OUTER_TAPS = Count(5, "taps", "maximum outer taps in the depthwise kernel, because each needs a pointer")

# -- prefetch ----------------------------------------------------------------------------------------------------------

PREFETCH_POSITIONS = Count(8, "positions", "distance at which micro-tiles prefetch B; 0.80 to 0.87 of the peak")
PREFETCH_PACK_POSITIONS = Count(16, "positions", "distance at which packing prefetches strided positions")
PREFETCH_PACK_BYTES = Count(8192, "bytes", "distance at which packing prefetches contiguous memory")
PREFETCH_TRANSPOSE_BYTES = Count(8192, "bytes", "distance at which transposing packing prefetches, of all channels")
PREFETCH_WEIGHTS_BYTES = Count(512, "bytes", "distance at which packing prefetches weights that it transposes")
PREFETCH_MAX_CHANNELS = Count(32, "channels", "channels of a prefetched panel; more would evict packed data")
PREFETCH_MIN_STRIDE_BYTES = Count(8192, "bytes", "minimum stride of channels that are prefetched")
PREFETCH_CONFLICT_BYTES = Count(2048, "bytes", "no prefetch at strides that are multiples of this: it would evict data")
PREFETCH_ROWS = Count(4, "rows", "distance at which Winograd prefetches the weights that it stores by taps")
PREFETCH_BLOCKS = Count(2, "blocks", "distance at which the spatial stencil prefetches inputs, in blocks of lines")
PREFETCH_MAX_LINE_BYTES = Count(8192, "bytes", "longest line that the spatial stencil prefetches")
PREFETCH_DEPTHWISE_BYTES = Count(4096, "bytes", "distance at which the depthwise kernel prefetches")
DEPTHWISE_PANELS = Count(2, "panels", "panels of groups per pass over several micro-tiles of taps; a power of two")
