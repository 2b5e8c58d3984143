"""Constants of the cost model and limits of Winograd."""

from __future__ import annotations

from convgrad.plan.constants import Count, Rate

SRC_CHANNELS = Count(32, "src channels", "granularity of the src channels of a task")
TRANSFORM_ADDS = Rate(16.0, "multiply-adds", "multiply-adds in the time to transform one value")
TASK_SHARE = Rate(3.0, "times the second cache", "larger tasks of a weight gradient read from memory")
BLOCK_SHARE = Rate(0.7, "of the second cache", "maximum points and sums of a cache block of Winograd tiles")
CHANNELS_A_TILE = Count(4, "channels", "channels per tile above which weights move more bytes than tiles")
MIN_TILES = Count(96, "tiles", "tiles of a cache block above CHANNELS_A_TILE")
BLOCK = Count(64, "channels", "src and dst channels whose sums a task of a weight gradient has at a time")
UNIT_SHARE = Rate(12.0, "times the second cache", "maximum points of all tiles of a task of a weight gradient")
RESULTS = Count(64, "results", "maximum result channels of a cache block if tiles are few")
PREFETCH_ROWS = Count(4, "rows", "distance at which Winograd prefetches the weights that it stores by taps")
