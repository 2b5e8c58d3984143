"""Toom-Cook on generated kernels: transforms as drivers of their own, and the sums of points between them."""
