"""Assertions for tests: results of convolutions and their gradients."""

from convgrad.testing.convolution import (
    assert_bias_gradient,
    assert_convolution,
    assert_data_gradient,
    assert_weight_gradient,
)
from convgrad.testing.layers import Layer, layers

__all__ = [
    "Layer",
    "assert_bias_gradient",
    "assert_convolution",
    "assert_data_gradient",
    "assert_weight_gradient",
    "layers",
]
