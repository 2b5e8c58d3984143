"""PyTorch's CPU convolutions as a function to judge: forwards, both gradients, transposed, the bias gradient.

In this directory,

    convgrad verify "BWD_W f32 NXC mb2ic8ih9oc16oh5kh3sh2ph1" --call judge_torch:run
    convgrad verify --collection hard --isolate --call judge_torch:run

``run`` is called as ``convgrad.run`` is, with all attributes filled in. PyTorch has one pad for both ends of an axis:
what either end has beyond it is padded, or cropped, here. Arrays are handed over as they lie: those in NXC are
channels-last tensors.
"""

import ml_dtypes
import numpy as np
import torch

BF16 = np.dtype(ml_dtypes.bfloat16)


def run(operator, *operands, data_format, **attributes):
    """Return what PyTorch answers."""
    data = DATA[data_format]
    if operator == "BiasAddBackward":
        diff_dst = to_torch(operands[0], data)
        return to_numpy(diff_dst.sum([0, *range(2, diff_dst.ndim)]))
    transposed, _, role = operator.removeprefix("Conv").partition("Backward")
    return ROLES[role](Call(transposed == "Transpose", data, **attributes), *operands)


class Call:
    """A convolution's attributes, as PyTorch takes them."""

    def __init__(self, transposed, data, *, strides, dilations, pads_begin, pads_end, groups, weights_format, **others):
        self.transposed, self.data, self.weights, self.groups = transposed, data, WEIGHTS[weights_format], groups
        self.strides, self.dilations = np.array(strides), np.array(dilations)
        self.begin, self.end = np.array(pads_begin), np.array(pads_end)
        self.both = np.minimum(self.begin, self.end)
        self.output_padding = np.array(others.get("output_padding") or [0] * len(strides))

    def arguments(self, output_padding):
        """Return what PyTorch's operators take behind the tensors."""
        lists = [self.strides, self.both, self.dilations, self.transposed, output_padding, self.groups]
        return [a.tolist() if isinstance(a, np.ndarray) else a for a in lists]

    def transposed_extents(self, extents, weights):
        """Return s(l - 1) + E - P, what a transposed convolution makes of l positions without output_padding."""
        effective = self.dilations * (np.array(weights.shape[2:]) - 1) + 1
        return self.strides * (np.array(extents) - 1) + effective - self.begin - self.end

    def widened(self, tensor, sign=1):
        """Return a tensor of the longer side with the pads beyond those at both ends added, or taken away."""
        pads = zip(self.end - self.both, self.begin - self.both, strict=True)
        flat = [sign * int(p) for end, begin in reversed(list(pads)) for p in (begin, end)]
        return torch.nn.functional.pad(tensor, flat) if any(flat) else tensor


def forward(call, src, weights, bias=None):
    x, w, b = to_torch(src, call.data), to_torch(weights, call.weights), None if bias is None else to_torch(bias)
    x = x if call.transposed else call.widened(x)
    y = torch.ops.aten.convolution(x, w, b, *call.arguments(call.output_padding))
    return to_numpy(call.widened(y, -1) if call.transposed else y, call.data)


def backward_data(call, diff_dst, weights, dst_shape=None):
    dy, w = to_torch(diff_dst, call.data), to_torch(weights, call.weights)
    if dst_shape is None:
        large = np.array(dy.shape[2:])
        extents = call.transposed_extents(large, w) + call.output_padding
        if call.transposed:  # the l of which s(l - 1) + E - P + op is no more than L
            extents = (large - call.transposed_extents([1] * large.size, w) - call.output_padding) // call.strides + 1
        channels = w.shape[0] if call.transposed else w.shape[1] * call.groups
        dst_shape = tuple(np.array([dy.shape[0], channels, *extents])[np.argsort(call.data(dy.ndim))])
    x = to_torch(np.zeros(dst_shape, diff_dst.dtype), call.data)
    return to_numpy(backward(call, dy, x, w, 0), call.data)


def backward_weights(call, src, diff_dst, weights_shape):
    x, dy = to_torch(src, call.data), to_torch(diff_dst, call.data)
    w = to_torch(np.zeros(weights_shape, src.dtype), call.weights)
    return to_numpy(backward(call, dy, x, w, 1), call.weights)


def backward(call, dy, x, w, which):
    """Return the gradient for src (0) or for weights (1)."""
    padding = 0 * call.strides
    if call.transposed:
        padding = np.array(dy.shape[2:]) - call.transposed_extents(x.shape[2:], w)
        dy = call.widened(dy)
    else:
        x = call.widened(x)
    mask = [which == 0, which == 1, False]
    gradient = torch.ops.aten.convolution_backward(dy, x, w, None, *call.arguments(padding), mask)[which]
    return gradient if which == 1 or call.transposed else call.widened(gradient, -1)


def to_torch(array, order=range):
    """Return a tensor on an array's memory, its axes in PyTorch's order; of a copy where strides are negative."""
    if min(array.strides, default=0) < 0 or not array.flags.writeable:
        array = array.copy()
    bits = array.view(np.int16) if array.dtype == BF16 else array
    tensor = torch.from_numpy(bits.transpose(order(array.ndim)))
    return tensor.view(torch.bfloat16) if array.dtype == BF16 else tensor


def to_numpy(tensor, order=range):
    bits = tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor
    array = bits.numpy().transpose(np.argsort(order(tensor.ndim)))
    return array.view(BF16) if tensor.dtype == torch.bfloat16 else array


# Where the axes of a layout stand, in PyTorch's order: batch or results, channels, extents
DATA = {"NCX": range, "NXC": lambda rank: [0, rank - 1, *range(1, rank - 1)]}
WEIGHTS = {"OIX": range, "IOX": range} | dict.fromkeys(
    ("XIO", "XOI"), lambda rank: [rank - 1, rank - 2, *range(rank - 2)]
)
ROLES = {"": forward, "Data": backward_data, "Weights": backward_weights}
