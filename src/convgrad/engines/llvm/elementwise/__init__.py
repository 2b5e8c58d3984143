"""Elementwise functions and sums: code for memory-bound operators, from the definitions of ``spec/elementwise/``."""
