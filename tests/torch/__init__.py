"""Tests of ``convgrad.torch``, and PyTorch's tensors."""
