"""The engine for NVIDIA GPUs: kernels that compute the specified sums on CUDA devices."""
