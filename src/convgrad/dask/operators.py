"""The functions of convgrad on dask arrays. The tasks of a Dask graph compute them."""

from __future__ import annotations

from convgrad.dask.call import call
from convgrad.functional import operators
from convgrad.functional.declared import on

_on_dask = on(
    call,
    "convgrad.dask",
    "At least one operand must be a dask array. The result is a dask array. Shapes and attributes are checked "
    "immediately. The bits do not depend on the chunks and are the same as from the NumPy function.",
)

convolution = _on_dask(operators.convolution)
convolution_backward_data = _on_dask(operators.convolution_backward_data)
convolution_backward_weights = _on_dask(operators.convolution_backward_weights)
conv_transpose = _on_dask(operators.conv_transpose)
conv_transpose_backward_data = _on_dask(operators.conv_transpose_backward_data)
conv_transpose_backward_weights = _on_dask(operators.conv_transpose_backward_weights)
bias_add = _on_dask(operators.bias_add)
bias_add_backward = _on_dask(operators.bias_add_backward)
