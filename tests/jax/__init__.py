"""Tests of ``convgrad.jax``, and JAX's arrays."""
