"""The function ``run`` on dask arrays: it calls any operator by its versioned name."""

from __future__ import annotations

from typing import Any

from convgrad.dask.call import call
from convgrad.functional.types import DType
from convgrad.parameters import described


@described
def run(
    operator: str,
    *inputs: object,
    dtype: DType | None = None,
    threads: int = 1,
    activation: str | None = None,
    **attributes: object,
) -> Any:
    """Run any operator by its versioned name on dask arrays and return its one output as a dask array.

    Errors are the same as in :func:`convgrad.run`, but you may pass one int for all axes. Some inputs may be NumPy
    arrays. Shapes and attributes are checked immediately. The result has the same bits as from :func:`convgrad.run`,
    with any chunks and any workers. ``threads`` is 1 by default because a worker runs several tasks at the same time.

    Raises:
        UnsupportedError: The type is f64, or this machine or a worker has no kernels. NumPy would then compute the
            result, and NumPy's order of sums is not specified.
        InvalidShapeError: An operand has chunks of unknown sizes.
        ConvgradError: The same errors as in :func:`convgrad.run`.

    Follows the document of the named operator.

    >>> import dask.array as da
    >>> src, diff_dst = da.ones((9, 6, 1), dtype="f4", chunks=2), da.ones((9, 3, 1), dtype="f4", chunks=4)
    >>> run("ConvolutionBackwardWeights", src, diff_dst, (2, 1, 1), strides=2).compute().ravel().tolist()
    [27.0, 27.0]
    """
    return call(operator, inputs, attributes, dtype=dtype, threads=threads, activation=activation)
