"""MLX: ``convgrad conformance mlx_core`` judges mx.conv_general, with gradients by mx.vjp.

This adapter was written from MLX's documentation, and was not run. MLX has channels last, and weights in the order O,
spatial axes, I. So XIO weights are transposed.
"""

import mlx.core as mx
import numpy as np


def run(operator, *operands, data_format, weights_format="XIO", **how):
    name, _, wanted = operator.partition("Backward")
    if name != "Convolution" or data_format != "NXC" or weights_format != "XIO" or operands[0].dtype != np.float32:
        raise NotImplementedError("convolutions in f32, NXC and XIO")
    if not wanted and operands[2:]:
        raise NotImplementedError("mx.conv_general has no bias")
    given = [mx.array(np.ascontiguousarray(array)) for array in operands if not isinstance(array, tuple)]

    def forward(x, w):
        rank = w.ndim
        return mx.conv_general(
            x,
            mx.transpose(w, [rank - 1, *range(rank - 2), rank - 2]),
            stride=how["strides"],
            padding=(how["pads_begin"], how["pads_end"]),
            kernel_dilation=how["dilations"],
            groups=how["groups"],
        )

    if not wanted:
        return np.array(forward(*given))
    at = mx.zeros(operands[2])
    if wanted == "Weights":
        return np.array(mx.vjp(lambda w: forward(given[0], w), [at], [given[1]])[1][0])
    return np.array(mx.vjp(lambda x: forward(x, given[1]), [at], [given[0]])[1][0])
