"""The grouped and the spatial stencil in IR."""
