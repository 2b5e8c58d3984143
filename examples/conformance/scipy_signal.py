"""SciPy: ``convgrad conformance scipy_signal`` judges scipy.signal.correlate and convolve in f32 and f64."""

from functools import partial

import numpy as np
from scipy.signal import convolve, correlate

ORDERS = {"NXC": lambda rank: [0, rank - 1, *range(1, rank - 1)]}
ORDERS |= dict.fromkeys(("XIO", "XOI"), lambda rank: [rank - 1, rank - 2, *range(rank - 2)])


def run(operator, *operands, data_format, weights_format="OIX", groups=1, **how):
    name, _, wanted = operator.partition("Backward")
    if name == "BiasAdd" or (not wanted and operands[2:]) or operands[0].dtype not in (np.float32, np.float64):
        raise NotImplementedError("f32 and f64 without a bias")
    data, taps = (ORDERS.get(layout, range)(operands[0].ndim) for layout in (data_format, weights_format))
    how.setdefault("output_padding", [0] * len(how["strides"]))
    shape = operands[2:] and [operands[2][axis] for axis in (taps if wanted == "Weights" else data)][2:]
    first, second = operands[0].transpose(data), operands[1].transpose(data if wanted == "Weights" else taps)
    if wanted == "Weights":  # the large side comes first
        pair = (first, second) if name == "Convolution" else (second, first)
        parts = map(partial(to_weights, shape, **how), *(np.split(array, groups, 1) for array in pair))
        return np.concatenate([*parts]).transpose(np.argsort(taps))
    function = to_small if (name == "Convolution") != bool(wanted) else to_large
    parts = map(partial(function, shape, **how), np.split(first, groups, 1), np.split(second, groups))
    return np.concatenate([*parts], 1).transpose(np.argsort(data))


def to_small(_, x, w, *, strides, pads_begin, pads_end, dilations, output_padding, **others):
    extents = np.add(x.shape[2:], pads_begin) + pads_end - output_padding
    x, w = placed(x, np.negative(pads_begin), extents), spread(w, dilations)
    results = [[correlate(image, taps, "valid", "direct")[0] for taps in w] for image in x]
    return np.array(results)[(..., *(slice(None, None, s) for s in strides))]


def to_large(extents, y, w, *, strides, pads_begin, pads_end, dilations, output_padding, **others):
    y, w = spread(y, strides), spread(w, dilations)
    full = np.array([sum(convolve(image[o, None], w[o], "full", "direct") for o in range(len(w))) for image in y])
    return placed(full, pads_begin, extents or np.add(full.shape[2:], output_padding) - pads_begin - pads_end)


def to_weights(extents, x, y, *, strides, pads_begin, dilations, **others):
    y = spread(y, strides)
    x = placed(x, np.negative(pads_begin), np.add(y.shape[2:], np.multiply(dilations, np.subtract(extents, 1))))
    channels = range(x.shape[1])
    results = [[correlate(x[:, i], y[:, o], "valid", "direct")[0] for i in channels] for o in range(y.shape[1])]
    return np.array(results)[(..., *(slice(None, None, d) for d in dilations))]


def spread(array, steps):  # zeros between the elements
    shape = [step * (extent - 1) + 1 for step, extent in zip(steps, array.shape[2:], strict=True)]
    result = np.zeros([*array.shape[:2], *shape], array.dtype)
    result[(..., *(slice(None, None, step) for step in steps))] = array
    return result


def placed(array, begin, extents):  # the elements from ``begin`` on, with zeros outside
    most = max(*np.abs(begin), *extents)
    wide = np.pad(array, [(0, 0), (0, 0), *[(most, most)] * len(extents)])
    return wide[(..., *(slice(most + b, most + b + n) for b, n in zip(begin, extents, strict=True)))]
