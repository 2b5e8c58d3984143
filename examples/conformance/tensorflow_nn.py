"""TensorFlow: ``convgrad conformance tensorflow_nn --isolate`` judges tf.nn, with gradients by tf.GradientTape."""

import numpy as np
import tensorflow as tf


def run(operator, *operands, data_format, weights_format="XIO", **how):
    name, _, wanted = operator.partition("Backward")
    if data_format != "NXC" or weights_format[0] != "X":
        raise NotImplementedError("TensorFlow's CPU kernels take channels last")
    given = [tf.constant(np.ascontiguousarray(array)) for array in operands if not isinstance(array, tuple)]
    try:
        if name == "BiasAdd":
            at = tf.zeros(operands[0].shape[-1:], given[0].dtype)
            return gradient(lambda b: tf.nn.bias_add(tf.zeros_like(given[0]), b), at, given[0])
        forward = convolution if name == "Convolution" else transposed
        if wanted == "Weights":
            at = tf.zeros(operands[2], given[0].dtype)
            return gradient(lambda w: forward(given[0], w, **how), at, given[1])
        if wanted:
            shape = operands[2] if operands[2:] else src_shape(given[0].shape, given[1].shape, **how)
            return gradient(lambda x: forward(x, given[1], **how), tf.zeros(shape, given[0].dtype), given[0])
        result = forward(given[0], given[1], **how)
    except tf.errors.UnimplementedError as error:
        raise NotImplementedError(error.message.splitlines()[0]) from error
    if given[2:]:
        raise NotImplementedError("tf.nn.convolution has no bias")
    return result.numpy()


def gradient(function, at, diff):
    with tf.GradientTape() as tape:
        tape.watch(at)
        result = function(at)
    return tape.gradient(result, at, diff).numpy()


def convolution(x, w, *, strides, pads_begin, pads_end, dilations, **others):
    if max(strides) > 1 < max(dilations) or (len(strides) == 3 and x.shape[-1] != w.shape[-2]):
        raise NotImplementedError("strides with dilations, and groups of three axes")
    x = tf.pad(x, [(0, 0), *zip(pads_begin, pads_end, strict=True), (0, 0)])
    return tf.nn.convolution(x, w, strides, "VALID", dilations=dilations)


def transposed(x, w, *, strides, pads_begin, pads_end, dilations, groups, output_padding=None, **others):
    extra = output_padding or [0] * len(strides)
    if groups != 1 or any(o > e for o, e in zip(extra, pads_end, strict=True)):
        raise NotImplementedError("tf.nn.conv_transpose has one group and no output padding")
    sizes = zip(x.shape[1:-1], w.shape, strides, dilations, strict=False)
    full = [s * (n - 1) + d * (k - 1) + 1 for n, k, s, d in sizes]
    y = tf.nn.conv_transpose(x, w, [x.shape[0], *full, w.shape[-2]], strides, "VALID", dilations=dilations)
    ends = zip(pads_begin, full, pads_end, extra, strict=True)
    return y[(slice(None), *(slice(b, n - e + o) for b, n, e, o in ends))]


def src_shape(dy, w, *, strides, pads_begin, pads_end, dilations, output_padding=None, **others):
    """Return the shape of the input of a transposed convolution."""
    extra = output_padding or [0] * len(strides)
    sizes = zip(dy[1:-1], w[:-2], strides, pads_begin, pads_end, dilations, extra, strict=True)
    return [dy[0], *((n + b + e - o - d * (k - 1) - 1) // s + 1 for n, k, s, b, e, d, o in sizes), w[-1]]
