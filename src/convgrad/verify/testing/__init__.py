"""Assertions for tests: results of convolutions, matrix products and linear layers, and gradients of any function."""

from convgrad.verify.testing.convolution import (
    assert_bias_gradient,
    assert_convolution,
    assert_data_gradient,
    assert_weight_gradient,
)
from convgrad.verify.testing.gradcheck import gradcheck
from convgrad.verify.testing.layers import Layer, layers
from convgrad.verify.testing.products import (
    assert_linear,
    assert_linear_data_gradient,
    assert_linear_weight_gradient,
    assert_matrix_product,
)
from convgrad.verify.testing.same_bits import Configuration, assert_batch_invariant, assert_same_bits

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
