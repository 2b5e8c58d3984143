"""The GEMM of forwards and data gradients in IR: its output-stationary loop nest, packing and micro-tiles."""
