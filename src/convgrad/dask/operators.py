"""The functions of the operators on dask arrays, with convgrad's signatures, computed by the tasks of a graph."""

from __future__ import annotations

from convgrad.dask.call import call
from convgrad.functional import operators
from convgrad.functional.declared import on

_made = on(
    call,
    "convgrad.dask",
    "At least one operand is a dask array, and so is the result. Shapes and attributes are checked immediately. The "
    "bits do not depend on the chunks: they are those of the NumPy function.",
)

convolution = _made(operators.convolution)
convolution_backward_data = _made(operators.convolution_backward_data)
convolution_backward_weights = _made(operators.convolution_backward_weights)
conv_transpose = _made(operators.conv_transpose)
conv_transpose_backward_data = _made(operators.conv_transpose_backward_data)
conv_transpose_backward_weights = _made(operators.conv_transpose_backward_weights)
bias_add = _made(operators.bias_add)
bias_add_backward = _made(operators.bias_add_backward)
