"""Constants of the cost model and limits of kn2row."""

from __future__ import annotations

from convgrad.plan.constants import Count, Rate

TAP_SUMS_SHARE = Rate(0.3, "of the second cache", "tap sums of the lines that kn2row computes together")
UNCUT_LINE_SHARES = Count(2, "shares", "tap sums of the longest line that kn2row does not cut")
PACKED_SHARE = Rate(0.125, "of the second cache", "packed data, or packed weights, of a cache block of kn2row")
MIN_POSITIONS = Count(256, "positions", "positions with stored tap sums in kn2row; fewer are recomputed too often")
ADD_NS = Rate(2.2, "ns", "addition of a vector of tap sums to its output in kn2row")
