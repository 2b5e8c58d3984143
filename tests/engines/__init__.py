"""Tests of the engines: the bits of generated kernels, what is compiled, threads, memory."""
