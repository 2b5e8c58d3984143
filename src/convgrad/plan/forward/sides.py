"""What lies next to each other in the operands and the output of a forward or a data gradient."""

from __future__ import annotations

from convgrad.formats import FORMATS
from convgrad.plan.forward.view import ForwardNest
from convgrad.plan.recipe import CHANNELS, CHANNELS_IN, CHANNELS_OUT, SPATIAL, STRIDED, TAPS


def contiguous_axes(view: ForwardNest, operand: str, output: str) -> tuple[str, str, str]:
    """Return what lies next to each other in data, weights, output."""
    size, written = FORMATS[operand].dtype.itemsize, FORMATS[output].dtype.itemsize
    last = view.axes[-1]
    data = CHANNELS if view.data[1] == size or view.channels == 1 else SPATIAL if last.data == size else STRIDED
    _, result, term = view.weights
    if result == size or view.results == 1 == view.taps:
        weights = CHANNELS_OUT
    elif term == size:
        weights = CHANNELS_IN
    else:
        weights = TAPS if view.taps > 1 and view.tap_step == size else STRIDED
    if view.out[1] == written and view.results > 1:
        return data, weights, CHANNELS
    if last.out == written:
        return data, weights, SPATIAL
    return data, weights, CHANNELS if view.results == 1 else STRIDED
