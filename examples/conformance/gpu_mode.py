"""A gpu-mode task: ``convgrad conformance gpu_mode`` judges custom_kernel(data), where data is (input, kernel, output).

Replace custom_kernel, or import yours: ``from submission import custom_kernel``. Set DEVICE to that of your kernel.
"""

import numpy as np
import torch

DEVICE = "cpu"


def custom_kernel(data):  # the submission to judge
    source, kernel, output = data
    output[...] = torch.nn.functional.conv2d(source, kernel)
    return output


def run(operator, src, weights=None, *bias, data_format, weights_format="", groups=1, **how):
    is_plain = groups == 1 and not bias and (data_format, weights_format, src.ndim) == ("NCX", "OIX", 4)
    if operator != "Convolution" or not is_plain or src.dtype != np.float32:
        raise NotImplementedError("the forward of two axes in f32 and NCX, without groups and bias")
    if any(how["pads_begin"] + how["pads_end"]) or set(how["strides"] + how["dilations"]) != {1}:
        raise NotImplementedError("no pads, strides and dilations")
    given = [torch.from_numpy(np.ascontiguousarray(array)).to(DEVICE) for array in (src, weights)]
    extents = [n - k + 1 for n, k in zip(src.shape[2:], weights.shape[2:], strict=True)]
    output = torch.full((len(src), len(weights), *extents), torch.nan, device=DEVICE)  # unwritten elements are wrong
    return custom_kernel((*given, output)).cpu().numpy()
