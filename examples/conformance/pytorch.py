"""PyTorch: ``convgrad conformance pytorch --isolate`` judges torch.nn.functional, with gradients by autograd."""

import ml_dtypes
import numpy as np
import torch
from torch.nn import functional

BF16 = np.dtype(ml_dtypes.bfloat16)
ORDERS = {"NXC": lambda rank: [0, rank - 1, *range(1, rank - 1)]}
ORDERS |= dict.fromkeys(("XIO", "XOI"), lambda rank: [rank - 1, rank - 2, *range(rank - 2)])


def run(operator, *operands, data_format, weights_format="OIX", **how):
    name, _, wanted = operator.partition("Backward")
    data, taps = (ORDERS.get(layout, range)(operands[0].ndim) for layout in (data_format, weights_format))
    first = to_torch(operands[0], data)
    if name == "BiasAdd":
        return to_numpy(first.sum([0, *range(2, first.ndim)]), [0])
    forward = convolution if name == "Convolution" else transposed
    if wanted == "Weights":
        at = to_torch(np.zeros(operands[2], operands[0].dtype), taps).requires_grad_()
        return to_numpy(torch.autograd.grad(forward(first, at, **how), at, to_torch(operands[1], data))[0], taps)
    weights = to_torch(operands[1], taps)
    if not wanted:
        return to_numpy(forward(first, weights, *(to_torch(bias, [0]) for bias in operands[2:]), **how), data)
    shape = operands[2] if operands[2:] else np.array(src_shape(first, weights, **how))[np.argsort(data)]
    at = to_torch(np.zeros(shape, operands[0].dtype), data).requires_grad_()
    return to_numpy(torch.autograd.grad(forward(at, weights, **how), at, first)[0], data)


def convolution(x, w, b=None, *, strides, pads_begin, pads_end, dilations, groups, **others):
    if pads_begin != pads_end:
        ends = zip(reversed(pads_begin), reversed(pads_end), strict=True)
        x, pads_begin = functional.pad(x, [pad for both in ends for pad in both]), 0
    return getattr(functional, f"conv{len(strides)}d")(x, w, b, strides, pads_begin, dilations, groups)


def transposed(x, w, b=None, *, strides, pads_begin, pads_end, dilations, groups, output_padding=0, **others):
    if pads_begin != pads_end:
        raise NotImplementedError("PyTorch has one padding for both ends")
    function = getattr(functional, f"conv_transpose{len(strides)}d")
    return function(x, w, b, strides, pads_begin, output_padding, groups, dilations)


def src_shape(dy, w, *, strides, pads_begin, dilations, **others):  # the input of a transposed convolution
    sizes = zip(dy.shape[2:], w.shape[2:], strides, pads_begin, dilations, strict=True)
    return [len(dy), len(w), *((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes)]


def to_torch(array, order):
    array = array if array.flags.writeable and min(array.strides) >= 0 else array.copy()
    bits = array.view(np.int16) if array.dtype == BF16 else array
    tensor = torch.from_numpy(bits.transpose(order))
    return tensor.view(torch.bfloat16) if array.dtype == BF16 else tensor


def to_numpy(tensor, order):
    is_bf16, tensor = tensor.dtype == torch.bfloat16, tensor.detach()
    array = (tensor.view(torch.int16) if is_bf16 else tensor).numpy().transpose(np.argsort(order))
    return array.view(BF16) if is_bf16 else array
