"""Plans of kn2row: one GEMM for the sums of all taps, and additions over taps."""
