"""BiasAdd and its gradient, on dask arrays."""

from __future__ import annotations

from typing import Any, Never

from convgrad.dask.call import Operand, call
from convgrad.functional.keywords import refuses_keywords
from convgrad.functional.types import DType


@refuses_keywords
def bias_add(
    src: Operand,
    bias: Operand,
    *,
    data_format: str = "NXC",
    dtype: DType | None = None,
    threads: int = 1,
    **unknown: Never,
) -> Any:
    """Add one value per channel: dst[n, p, c] = src[n, p, c] + bias[c].

    Shapes (NXC): src (N, X..., C), bias (C,); result as src. Attributes, errors and bits are those of
    :func:`convgrad.bias_add`.

    Follows BiasAdd of the oneDNN developer guide.

    >>> import numpy as np
    >>> import dask.array as da
    >>> src = da.zeros((2, 1, 2), dtype="f4", chunks=(1, 1, 2))
    >>> bias_add(src, np.array([1, 2], "f4")).compute().ravel().tolist()
    [1.0, 2.0, 1.0, 2.0]
    """
    return call("BiasAdd", (src, bias), {"data_format": data_format, **unknown}, dtype=dtype, threads=threads)


@refuses_keywords
def bias_add_backward(
    diff_dst: Operand,
    *,
    data_format: str = "NXC",
    dtype: DType | None = None,
    threads: int = 1,
    **unknown: Never,
) -> Any:
    """Differentiate by the bias: diff_bias[c] = sum over n, p of diff_dst[n, p, c].

    Shapes (NXC): diff_dst (N, X..., C); result (C,). Attributes, errors and bits are those of
    :func:`convgrad.bias_add_backward`.

    Follows BiasAddBackward of the oneDNN developer guide.

    >>> import dask.array as da
    >>> diff_dst = da.ones((2, 3, 3, 2), dtype="f4", chunks=(1, 3, 3, 2))
    >>> bias_add_backward(diff_dst).compute().ravel().tolist()
    [18.0, 18.0]
    """
    return call("BiasAddBackward", (diff_dst,), {"data_format": data_format, **unknown}, dtype=dtype, threads=threads)
