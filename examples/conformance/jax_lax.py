"""JAX: ``convgrad conformance jax_lax`` judges jax.lax.conv_general_dilated, with gradients by jax.vjp."""

import jax
import jax.numpy as jnp
import numpy as np


def run(operator, *operands, data_format, weights_format="OIX", **how):
    name, _, wanted = operator.partition("Backward")
    axes = "XYZ"[: operands[0].ndim - 2]
    data = data_format.replace("X", axes)
    given = [jnp.asarray(array) for array in operands if not isinstance(array, tuple)]
    if name == "BiasAdd":
        return np.asarray(given[0].sum([axis for axis, letter in enumerate(data) if letter != "C"]))
    layouts = data, weights_format.replace("X", axes)
    function = convolution if name == "Convolution" else transposed

    def forward(x, w):
        return function(x, w, layouts, **how)

    if wanted == "Weights":
        at = jnp.zeros(operands[2], given[0].dtype)
        return np.asarray(jax.vjp(lambda w: forward(given[0], w), at)[1](given[1])[0])
    if wanted:
        shape = operands[2] if operands[2:] else src_shape(given[0], given[1], layouts, **how)
        at = jnp.zeros(shape, given[0].dtype)
        return np.asarray(jax.vjp(lambda x: forward(x, given[1]), at)[1](given[0])[0])
    if given[2:]:
        raise NotImplementedError("convolutions of JAX have no bias")
    return np.asarray(forward(*given))


def convolution(x, w, layouts, *, strides, pads_begin, pads_end, dilations, groups, **others):
    pads, numbers = [*zip(pads_begin, pads_end, strict=True)], (*layouts, layouts[0])
    lax = jax.lax.conv_general_dilated
    return lax(x, w, strides, pads, None, dilations, dimension_numbers=numbers, feature_group_count=groups)


def transposed(x, w, layouts, *, strides, dilations, groups, **others):
    data, taps = layouts
    w = jnp.transpose(w, [taps.index(letter) for letter in "IOXYZ"[: w.ndim]])
    w = jnp.flip(w, range(2, w.ndim)).reshape(groups, -1, *w.shape[1:]).swapaxes(0, 1)  # taps of groups, side by side
    w = w.reshape(len(w), -1, *w.shape[3:])
    pads = [(d * (k - 1) - b, d * (k - 1) - e + o) for k, d, b, e, o in ends(w.shape[2:], dilations, **others)]
    numbers, lax = (data, "IOXYZ"[: w.ndim], data), jax.lax.conv_general_dilated
    ones = [1] * len(strides)
    return lax(x, w, ones, pads, strides, dilations, dimension_numbers=numbers, feature_group_count=groups)


def ends(taps, dilations, *, pads_begin, pads_end, output_padding=None, **others):
    return zip(taps, dilations, pads_begin, pads_end, output_padding or [0] * len(taps), strict=True)


def src_shape(dy, w, layouts, *, strides, dilations, **others):
    """Return the shape of the input of a transposed convolution."""
    size, taps = (dict(zip(layout, array.shape, strict=True)) for layout, array in zip(layouts, (dy, w), strict=True))
    axes = "XYZ"[: len(strides)]
    pads = zip(axes, strides, ends([taps[axis] for axis in axes], dilations, **others), strict=True)
    size |= {axis: (size[axis] + b + e - o - d * (k - 1) - 1) // s + 1 for axis, s, (k, d, b, e, o) in pads}
    return [taps["I"] if letter == "C" else size[letter] for letter in layouts[0]]
