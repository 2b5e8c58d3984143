"""Winograd's algorithm: transforms of operands into the Winograd domain, matrix products, and output transforms."""
