"""Winograd (Toom-Cook): its algorithms, the order of its sums, its execution, its error bounds, and its choice."""
