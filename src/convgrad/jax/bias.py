"""BiasAdd and its gradient, on JAX's arrays."""

from __future__ import annotations

from typing import Never

from jax.typing import ArrayLike

from convgrad.functional.keywords import refuses_keywords
from convgrad.functional.types import DType
from convgrad.jax.call import Array, call


@refuses_keywords
def bias_add(
    src: ArrayLike,
    bias: ArrayLike,
    *,
    data_format: str = "NXC",
    dtype: DType | None = None,
    threads: int | None = None,
    **unknown: Never,
) -> Array:
    """Add one value per channel: dst[n, p, c] = src[n, p, c] + bias[c].

    Shapes (NXC): src (N, X..., C), bias (C,); result as src. Attributes, errors and bits are those of
    :func:`convgrad.bias_add`.

    Follows BiasAdd of the oneDNN developer guide.

    >>> import jax.numpy as jnp
    >>> bias_add(jnp.zeros((1, 2, 2)), jnp.array([1.0, 2])).tolist()
    [[[1.0, 2.0], [1.0, 2.0]]]
    """
    return call("BiasAdd", (src, bias), {"data_format": data_format, **unknown}, dtype=dtype, threads=threads)


@refuses_keywords
def bias_add_backward(
    diff_dst: ArrayLike,
    *,
    data_format: str = "NXC",
    dtype: DType | None = None,
    threads: int | None = None,
    **unknown: Never,
) -> Array:
    """Differentiate by the bias: diff_bias[c] = sum over n, p of diff_dst[n, p, c].

    Shapes (NXC): diff_dst (N, X..., C); result (C,). Attributes, errors and bits are those of
    :func:`convgrad.bias_add_backward`.

    Follows BiasAddBackward of the oneDNN developer guide.

    >>> import jax.numpy as jnp
    >>> bias_add_backward(jnp.ones((2, 3, 3, 2))).tolist()
    [18.0, 18.0]
    """
    return call("BiasAddBackward", (diff_dst,), {"data_format": data_format, **unknown}, dtype=dtype, threads=threads)
