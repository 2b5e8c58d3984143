"""Tests of the functions on NumPy's arrays."""
