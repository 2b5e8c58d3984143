"""Any operator of the table by its versioned name, on dask arrays."""

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
    """Return the dask array that any operator of the table, by its versioned name, makes of dask arrays.

    Inputs, attributes and errors are those of :func:`convgrad.run`, but that one int stands for all axes. Shapes and
    attributes are checked at once. Bits are those of the plain call, whatever the chunks and whoever computes them. A
    task computes with ``threads`` threads, as a worker runs several tasks. Some inputs may be NumPy's.

    Raises:
        UnsupportedError: f64, or a machine without kernels, there or here: NumPy adds, in no order that is specified.
        InvalidShapeError: chunks whose sizes are not known.
        ConvgradError: otherwise, as :func:`convgrad.run` raises it.

    Follows the document of the operator named.

    >>> import dask.array as da
    >>> src, diff_dst = da.ones((9, 6, 1), dtype="f4", chunks=2), da.ones((9, 3, 1), dtype="f4", chunks=4)
    >>> run("ConvolutionBackwardWeights", src, diff_dst, (2, 1, 1), strides=2).compute().ravel().tolist()
    [27.0, 27.0]
    """
    return call(operator, inputs, attributes, dtype=dtype, threads=threads, activation=activation)
