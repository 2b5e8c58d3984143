"""Operators of training steps with one order of sums: what `same_bits` puts in place of ATen's kernels."""
