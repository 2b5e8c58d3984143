"""Plans of weight and bias gradients: loop nests, kernels, divisions of the work, predicted times and tables."""
