"""Plans for NVIDIA GPUs."""
