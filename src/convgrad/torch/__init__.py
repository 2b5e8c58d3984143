"""Convolutions of PyTorch's tensors, with derivatives of any order. Install PyTorch with ``pip install torch``."""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError("convgrad.torch needs PyTorch: pip install torch") from error

from convgrad.torch import flops as _flops  # noqa: F401  (registers the formulas of flops)
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
    linear,
)
from convgrad.torch.modules import original, reproducible
from convgrad.torch.report import Report, report
from convgrad.torch.steps import Step, Steps
from convgrad.torch.training.audit import Audit, audit
from convgrad.torch.training.context import same_bits
from convgrad.torch.training.processes import PartsOfBatch, join_gradients
from convgrad.torch.training.record import Difference, Run, first_difference, record

__all__ = [
    "Audit",
    "Difference",
    "PartsOfBatch",
    "Report",
    "Run",
    "Step",
    "Steps",
    "audit",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "convolution",
    "fingerprint",
    "first_difference",
    "grad",
    "join_gradients",
    "linear",
    "original",
    "record",
    "report",
    "reproducible",
    "same_bits",
]
