"""JAX's convolutions as a function to judge: ``convgrad verify --collection hard --call judge_jax:run`` run here.

All roles are JAX's one convolution ``small = conv(large, weights)`` or its derivative. ``run`` is called as
``convgrad.run`` is, with all attributes filled in; JAX knows the layouts, and takes any pads, negative ones too.
"""

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)


def run(operator, *operands, data_format, **attributes):
    """Return what JAX answers."""
    if operator == "BiasAddBackward":
        rank = operands[0].ndim
        summed = [axis for axis in range(rank) if axis != (1 if data_format == "NCX" else rank - 1)]
        return np.asarray(jax.numpy.asarray(operands[0]).sum(summed))
    transposed, _, role = operator.removeprefix("Conv").partition("Backward")
    call = Call(data_format, **attributes)
    given = [jax.numpy.asarray(a) for a in operands if not isinstance(a, tuple)]
    shape = next((a for a in operands if isinstance(a, tuple)), None)
    if role == "Weights":
        large, small = reversed(given) if transposed == "Transpose" else given
        like = jax.numpy.zeros(shape, large.dtype)
        function = call.function(call.extents(large), call.extents(small), like)
        return np.asarray(jax.vjp(lambda weights: function(large, weights), like)[1](small)[0])
    data, weights, *bias = given
    if (role == "Data") == (transposed == "Transpose"):  # to the small side
        padding = call.output_padding if role else 0
        small = (call.extents(data) + call.pads - call.effective(weights) - padding) // call.strides + 1
        result = call.function(call.extents(data), small, weights)(data, weights)
    else:
        shape = shape or call.large_shape(data, weights)
        large = jax.numpy.zeros(shape, data.dtype)
        function = call.function(call.extents(large), call.extents(data), weights)
        result = jax.vjp(lambda large: function(large, weights), large)[1](data)[0]
    if bias:
        result += bias[0].reshape([-1 if axis == call.channel % result.ndim else 1 for axis in range(result.ndim)])
    return np.asarray(result)


class Call:
    """A convolution's attributes as JAX takes them."""

    def __init__(self, data_format, *, strides, dilations, pads_begin, pads_end, groups, weights_format, **others):
        self.strides, self.dilations, self.groups = np.array(strides), np.array(dilations), groups
        self.begin, self.pads = np.array(pads_begin), np.add(pads_begin, pads_end)
        self.output_padding = np.array(others.get("output_padding") or [0] * len(strides))
        letters = "XYZWVU"[: len(strides)]
        self.data = f"NC{letters}" if data_format == "NCX" else f"N{letters}C"
        self.weights = f"{letters}IO" if weights_format.startswith("X") else f"OI{letters}"
        self.channel, self.axes = self.data.index("C"), [self.data.index(letter) for letter in letters]

    def extents(self, data):
        """Return the spatial extents of data."""
        return np.array(data.shape)[self.axes]

    def effective(self, weights):
        """Return the extents that the dilated kernel covers."""
        taps = [extent for extent, letter in zip(weights.shape, self.weights, strict=True) if letter not in "IO"]
        return self.dilations * (np.array(taps) - 1) + 1

    def function(self, large, small, weights):
        """Return small = conv(large, weights) for these extents."""
        behind = self.strides * (small - 1) + self.effective(weights) - large - self.begin
        pads = [(int(begin), int(end)) for begin, end in zip(self.begin, behind, strict=True)]
        return lambda x, w: jax.lax.conv_general_dilated(
            x,
            w,
            tuple(self.strides.tolist()),
            pads,
            rhs_dilation=tuple(self.dilations.tolist()),
            dimension_numbers=(self.data, self.weights, self.data),
            feature_group_count=self.groups,
        )

    def large_shape(self, data, weights):
        """Return the shape that a transposed convolution makes of data."""
        shape = np.array(data.shape)
        shape[self.axes] = (
            self.strides * (self.extents(data) - 1) + self.effective(weights) - self.pads + self.output_padding
        )
        shape[self.channel] = weights.shape[self.weights.index("I")] * self.groups
        return tuple(map(int, shape))
