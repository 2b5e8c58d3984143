"""A KernelBench problem: ``convgrad conformance kernelbench`` judges the layer of ModelNew, and its gradients.

Replace ModelNew, or import yours. The case gives the arguments of ``__init__`` and the weights.
"""

import ml_dtypes
import numpy as np
import torch

TYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


class ModelNew(torch.nn.Module):
    """The solution to judge."""

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=False):
        super().__init__()
        self.layer = torch.nn.Conv2d(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias=bias
        )

    def forward(self, x):
        """Return the convolution of x."""
        return self.layer(x)


def run(operator, *operands, data_format, weights_format="OIX", groups=1, **how):
    name, _, wanted = operator.partition("Backward")
    is_served = name == "Convolution" and data_format == "NCX" and weights_format == "OIX" and operands[0].ndim == 4
    if not is_served or how["pads_begin"] != how["pads_end"]:
        raise NotImplementedError("two axes, NCX and OIX, equal pads")
    diff_dst = None
    if not wanted:
        src, weights, *bias = map(to_torch, operands)
    elif wanted == "Data":
        diff_dst, weights = map(to_torch, operands[:2])
        src, bias = torch.zeros(operands[2], dtype=weights.dtype), []
    else:
        src, diff_dst = map(to_torch, operands[:2])
        weights, bias = torch.zeros(operands[2], dtype=src.dtype), []
    outputs, inputs, *taps = weights.shape
    model = ModelNew(
        inputs * groups, outputs, tuple(taps), how["strides"], how["pads_begin"], how["dilations"], groups, bool(bias)
    )
    model = model.to(src.dtype)
    for parameter, value in zip(model.parameters(), [weights, *bias], strict=True):
        parameter.data = value
    result = model(src.requires_grad_())
    if wanted:
        at = src if wanted == "Data" else next(model.parameters())
        (result,) = torch.autograd.grad(result, at, diff_dst)
    array = result.detach().float().numpy()
    return array.astype(ml_dtypes.bfloat16 if result.dtype == torch.bfloat16 else operands[0].dtype)


def to_torch(array):
    return torch.from_numpy(array.astype(np.float32)).to(TYPES[array.dtype.name])
