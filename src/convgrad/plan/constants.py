"""Every number that was fitted rather than derived, once: its value, its unit, the run that gave it, what it is.

On another machine these are what to measure again. A run is a file of ``benchmarks/results``; most were found by trying
values by hand, and say so. ``docs/performance.md`` has what the choices made with them are worth.
"""

from __future__ import annotations

from typing import Self

BY_HAND = "by hand"


class Fitted:
    """What is known of a number: its unit, the run that gave it, what it is."""

    def __init__(self, value: float, unit: str, run: str, about: str) -> None:
        self.unit, self.run, self.about = unit, run, about


class Rate(Fitted, float):
    """A fitted number. It counts and compares as a number does."""

    def __new__(cls, value: float, *_: str) -> Self:
        """Return the number."""
        return super().__new__(cls, value)


class Count(Fitted, int):
    """A fitted whole number."""

    def __new__(cls, value: int, *_: str) -> Self:
        """Return the number."""
        return super().__new__(cls, value)


def fitted() -> dict[str, Rate | Count]:
    """Return all of them by name, in the order they stand here.

    >>> call = fitted()["CALL_NS"]
    >>> float(call), call.unit, call.run
    (20000.0, 'ns', 'fixed_costs.csv')
    """
    return {name: value for name, value in globals().items() if isinstance(value, Rate | Count)}


# -- a machine -------------------------------------------------------------------------------------------------------

GHZ = Rate(3.3, "cycles/ns", BY_HAND, "times are compared with one another, and with what is worth waking threads for")
BYTES_PER_NS = Rate(20.0, "bytes/ns", BY_HAND, "a core's, where operands usually lie: a shared cache or memory")
CACHE_WAYS = Count(8, "ways", BY_HAND, "the fewest of the caches in use")

# -- a call ----------------------------------------------------------------------------------------------------------

CALL_NS = Rate(20_000.0, "ns", "fixed_costs.csv", "checks, and the way into compiled code")
WAKE_NS = Rate(15_000.0, "ns", "after_a_rest.csv", "a thread that looks is there in 3 microseconds, one asleep in 50")
IMBALANCE = Rate(0.1, "of a task", BY_HAND, "threads seldom run alike")
REMOTE_READ_FACTOR = Rate(5.0, "times", BY_HAND, "longer, to read what another core has written")
SMALL_PROBLEM = Count(
    1 << 16, "multiply-adds", BY_HAND, "below, a kernel that other layers use too is as good, and compiled"
)
MAX_KERNELS_PLANNED = Count(4, "kernels", BY_HAND, "the most promising ones are planned in full")

# -- threads that wait ------------------------------------------------------------------------------------------------

LOOKS = Count(20_000, "looks", "after_a_rest.csv", "at a mailbox, half a ms; 4,000 lost calls of 0.3 ms in succession")
CALLER_LOOKS = Count(4_000, "looks", BY_HAND, "by a caller who waits, 0.1 ms; then others may have the interpreter")
MIN_WAKE_MS = Rate(0.4, "ms", "after_a_rest.csv", "a shorter call wakes nobody who sleeps: that takes 0.05 to 0.15 ms,")
SUCCESSION_S = Rate(1e-3, "s", BY_HAND, "but where another began so shortly before: the next finds them looking")
CALLS_WEIGHED = Count(8, "calls", BY_HAND, "as weights fall off, of those that had to wait for help")
MAX_ALONE = Count(32, "calls", BY_HAND, "without help for one that has it, if all waited")

# -- a tile ----------------------------------------------------------------------------------------------------------

MIN_STEP_CYCLES = Rate(4.0, "cycles", BY_HAND, "a term, as a sum waits for its last multiply-add")
STEP_CYCLES = Rate(0.3, "cycles", BY_HAND, "a term, or a position of a strip, for its loop")
LOAD_CYCLES = Rate(0.58, "cycles", BY_HAND, "a load of a row's item; a vector of lanes counts twice")
L2_LINE_CYCLES = Rate(1.2, "cycles", BY_HAND, "a line that comes from the second cache,")
MAX_TAPS_IN_L1 = Count(8, "taps", BY_HAND, "at most, find it in the first again")
SET_CONFLICT_FACTOR = Rate(1.15, "times", BY_HAND, "longer, where rows in place lie apart and taps meet them again")
SET_CONFLICT_BYTES = Count(1024, "bytes", BY_HAND, "apart: of a cache of 64 lines a way four sets are met")
SET_CONFLICT_CHANNELS = Count(64, "channels", BY_HAND, "or fewer of the rows do not crowd the sets of a cache")
UNALIGNED_LOAD_CYCLES = Rate(2.4, "cycles", BY_HAND, "a load of operands as they are: most are across two lines")
TAPS_LOAD_CYCLES = Rate(0.52, "cycles", BY_HAND, "a load of a tile of several taps")
GROUP_REGISTER_SHARE = Rate(0.65, "of the registers", BY_HAND, "with more sums, tiles of groups are slower,")
GROUP_REGISTER_FACTOR = Rate(1.1, "times", BY_HAND, "so much")
LINE_START_CYCLES = Rate(
    12.0, "cycles", BY_HAND, "to begin a line or a strip, or, more, a position where taps are absent"
)
SEGMENT_CYCLES = Rate(8.0, "cycles", BY_HAND, "to begin a segment, or to list one")
COMBINE_CYCLES = Rate(1.5, "cycles", BY_HAND, "to join a vector of sums")

# -- strips ----------------------------------------------------------------------------------------------------------

DEPTHWISE_POSITIONS = Count(64, "positions", BY_HAND, "of a row that strips read at a time")
BORDER_TAP_CYCLES = Rate(3.0, "cycles", BY_HAND, "more, a tap, a position where some are absent")
DEPTHWISE_REREAD_FACTOR = Rate(
    1.4, "times", BY_HAND, "longer, where lines crowd the first cache, or tiles of taps read them again"
)

# -- packs and output ------------------------------------------------------------------------------------------------

PACK_CHANNELS_NS = Rate(0.08, "ns", BY_HAND, "an element in cache, where a position's channels are neighbours")
PACK_SPATIAL_NS = Rate(0.2, "ns", BY_HAND, "an element in cache, where a channel's positions are")
PACK_STRIDED_NS = Rate(1.5, "ns", BY_HAND, "an element, one by one")
PACK_SPREAD_NS = Rate(0.015, "ns", BY_HAND, "more, an element, for each channel of a group that lanes are picked from")
PACK_PAIR_NS = Rate(
    0.03, "ns", BY_HAND, "more, an element, to become a word of two terms of bf16 and have its size looked at"
)
PAIR_ADDS = Rate(4.0, "multiply-adds", "pair_adds.csv", "as long as one of a pair; on Zen 4 and later one is")
PACK_PAIRS_CHANNELS_NS = Rate(0.05, "ns", BY_HAND, "an element, packed into words of every second position,")
PACK_PAIRS_SPATIAL_NS = Rate(0.12, "ns", BY_HAND, "or transposed into them")
MIN_EXPONENT_NS = Rate(0.015, "ns", BY_HAND, "an element in place, to have its size looked at")
SEGMENT_BYTES = Rate(96.0, "bytes", BY_HAND, "what a piece of memory of its own costs, as bytes of a longer one")
STORE_LANES_NS = Rate(0.3, "ns", BY_HAND, "an output, where those of a vector's lanes lie together,")
STORE_ROWS_NS = Rate(0.65, "ns", BY_HAND, "those of a tile's rows,")
STORE_TAPS_NS = Rate(0.4, "ns", BY_HAND, "those of its taps,")
STORE_STRIDED_NS = Rate(1.0, "ns", BY_HAND, "or none of them")
MIN_STORE_LINE = Count(4, "outputs", BY_HAND, "that lie together: fewer are written as fast one by one")

# -- cuts ------------------------------------------------------------------------------------------------------------

MAX_SCRATCH_BYTES = Count(64 << 20, "bytes", BY_HAND, "of all threads; a plan that takes more counts")
SCRATCH_FACTOR = Rate(10.0, "times", BY_HAND, "as long")
MAX_PACK_ALL_BYTES = Count(8 << 20, "bytes", BY_HAND, "of packed operands, where all are packed at once")
MAX_INDIRECTION_FACTOR = Count(16, "times", BY_HAND, "that tables of places have what an image meets")
MAX_B_STRIDE_BYTES = Count(256, "bytes", BY_HAND, "from a position to the next where lanes are read in place")
MAX_B_READS = Count(5, "tiles", BY_HAND, "that read the same lanes in place, at most: packed, they are whole lines")

# -- forwards and data gradients --------------------------------------------------------------------------------------

PACK_TAPS_NS = Rate(0.3, "ns", BY_HAND, "a weight, where a channel's taps are neighbours")
REGION_CYCLES = Rate(150.0, "cycles", BY_HAND, "to begin a box of positions,")
MICRO_TILE_ROW_CYCLES = Rate(6.0, "cycles", BY_HAND, "a position under a panel, to begin and to finish its tile")
POSITIONS_IMBALANCE = Rate(0.04, "of a task", BY_HAND, "threads seldom run alike; larger tasks read less again")
PANELS_SHARE = Rate(0.5, "of the second cache", BY_HAND, "for the weights that are packed at a time")
PANELS_BYTES = Count(16 << 20, "bytes", BY_HAND, "of weights at a time, where data would be packed again for each")
PANEL_L2_MISS_FACTOR = Rate(
    0.5, "times", BY_HAND, "longer, for weights of a panel that exceed the second cache by as much"
)
PASS_SHARE = Rate(0.4, "of the second cache", BY_HAND, "for the weights that all tiles of a box meet before others")
MAX_OPEN_SUMS_BYTES = Count(4 << 20, "bytes", BY_HAND, "of sums that wait for more blocks, at most")
OUTPUT_BLOCK_SHARE = Rate(0.25, "of the second cache", BY_HAND, "for the data of a slab of positions")
KN2ROW_SHARE = Rate(0.3, "of the second cache", BY_HAND, "for the products of taps that outputs gather")
KN2ROW_PACKED_SHARE = Rate(
    0.125, "of the second cache", BY_HAND, "for the data, or the weights, that products are made of"
)
SPATIAL_FMA_CYCLES = Rate(0.36, "cycles", BY_HAND, "a product of a vector: a load may wait while others multiply")
SPATIAL_LINE_CYCLES = Rate(1.5, "cycles", BY_HAND, "a line of a tile of planes, under a term,")
SPATIAL_VECTOR_CYCLES = Rate(3.0, "cycles", BY_HAND, "and each of its vectors but one")
KN2ROW_MIN_POSITIONS = Count(
    256, "positions", BY_HAND, "of the data whose products are kept: fewer meet too much again"
)
KN2ROW_ADD_NS = Rate(1.5, "ns", BY_HAND, "a vector of products, to be gathered")
PAIR_SPLIT_FACTOR = Rate(1.03, "times", BY_HAND, "longer, where both halves of words of bf16 are taken apart")
GROUPED_MAX_ROWS = Count(14, "rows", BY_HAND, "of a window, at most,")
GROUPED_OTHER_REGISTERS = Count(4, "registers", BY_HAND, "that are neither sums nor weights,")
GROUPED_MAX_WEIGHTS = Count(48, "weights", BY_HAND, "of each lane, of taps that are unrolled,")
GROUPED_CYCLES = Rate(40.0, "cycles", BY_HAND, "to begin a window,")
GROUPED_ROW_CYCLES = Rate(2.0, "cycles", BY_HAND, "to finish a vector of its sums,")
GROUPED_ALONE_FACTOR = Rate(
    1.1, "times", BY_HAND, "longer, where a vector of groups in place is not met with its neighbour"
)
GROUPED_STORE_NS = Rate(0.25, "ns", BY_HAND, "an output, where those of full rows of lanes lie together,")
GROUPED_MAX_READ_VECTORS = Count(4, "vectors", BY_HAND, "of channels that lanes are picked from,")
GROUPED_MAX_SPREAD_REGISTERS = Count(8, "registers", BY_HAND, "for them, at most")
GROUPED_MAX_VECTORS = Count(5, "vectors", BY_HAND, "of a panel")
MAX_B_READS_POSITIONS = Count(4, "tiles", BY_HAND, "that read lanes again, or fewer, need no cache")
PREFETCH_MAX_TILE_BYTES = Count(128, "bytes", BY_HAND, "a term of what the next tile reads, where it lies in one piece")
PREFETCH_B = Count(16, "terms", BY_HAND, "of lanes in place, that tiles ask for")
MAX_OUTPUT_BLOCK_BYTES = Count(16 << 20, "bytes", BY_HAND, "of a slab's data, at most, whatever that costs")
MIN_OUTPUT_BLOCK_TILES = Count(4, "tiles", BY_HAND, "of a slab along the axis that they run along")
SMALL_KERNEL_ROWS = Count(
    8, "rows", BY_HAND, "of one vector, of the kernel for what is small: it compiles in half the time"
)
FEWER_ROWS_POSITIONS = Count(10, "rows", BY_HAND, "than most: a height that divides the positions wastes none")
INNER_AXIS_FACTOR = Rate(1.02, "times", BY_HAND, "the least waste is as good, along an axis further inside")

# -- views -----------------------------------------------------------------------------------------------------------

MAX_FOLDED_CHANNELS = Count(8, "channels", BY_HAND, "or fewer are packed with their taps, which then are channels")
SPARSE_POSITIONS = Count(8, "positions", BY_HAND, "of a row for each that is met: beyond, only those are packed")

# -- tiles ------------------------------------------------------------------------------------------------------------

WINOGRAD_SRC_CHANNELS = Count(32, "src channels", BY_HAND, "that a task has, or a multiple")
WINOGRAD_TRANSFORM_ADDS = Rate(16.0, "multiply-adds", BY_HAND, "in the time that a value at a point takes to be made")
WINOGRAD_TASK_SHARE = Rate(3.0, "times the second cache", BY_HAND, "for points and sums of a task of a weight gradient")
WINOGRAD_BLOCK_SHARE = Rate(
    0.7, "of the second cache", BY_HAND, "for points and sums of the tiles that a thread has at a time"
)
WINOGRAD_CHANNELS_A_TILE = Count(
    4, "channels", BY_HAND, "a tile, or fewer: else weights' points move more than those of tiles,"
)
WINOGRAD_MIN_TILES = Count(96, "tiles", BY_HAND, "and then as many are had at a time")
WINOGRAD_RESULTS = Count(32, "results", BY_HAND, "of few tiles: their weights' points are what the second cache holds")

# -- what a strategy takes -------------------------------------------------------------------------------------------

MAX_GROUP_CHANNELS = Count(16, "channels", BY_HAND, "a group, at most, of groups in lanes")
MAX_ADDRESSES = Count(7, "taps", BY_HAND, "of a tile under dilation: each has an address of its own")
FEWER_ROWS_WEIGHTS = Count(5, "rows", BY_HAND, "than most: a number of rows that divides what there is wastes none")
DEPTHWISE_MAX_OUTER_TAPS = Count(5, "taps", BY_HAND, "of the outer axes in a strip: each has a pointer")

# -- what is asked for ahead -----------------------------------------------------------------------------------------

PREFETCH_POSITIONS = Count(8, "positions", BY_HAND, "of a tile's lanes: worth 0.80 to 0.87 of peak")
PREFETCH_PACK_POSITIONS = Count(16, "positions", BY_HAND, "of a pack, where they lie apart,")
PREFETCH_PACK_BYTES = Count(8192, "bytes", BY_HAND, "where they lie together")
PREFETCH_TRANSPOSE_BYTES = Count(8192, "bytes", BY_HAND, "of all items of a panel that a pack transposes,")
PREFETCH_MAX_CHANNELS = Count(32, "items", BY_HAND, "of a panel, at most: what more ask for displaces what is packed,")
PREFETCH_MIN_STRIDE_BYTES = Count(
    8192, "bytes", BY_HAND, "or fewer from an item to the next: they need not be asked for,"
)
PREFETCH_CONFLICT_BYTES = Count(2048, "bytes", BY_HAND, "or multiples of it: what is asked for displaces what is read")
PREFETCH_DEPTHWISE_BYTES = Count(4096, "bytes", BY_HAND, "of a strip")
DEPTHWISE_PANELS = Count(2, "panels", BY_HAND, "of groups at a time under several tiles of taps; a power of two")
