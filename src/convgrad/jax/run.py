"""The function ``run`` on JAX's arrays: it calls any operator by its versioned name."""

from __future__ import annotations

from convgrad.functional.types import DType
from convgrad.jax.call import Array, call
from convgrad.parameters import described


@described
def run(
    operator: str,
    *inputs: object,
    dtype: DType | None = None,
    threads: int | None = None,
    max_error: float | None = None,
    activation: str | None = None,
    **attributes: object,
) -> Array:
    """Run any operator by its versioned name on JAX's arrays and return its one output.

    Errors and bits are the same as in :func:`convgrad.run`. A shape input must not contain tracers.

    Keyword Args:
        threads: The largest number of threads; None is the environment's setting, or all cores. ``convgrad.threads``
            has no effect on XLA's threads. Default: None.

    Follows the document of the named operator.

    >>> import jax.numpy as jnp
    >>> src, diff_dst = jnp.ones((2, 6, 1)), jnp.ones((2, 3, 1))
    >>> run("ConvolutionBackwardWeights", src, diff_dst, (2, 1, 1), strides=[2], dilations=[1]).ravel().tolist()
    [6.0, 6.0]
    """
    return call(
        operator,
        inputs,
        attributes,
        dtype=dtype,
        threads=threads,
        lenient=False,
        max_error=max_error,
        activation=activation,
    )
