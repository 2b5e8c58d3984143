"""What lies next to each other in the operands and the output of a forward or a data gradient."""

from __future__ import annotations

from convgrad.formats import FORMATS
from convgrad.plan.forward.recipe import TAPS
from convgrad.plan.forward.view import ForwardNest
from convgrad.plan.recipe import ITEMS, NEITHER, TERMS


def lies(view: ForwardNest, operand: str, output: str) -> tuple[str, str, str]:
    """Return what lies next to each other in data, weights, output."""
    size, written = FORMATS[operand].dtype.itemsize, FORMATS[output].dtype.itemsize
    last = view.axes[-1]
    data = ITEMS if view.data[1] == size or view.channels == 1 else TERMS if last.data == size else NEITHER
    _, result, term = view.weights
    if result == size or view.results == 1 == view.taps:
        weights = ITEMS
    elif term == size:
        weights = TERMS
    else:
        weights = TAPS if view.taps > 1 and view.tap_step == size else NEITHER
    if view.out[1] == written and view.results > 1:
        return data, weights, ITEMS
    if last.out == written:
        return data, weights, TERMS
    return data, weights, ITEMS if view.results == 1 else NEITHER
