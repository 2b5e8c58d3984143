"""The function ``run``: any operator by its versioned name, on dask arrays."""

from __future__ import annotations

from typing import Any

from convgrad.dask.call import call
from convgrad.functional.types import DType


def run(
    operator: str,
    *inputs: object,
    dtype: DType | None = None,
    threads: int = 1,
    activation: str | None = None,
    **attributes: object,
) -> Any:
    """Return the result of an operator, given by its versioned name, on dask arrays. The result is a dask array.

    Inputs, attributes and errors are those of :func:`convgrad.run`, but one int applies to all axes. Shapes and
    attributes are checked at once. Results have the bits of the plain call, for any chunks and any workers. Each task
    uses ``threads`` threads; the default is 1 because a worker runs several tasks. Some inputs may be NumPy arrays.

    Raises:
        UnsupportedError: f64, or a machine without kernels, here or at a worker, because NumPy's order of sums is not
            specified.
        InvalidShapeError: chunks of unknown size.
        ConvgradError: otherwise, as :func:`convgrad.run` raises it.

    Follows the document of the named operator.

    >>> import dask.array as da
    >>> src, diff_dst = da.ones((9, 6, 1), dtype="f4", chunks=2), da.ones((9, 3, 1), dtype="f4", chunks=4)
    >>> run("ConvolutionBackwardWeights", src, diff_dst, (2, 1, 1), strides=2).compute().ravel().tolist()
    [27.0, 27.0]
    """
    return call(operator, inputs, attributes, dtype=dtype, threads=threads, activation=activation)
