"""The constants of the cost model and of tuning: each with its value, its unit, its meaning, and its origin.

Fit these numbers again for another machine. A run is a file of ``benchmarks/results``. Most numbers were found by
trying values by hand.
"""

from __future__ import annotations

from typing import Self

BY_HAND = "by hand"


class Fitted:
    """The unit, the meaning and the run of a fitted number."""

    def __init__(self, value: float, unit: str, about: str, run: str = BY_HAND) -> None:
        self.unit, self.about, self.run = unit, about, run


class Rate(Fitted, float):
    """A fitted number, which is a float."""

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


# -- a machine ---------------------------------------------------------------------------------------------------------

GHZ = Rate(3.3, "cycles/ns", "clock of a core, to compare times with each other and with the time to wake threads")
BYTES_PER_NS = Rate(20.0, "bytes/ns", "what a core reads or writes in a shared cache or memory")
CACHE_WAYS = Count(8, "ways", "associativity: the least of all caches in use")

# -- a call ------------------------------------------------------------------------------------------------------------

CALL_NS = Rate(20_000.0, "ns", "checks, and the way into compiled code", "fixed_costs.csv")
WAKE_NS = Rate(15_000.0, "ns", "3 microseconds until a thread helps that looks, 50 if it sleeps", "after_a_rest.csv")
IMBALANCE = Rate(0.1, "of a task", "how much longer the slowest thread takes")
REMOTE_READ_FACTOR = Rate(5.0, "times", "as long to read what another core has written")
SMALL_PROBLEM = Count(1 << 16, "multiply-adds", "problems below share a kernel with all small layers")
MAX_KERNELS_PLANNED = Count(4, "kernels", "the most promising kernels of a loop nest whose cuts are compared")

# -- threads that wait -------------------------------------------------------------------------------------------------

LOOKS = Count(20_000, "looks", "of an idle thread, half a ms; 4,000 lost calls of 0.3 ms", "after_a_rest.csv")
CALLER_LOOKS = Count(4_000, "looks", "of a waiting caller, 0.1 ms, before others may have the interpreter")
MIN_WAKE_MS = Rate(0.4, "ms", "shorter calls wake no sleeping thread, which takes 0.05 to 0.15 ms", "after_a_rest.csv")
SUCCESSION_S = Rate(1e-3, "s", "a call so soon after another wakes threads: the next call finds them looking")
CALLS_WEIGHED = Count(8, "calls", "horizon of the running mean of calls that waited for helpers")
MAX_ALONE = Count(32, "calls", "calls without helpers after each call with helpers, if all calls had to wait")

# -- micro-tiles -------------------------------------------------------------------------------------------------------

MIN_STEP_CYCLES = Rate(4.0, "cycles", "latency of a multiply-add: the least time of a step of K")
STEP_CYCLES = Rate(0.3, "cycles", "loop overhead of a step of K, or of a position of the depthwise kernel")
LOAD_CYCLES = Rate(0.58, "cycles", "load of a value of A; a vector of B takes two")
L2_LINE_CYCLES = Rate(1.2, "cycles", "cache line that comes from the second cache")
MAX_TAPS_IN_L1 = Count(8, "taps", "taps that find a line in the first cache after one tap has loaded it")
SET_CONFLICT_FACTOR = Rate(1.15, "times", "as long if A is read in place with a stride, and several taps read it again")
SET_CONFLICT_BYTES = Count(1024, "bytes", "strides of a multiple of this use few sets of a cache")
SET_CONFLICT_CHANNELS = Count(64, "channels", "A with at most so many channels causes no set conflicts")
UNALIGNED_LOAD_CYCLES = Rate(2.4, "cycles", "load of a vector in place: most cross a cache line")
TAPS_LOAD_CYCLES = Rate(0.52, "cycles", "load in a micro-tile of several taps")
GROUP_REGISTER_SHARE = Rate(0.65, "of the registers", "micro-tiles of groups with more sums than this are slower")
GROUP_REGISTER_FACTOR = Rate(1.1, "times", "as long for micro-tiles of groups above that share")
LINE_START_CYCLES = Rate(12.0, "cycles", "start of a line of positions; a position with absent taps starts one too")
SEGMENT_CYCLES = Rate(8.0, "cycles", "start of a segment of K, or its entry in a list")
COMBINE_CYCLES = Rate(1.5, "cycles", "addition of a stored vector of sums")

# -- direct depthwise kernel -------------------------------------------------------------------------------------------

DEPTHWISE_POSITIONS = Count(64, "positions", "positions of a line that the depthwise kernel reads at a time")
BORDER_TAP_CYCLES = Rate(3.0, "cycles", "additional time per tap at a position where some taps are absent")
DEPTHWISE_REREAD_FACTOR = Rate(1.4, "times", "as long if lines are read again from beyond the first cache")

# -- packing and store -------------------------------------------------------------------------------------------------

PACK_CHANNELS_NS = Rate(0.08, "ns", "packing of an element in cache, if channels are contiguous")
PACK_SPATIAL_NS = Rate(0.2, "ns", "packing of an element in cache, if positions are contiguous")
PACK_STRIDED_NS = Rate(1.5, "ns", "packing of an element one by one")
PACK_SPREAD_NS = Rate(0.015, "ns", "additional packing time of an element per channel that lanes select from")
PACK_PAIR_NS = Rate(0.03, "ns", "additional packing time of an element for bf16 pairs and their exponents")
PAIR_ADDS = Rate(
    4.0, "multiply-adds", "in the time of a multiply-add of a pair; one on Zen 4 and later", "pair_adds.csv"
)
PACK_PAIRS_CHANNELS_NS = Rate(0.05, "ns", "packing of an element into compact bf16 pairs, if channels are contiguous")
PACK_PAIRS_SPATIAL_NS = Rate(0.12, "ns", "packing of an element into compact bf16 pairs, if positions are contiguous")
MIN_EXPONENT_NS = Rate(0.015, "ns", "search for the minimum exponent per element that is read in place")
SEGMENT_BYTES = Rate(96.0, "bytes", "cost of a separate stretch of memory, as bytes of a contiguous read")
STORE_LANES_NS = Rate(0.3, "ns", "store of an output whose neighbours are in the lanes of a vector")
STORE_ROWS_NS = Rate(0.65, "ns", "store of an output whose neighbours are in the rows of a micro-tile")
STORE_TAPS_NS = Rate(0.4, "ns", "store of an output whose neighbours are its taps")
STORE_STRIDED_NS = Rate(1.0, "ns", "store of an output without neighbours")
MIN_STORE_LINE = Count(4, "outputs", "fewer contiguous outputs are stored as fast one by one")

# -- division of the work ----------------------------------------------------------------------------------------------

MAX_SCRATCH_BYTES = Count(64 << 20, "bytes", "scratch of all threads; plans that need more are penalised")
SCRATCH_FACTOR = Rate(10.0, "times", "penalty of plans that need more scratch")
MAX_PACK_ALL_BYTES = Count(8 << 20, "bytes", "packed operands that are packed once for all")
MAX_INDIRECTION_FACTOR = Count(16, "times", "entries of indirection tables, compared with the positions of an image")
MAX_B_STRIDE_BYTES = Count(256, "bytes", "stride between positions of a B that is read in place")
MAX_B_READS = Count(5, "tiles", "micro-tiles that read B in place; more make packing worthwhile")

# -- forward and backward data -----------------------------------------------------------------------------------------

PACK_TAPS_NS = Rate(0.3, "ns", "packing of a weight, if taps are contiguous")
REGION_CYCLES = Rate(150.0, "cycles", "start of a region")
MICRO_TILE_ROW_CYCLES = Rate(6.0, "cycles", "start and store of a row of a micro-tile, per panel")
POSITIONS_IMBALANCE = Rate(0.04, "of a task", "how much longer the slowest thread takes; larger tasks read less twice")
PANELS_SHARE = Rate(0.5, "of the second cache", "weights that are packed at a time")
PANELS_BYTES = Count(16 << 20, "bytes", "weights that are packed at a time, if data is packed for each part")
PANEL_L2_MISS_FACTOR = Rate(0.5, "times", "additional time per second cache by which a panel exceeds its share")
PASS_SHARE = Rate(0.4, "of the second cache", "weights that all micro-tiles of a region use before the next weights")
MAX_OPEN_SUMS_BYTES = Count(4 << 20, "bytes", "sums that wait for more chains")
OUTPUT_BLOCK_SHARE = Rate(0.25, "of the second cache", "data of an output block")
KN2ROW_SHARE = Rate(0.3, "of the second cache", "products of taps that outputs still need")
KN2ROW_PACKED_SHARE = Rate(0.125, "of the second cache", "data, or weights, that products are made of")
SPATIAL_FMA_CYCLES = Rate(0.36, "cycles", "multiply-add of a vector in the spatial stencil")
SPATIAL_LINE_CYCLES = Rate(1.5, "cycles", "line of a micro-tile of the spatial stencil, per K")
SPATIAL_VECTOR_CYCLES = Rate(3.0, "cycles", "vector of such a line beyond the first, per K")
KN2ROW_MIN_POSITIONS = Count(
    256, "positions", "positions whose products are stored; fewer are computed again too often"
)
KN2ROW_ADD_NS = Rate(1.5, "ns", "addition of a vector of products to its output")
PAIR_SPLIT_FACTOR = Rate(1.03, "times", "as long if the halves of bf16 pairs are multiplied separately")
GROUPED_MAX_ROWS = Count(14, "rows", "rows of a micro-tile of the grouped stencil")
GROUPED_OTHER_REGISTERS = Count(4, "registers", "that hold neither sums nor weights in the grouped stencil")
GROUPED_MAX_WEIGHTS = Count(48, "weights", "weights per lane of the taps that are unrolled")
GROUPED_CYCLES = Rate(40.0, "cycles", "start of a micro-tile of the grouped stencil")
GROUPED_ROW_CYCLES = Rate(2.0, "cycles", "store of a vector of sums of the grouped stencil")
GROUPED_ALONE_FACTOR = Rate(1.1, "times", "as long if a vector of groups is read in place without its neighbour")
GROUPED_STORE_NS = Rate(0.25, "ns", "store of an output, if those of full rows are contiguous")
GROUPED_MAX_READ_VECTORS = Count(4, "vectors", "vectors of channels that lanes are selected from")
GROUPED_MAX_SPREAD_REGISTERS = Count(8, "registers", "registers that hold selected lanes")
GROUPED_MAX_VECTORS = Count(5, "vectors", "vectors of a panel of the grouped stencil")
MAX_B_READS_POSITIONS = Count(4, "tiles", "micro-tiles that read B in place; so few need no cache")
PREFETCH_MAX_TILE_BYTES = Count(128, "bytes", "contiguous bytes per K that are prefetched for the next micro-tile")
PREFETCH_B = Count(16, "terms", "distance in K at which micro-tiles prefetch B")
MAX_OUTPUT_BLOCK_BYTES = Count(16 << 20, "bytes", "data of an output block, whatever smaller blocks cost")
MIN_OUTPUT_BLOCK_TILES = Count(4, "tiles", "micro-tiles of an output block along their axis")
SMALL_KERNEL_ROWS = Count(8, "rows", "rows of the kernel for small problems, of one vector: half the time to compile")
FEWER_ROWS_POSITIONS = Count(10, "rows", "rows below the maximum that are tried: some divide the positions evenly")
INNER_AXIS_FACTOR = Rate(1.02, "times", "wasted rows along an inner axis that are as good as the minimum")

# -- simplified loop nests ---------------------------------------------------------------------------------------------

MAX_FOLDED_CHANNELS = Count(8, "channels", "so few channels are packed together with their taps")
SPARSE_POSITIONS = Count(8, "positions", "positions of a row per position that is read; beyond, only those are packed")

# -- Winograd ----------------------------------------------------------------------------------------------------------

WINOGRAD_SRC_CHANNELS = Count(32, "src channels", "granularity of the src channels of a task")
WINOGRAD_TRANSFORM_ADDS = Rate(16.0, "multiply-adds", "multiply-adds in the time to transform a value")
WINOGRAD_TASK_SHARE = Rate(3.0, "times the second cache", "points and sums of a task of a weight gradient")
WINOGRAD_BLOCK_SHARE = Rate(0.7, "of the second cache", "points and sums of a cache block of Winograd tiles")
WINOGRAD_CHANNELS_A_TILE = Count(4, "channels", "above, the points of weights move more bytes than those of tiles")
WINOGRAD_MIN_TILES = Count(96, "tiles", "tiles of a cache block if the points of weights move more")
WINOGRAD_RESULTS = Count(32, "results", "results of a cache block if tiles are few: their weights fit the second cache")

# -- limits of kernels -------------------------------------------------------------------------------------------------

MAX_GROUP_CHANNELS = Count(16, "channels", "channels of a group in kernels whose lanes hold groups")
MAX_ADDRESSES = Count(7, "taps", "taps of a micro-tile under dilation: each has its own address")
FEWER_ROWS_WEIGHTS = Count(5, "rows", "rows below the maximum that are tried: some divide the channels evenly")
DEPTHWISE_MAX_OUTER_TAPS = Count(5, "taps", "taps of outer axes in the depthwise kernel: each has a pointer")

# -- prefetch ----------------------------------------------------------------------------------------------------------

PREFETCH_POSITIONS = Count(8, "positions", "distance at which micro-tiles prefetch B; 0.80 to 0.87 of the peak")
PREFETCH_PACK_POSITIONS = Count(16, "positions", "distance at which packing prefetches strided positions")
PREFETCH_PACK_BYTES = Count(8192, "bytes", "distance at which packing prefetches contiguous memory")
PREFETCH_TRANSPOSE_BYTES = Count(8192, "bytes", "what a panel that is transposed prefetches, of all channels together")
PREFETCH_MAX_CHANNELS = Count(32, "items", "channels of a panel that prefetch; more would evict packed data")
PREFETCH_MIN_STRIDE_BYTES = Count(8192, "bytes", "channels with a smaller stride need no prefetch")
PREFETCH_CONFLICT_BYTES = Count(2048, "bytes", "strides of a multiple of this prefetch nothing: it would evict data")
PREFETCH_DEPTHWISE_BYTES = Count(4096, "bytes", "distance at which the depthwise kernel prefetches")
DEPTHWISE_PANELS = Count(2, "panels", "panels of groups per pass over several micro-tiles of taps; a power of two")
