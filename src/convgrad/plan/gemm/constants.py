"""Constants of the cost model and limits of the GEMM."""

from __future__ import annotations

from convgrad.plan.constants import Count, Rate

SET_CONFLICT_BYTES = Count(1024, "bytes", "strides that are multiples of this use few sets of a cache")
SETS_BYTES = Count(4096, "bytes", "memory that uses all sets of the first cache once")
SET_WAYS = Count(8, "lines", "lines of a set of the first cache; 12 on some processors")
OUTPUT_CONFLICT_FACTOR = Rate(1.03, "times", "time of micro-tiles whose rows of the output replace each other in a set")
MIN_EXPONENT_NS = Rate(0.015, "ns", "search for the minimum exponent, per element that is read in place")
MICRO_TILE_ROW_CYCLES = Rate(6.0, "cycles", "start and store of a micro-tile's row, per panel")
TILES_L2_FACTOR = Count(2, "times", "second cache of processors with tiles of AMX, compared with ``Machine.l2_bytes``")
PANELS_SHARE = Rate(0.5, "of the second cache", "maximum weights that are packed at a time")
PANELS_BYTES = Count(16 << 20, "bytes", "maximum weights that are packed at a time, if A is packed again for each part")
PANEL_L2_MISS_FACTOR = Rate(0.5, "times", "additional time per second cache by which a panel exceeds its share")
PANELS_READ_FACTOR = Rate(2.0, "times", "time to read panels of B from a shared cache, compared with other data")
PASS_SHARE = Rate(0.4, "of the second cache", "weights that all micro-tiles of a region use in one pass")
PORTION_PASS_SHARE = Rate(
    0.75, "of the first cache", "the same for portions in vectors, whose panels have many columns"
)
MAX_OPEN_SUMS_BYTES = Count(4 << 20, "bytes", "maximum sums of ``max_tiles`` micro-tiles that wait between passes")
OUTPUT_BLOCK_SHARE = Rate(0.25, "of the second cache", "maximum A that an output block reads")
SPATIAL_BLOCK_SHARE = Rate(0.5, "of the second cache", "the same, if packing transposes positions of A")
SCATTERED_BLOCK_SHARE = Rate(
    1 / 32, "of the second cache", "A and output of a block, if panels use parts of a position"
)
SCATTERED_BLOCK_LINES = Count(2, "lines", "minimum lines of such a block, if lines have inputs in common")
SCATTERED_LINE_SHARE = Rate(0.16, "of the second cache", "maximum A and output of such a block of several lines")
SCATTERED_LINE_TAPS = Count(3, "taps", "taps along the axis of lines above which a larger block has several lines, too")
PACK_TOGETHER = Count(64, "positions", "minimum positions that a task packs, if A is packed once")
PACK_TOGETHER_BYTES = Count(1 << 16, "bytes", "packed A of a task, if A is packed once")
FAR_COPY_FACTOR = Rate(4.0, "times", "time to write and read packed A that exceeds the second cache")
PACK_ONCE_LINES = Count(4096, "lines", "maximum separate lines of an A that is packed once")
PAIR_SPLIT_FACTOR = Rate(1.03, "times", "time if a kernel splits bf16 pairs in A in place, compared with f32")
TILES_COPY_NS = Rate(0.045, "ns", "copy of an element of A, whose channels are contiguous, for tiles of AMX")
COLLECTED_STORE_FACTOR = Rate(0.2, "times", "store of an output that is collected, compared with rows of a micro-tile")
MAX_PADDED_ADDS = Rate(1.5, "times", "maximum multiply-adds with padding, compared with existing taps")
MAX_TILES_B_IN_PLACE = Count(4, "tiles", "maximum micro-tiles that read the same B in place")
PREFETCH_MAX_TILE_BYTES = Count(128, "bytes", "maximum A of the next micro-tile per K, if it is prefetched")
DISTANT_LINE_FACTOR = Rate(4.0, "times", "load of an L2 line if rows are in different pages, compared with others")
PREFETCH_PANELS = Count(2, "panels", "distance at which the first micro-tile of a panel of positions prefetches B")
MIN_OUTPUT_BLOCK_TILES = Count(4, "tiles", "minimum micro-tiles of an output block along the axis that they run along")
SMALL_KERNEL_ROWS = Count(8, "rows", "rows of the kernel for small problems; more compile twice as long")
INNER_AXIS_FACTOR = Rate(1.02, "times", "an inner axis is preferred up to this waste, compared with the least")
PREFETCH_WEIGHTS_BYTES = Count(512, "bytes", "distance at which packing prefetches weights that it transposes")
