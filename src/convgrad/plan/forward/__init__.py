"""Plans of forwards and data gradients: loop nests, kernels, divisions of the work, predicted times and tables."""
