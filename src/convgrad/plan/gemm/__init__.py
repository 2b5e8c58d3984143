"""Plans of the GEMM of forwards and data gradients: specifications, divisions of the work, costs and tables."""
