"""Convolutions of JAX arrays: JAX can trace, compile, batch and differentiate them any number of times.

Install JAX with ``pip install jax``. ``import convgrad`` alone does not load JAX.
"""

try:
    from jax import __version__, __version_info__
except ImportError as error:
    raise ImportError("convgrad.jax needs JAX: pip install jax") from error
if __version_info__ < (0, 10):
    raise ImportError(f"convgrad.jax needs JAX 0.10 or later; got {__version__}")

from convgrad.jax import handler, lax
from convgrad.jax.lax import conv_general_dilated
from convgrad.jax.operators import (
    bias_add,
    bias_add_backward,
    conv_transpose,
    conv_transpose_backward_data,
    conv_transpose_backward_weights,
    convolution,
    convolution_backward_data,
    convolution_backward_weights,
)
from convgrad.jax.reproducible import reproducible
from convgrad.jax.run import run

handler.register()  # at import, because a program that another process exported may call it

__all__ = [
    "bias_add",
    "bias_add_backward",
    "conv_general_dilated",
    "conv_transpose",
    "conv_transpose_backward_data",
    "conv_transpose_backward_weights",
    "convolution",
    "convolution_backward_data",
    "convolution_backward_weights",
    "lax",
    "reproducible",
    "run",
]
