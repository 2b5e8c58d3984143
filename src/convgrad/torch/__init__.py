"""The operators on PyTorch's tensors, with derivatives of any order; needs PyTorch: pip install "convgrad[torch]"."""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError('convgrad.torch needs PyTorch: pip install "convgrad[torch]"') from error

from convgrad.torch import grad
from convgrad.torch.fingerprint import fingerprint
from convgrad.torch.functional import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    convolution,
)
from convgrad.torch.modules import original, reproducible
from convgrad.torch.report import Report, report

__all__ = [
    "Report",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "convolution",
    "fingerprint",
    "grad",
    "original",
    "report",
    "reproducible",
]
