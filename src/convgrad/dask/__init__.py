"""Convolutions of Dask arrays. Results have the same bits as a single call, with any chunks and any workers.

Install Dask with ``pip install "dask[array,distributed]"``. ``import convgrad`` alone does not load Dask.
"""

try:
    import dask.array
    import dask.array.core
except ImportError as error:
    raise ImportError("convgrad.dask needs Dask's arrays: pip install 'dask[array,distributed]'") from error
if dask.array.Array is not dask.array.core.Array:
    raise ImportError(
        "convgrad.dask needs arrays with task graphs; got array.query-planning. Set DASK_ARRAY__QUERY_PLANNING=False"
    )

from convgrad.dask.operators import (
    bias_add,
    bias_add_backward,
    conv_transpose,
    conv_transpose_backward_data,
    conv_transpose_backward_weights,
    convolution,
    convolution_backward_data,
    convolution_backward_weights,
)
from convgrad.dask.run import run

__all__ = [
    "bias_add",
    "bias_add_backward",
    "conv_transpose",
    "conv_transpose_backward_data",
    "conv_transpose_backward_weights",
    "convolution",
    "convolution_backward_data",
    "convolution_backward_weights",
    "run",
]
