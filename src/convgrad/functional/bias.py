"""BiasAdd and its gradient."""

from __future__ import annotations

from typing import Never

from numpy.typing import ArrayLike

from convgrad.functional.call import call
from convgrad.functional.keywords import refuses_keywords
from convgrad.functional.types import Array, DType


@refuses_keywords
def bias_add(
    src: ArrayLike,
    bias: ArrayLike,
    *,
    data_format: str = "NXC",
    dtype: DType | None = None,
    out: Array | None = None,
    accumulate: bool = False,
    threads: int | None = None,
    activation: str | None = None,
    **unknown: Never,
) -> Array:
    """Add one value per channel: dst[n, p, c] = src[n, p, c] + bias[c].

    Shapes (NXC): src (N, X..., C) with any number of spatial axes, none included; bias (C,); result as src. The options
    are those of :func:`convolution`.

    ``activation="relu"`` makes what is at most 0 a +0, after bias and old value and before the one rounding; NaN stays.

    Raises:
        InvalidShapeError: bias is not 1-D of C, or src has fewer than two axes.
        InvalidDataTypeError: operands of unsupported or of different types.

    Follows BiasAdd of the oneDNN developer guide.

    >>> import numpy as np
    >>> bias_add(np.zeros((1, 2, 2), np.float32), np.array([1, 2], np.float32)).tolist()
    [[[1.0, 2.0], [1.0, 2.0]]]
    """
    attributes = {"data_format": data_format, **unknown}
    return call(
        "BiasAdd", (src, bias), attributes, dtype=dtype, out=out, accumulate=accumulate, threads=threads,
        activation=activation,
    )  # fmt: skip


@refuses_keywords
def bias_add_backward(
    diff_dst: ArrayLike,
    *,
    data_format: str = "NXC",
    dtype: DType | None = None,
    out: Array | None = None,
    accumulate: bool = False,
    threads: int | None = None,
    **unknown: Never,
) -> Array:
    """Differentiate by the bias: diff_bias[c] = sum over n, p of diff_dst[n, p, c].

    Shapes (NXC): diff_dst (N, X..., C) with any number of spatial axes, none included; result (C,). The options are
    those of :func:`convolution`.

    Raises:
        InvalidShapeError: diff_dst has fewer than two axes.
        InvalidDataTypeError: diff_dst is of an unsupported type.

    Follows BiasAddBackward of the oneDNN developer guide.

    >>> import numpy as np
    >>> bias_add_backward(np.ones((2, 3, 3, 2), np.float32)).tolist()
    [18.0, 18.0]
    """
    attributes = {"data_format": data_format, **unknown}
    return call(
        "BiasAddBackward", (diff_dst,), attributes, dtype=dtype, out=out, accumulate=accumulate, threads=threads
    )
