"""Larger than memory: operators on arrays that slice, computed piece by piece to the bits of one call."""
