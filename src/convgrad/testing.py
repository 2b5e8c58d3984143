"""Assertions for tests: the public names of ``convgrad.verify.testing``."""

from convgrad.verify.testing import (
    Configuration,
    Layer,
    assert_batch_invariant,
    assert_bias_gradient,
    assert_convolution,
    assert_data_gradient,
    assert_linear,
    assert_linear_data_gradient,
    assert_linear_weight_gradient,
    assert_matrix_product,
    assert_same_bits,
    assert_weight_gradient,
    gradcheck,
    layers,
)

__all__ = [
    "Configuration",
    "Layer",
    "assert_batch_invariant",
    "assert_bias_gradient",
    "assert_convolution",
    "assert_data_gradient",
    "assert_linear",
    "assert_linear_data_gradient",
    "assert_linear_weight_gradient",
    "assert_matrix_product",
    "assert_same_bits",
    "assert_weight_gradient",
    "gradcheck",
    "layers",
]
