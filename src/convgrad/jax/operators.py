"""The functions of convgrad on JAX's arrays. A primitive of JAX computes them."""

from __future__ import annotations

from convgrad.functional import operators
from convgrad.functional.declared import on
from convgrad.jax.call import call

_on_jax = on(
    call,
    "convgrad.jax",
    "Operands and result are JAX arrays. Shapes and attributes are checked when JAX traces a function. The bits are "
    "the same as from the NumPy function.",
    """
Keyword Args:
    threads: The largest number of threads; None is the environment's setting, or all cores. ``convgrad.threads`` has no
        effect on XLA's threads. Default: None.
""",
)

convolution = _on_jax(operators.convolution)
convolution_backward_data = _on_jax(operators.convolution_backward_data)
convolution_backward_weights = _on_jax(operators.convolution_backward_weights)
conv_transpose = _on_jax(operators.conv_transpose)
conv_transpose_backward_data = _on_jax(operators.conv_transpose_backward_data)
conv_transpose_backward_weights = _on_jax(operators.conv_transpose_backward_weights)
bias_add = _on_jax(operators.bias_add)
bias_add_backward = _on_jax(operators.bias_add_backward)
