"""Forwards and data gradients in IR: boxes of output positions, the runs of terms that they meet, tiles, packs."""
