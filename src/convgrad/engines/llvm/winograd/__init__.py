"""Winograd on generated kernels: transforms into the domain, matrix products of points, transforms back."""
