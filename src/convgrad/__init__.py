"""Gradients of convolutions for NumPy, PyTorch and JAX: the operators of oneDNN Graph, with proved error bounds."""

import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from convgrad.engines.settings import kernel_cache, max_error, threads, tune
from convgrad.errors import (
    ConvgradError,
    FileError,
    GraphError,
    InvalidAttributeError,
    InvalidDataTypeError,
    InvalidOpError,
    InvalidShapeError,
    NotationError,
    UnsupportedError,
)
from convgrad.functional.backward import conv_transpose_backward, convolution_backward
from convgrad.functional.compiled import Compiled, compile
from convgrad.functional.explain import explain
from convgrad.functional.join import join
from convgrad.functional.joint import Gradients
from convgrad.functional.older_names import (
    convolution_backprop_data,
    convolution_backprop_filters,
    convolution_backprop_weights,
)
from convgrad.functional.operators import (
    bias_add,
    bias_add_backward,
    conv_transpose,
    conv_transpose_backward_data,
    conv_transpose_backward_weights,
    convolution,
    convolution_backward_data,
    convolution_backward_weights,
)
from convgrad.functional.partials import Partials, partials
from convgrad.functional.pullback import Pullback, vjp
from convgrad.functional.run import infer_shapes, run
from convgrad.functional.samples import per_sample_bias_norm2, per_sample_weights_norm2
from convgrad.functional.weighted import clip_scales, clipped_weights_sum, weighted_bias_sum, weighted_weights_sum
from convgrad.spec.operators import of_others
from convgrad.starting import deferred

if TYPE_CHECKING:
    from convgrad.verify.bound import error_bound

__version__ = "0.1.0"

__all__ = [
    "Compiled",
    "ConvgradError",
    "FileError",
    "Gradients",
    "GraphError",
    "InvalidAttributeError",
    "InvalidDataTypeError",
    "InvalidOpError",
    "InvalidShapeError",
    "NotationError",
    "Partials",
    "Pullback",
    "UnsupportedError",
    "__version__",
    "bias_add",
    "bias_add_backward",
    "clip_scales",
    "clipped_weights_sum",
    "compile",
    "conv_transpose",
    "conv_transpose_backward",
    "conv_transpose_backward_data",
    "conv_transpose_backward_weights",
    "convolution",
    "convolution_backprop_data",
    "convolution_backprop_filters",
    "convolution_backprop_weights",
    "convolution_backward",
    "convolution_backward_data",
    "convolution_backward_weights",
    "error_bound",
    "explain",
    "infer_shapes",
    "join",
    "kernel_cache",
    "max_error",
    "partials",
    "per_sample_bias_norm2",
    "per_sample_weights_norm2",
    "run",
    "threads",
    "tune",
    "vjp",
    "weighted_bias_sum",
    "weighted_weights_sum",
]

_BY_THEMSELVES = ("dask", "graph", "jax", "scale", "testing", "torch", "verify")  # modules to import by name


@deferred
def _error_bound() -> Callable[..., Any]:
    """Return ``error_bound``, because importing convgrad must stay light."""
    from convgrad.verify.bound import error_bound  # noqa: PLC0415

    return error_bound


def __getattr__(name: str) -> Any:
    """Return ``error_bound``, which is imported on first use. Raise AttributeError for other names."""
    if name == "error_bound":
        return _error_bound()
    hint = f" until something has imported it: import convgrad.{name}" if name in _BY_THEMSELVES else ""
    if name == "set_num_threads":
        hint = ". Use convgrad.threads(n) in a with statement"
    if operator := of_others(name):
        function = re.sub(r"(?<!^)(?=[A-Z])", "_", operator).lower()
        hint = f". {function} takes any number of spatial axes; PyTorch's layers are in convgrad.torch"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}", name=name, obj=sys.modules[__name__])
