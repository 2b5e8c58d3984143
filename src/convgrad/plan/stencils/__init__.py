"""Plans of the direct kernels of small groups and of few channels: the grouped and the spatial stencil."""
