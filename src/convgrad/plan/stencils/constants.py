"""Constants of the cost model and limits of the stencils."""

from __future__ import annotations

from convgrad.plan.constants import Count, Rate

SPATIAL_WEIGHT_CYCLES = Rate(0.5, "cycles", "load of a weight into all lanes in the spatial stencil")
SPATIAL_STORE_CYCLES = Rate(2.0, "cycles", "store of a vector of sums in the spatial stencil")
SPATIAL_TILE_CYCLES = Rate(48.0, "cycles", "start of a micro-tile of the spatial stencil")
SPATIAL_MAX_TERMS = Count(100, "terms", "maximum terms of a sum of the spatial stencil, which is unrolled")
SPATIAL_MAX_CHANNELS = Count(16, "channels", "maximum channels of a group in the spatial stencil")
GROUPED_MAX_ROWS = Count(14, "rows", "maximum rows of a micro-tile of the grouped stencil")
GROUPED_OTHER_REGISTERS = Count(4, "registers", "registers that hold neither sums nor weights in the grouped stencil")
GROUPED_MAX_WEIGHTS = Count(48, "weights", "maximum weights per lane of the unrolled taps of the grouped stencil")
GROUPED_CYCLES = Rate(40.0, "cycles", "start of a micro-tile of the grouped stencil")
GROUPED_ROW_CYCLES = Rate(2.0, "cycles", "store of a vector of sums of the grouped stencil")
GROUPED_ALONE_FACTOR = Rate(1.1, "times", "time if one vector of groups is read in place at a time, compared with two")
GROUPED_MAX_READ_VECTORS = Count(4, "vectors", "vectors of channels that lanes of the grouped stencil select from")
GROUPED_MAX_SPREAD_REGISTERS = Count(8, "registers", "maximum registers for selected lanes in the grouped stencil")
GROUPED_CROWDED_VECTORS = Count(4, "vectors", "vectors of a panel of a depthwise layer that has set conflicts")
GROUPED_WIDE_VECTORS = Count(
    3, "vectors", "vectors of a panel of another depthwise layer, if panels are whole and several"
)
GROUPED_WIDE_TAPS = Count(3, "taps", "maximum taps of a row of a depthwise layer with such panels")
GROUPED_NEAR_BYTES = Count(16 << 20, "bytes", "largest data and output whose lines are not prefetched before stores")
GROUPED_MAX_VECTORS = Count(5, "vectors", "maximum vectors of a panel of the grouped stencil")
PREFETCH_BLOCKS = Count(2, "blocks", "distance at which the spatial stencil prefetches inputs, in blocks of lines")
PREFETCH_MAX_LINE_BYTES = Count(8192, "bytes", "longest line that the spatial stencil prefetches")
