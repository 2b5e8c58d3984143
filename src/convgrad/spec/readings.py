"""Hints about shapes that do not fit: other formats, or another order of the operands, in which they would fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, permutations, product
from operator import itemgetter

from convgrad.errors import ConvgradError
from convgrad.spec.check import Attributes
from convgrad.spec.layouts import CHANNELS_FIRST
from convgrad.spec.operators import Operator
from convgrad.spec.shapes import Shape

Check = Callable[[Operator, Sequence[Shape], Attributes], object]
_FORMATS = ("data_format", "weights_format")


def other_readings(op: Operator, shapes: Sequence[Shape], attributes: Attributes, check: Check) -> str:
    """Return a hint about formats, or else another order of operands, in which the shapes pass the check; else ""."""
    ports = op.operands[: len(shapes)]
    fitting = list(_fitting(op, shapes, attributes, check, first=1))  # skip the given formats, which were refused
    swapped = _with_swapped_channels(op, shapes, attributes, check)
    if swapped or fitting:
        return f". These shapes fit {', or '.join([*swapped, *fitting])}"
    given_formats = [getattr(attributes, means) for means in _FORMATS]
    if _channels_agree(op, shapes, attributes, given_formats):  # the formats are right, the spatial extents wrong
        return ""
    movable = [n for n, port in enumerate(ports) if port.tensor != "bias" and not port.name.endswith("_shape")]
    for order in list(permutations(movable))[1:]:
        numbers = list(range(len(shapes)))  # per operand, the number of the given shape to try
        for operand, other in zip(movable, order, strict=True):
            numbers[operand] = other
        for formats in _fitting(op, itemgetter(*numbers)(shapes), attributes, check):
            as_what = ", ".join(ports[numbers.index(n)].name for n in range(len(shapes)))
            in_order = ", ".join(port.name for port in ports)
            return f". The shapes fit the order {as_what} with {formats}; the order must be {in_order}"
    return ""


def _with_swapped_channels(op: Operator, shapes: Sequence[Shape], attributes: Attributes, check: Check) -> list[str]:
    """Return, as a text or none, weights with swapped channels, if a kernel of equal extents would then fit.

    Other formats may fit too, but they take a channel for an extent of the kernel. If src and dst are both operands,
    their exchange is the more likely mistake.
    """
    ports = op.operands[: len(shapes)]
    arrays = {port.tensor: n for n, port in enumerate(ports) if not port.name.endswith("_shape")}
    if "weights" not in arrays or {"src", "dst"} <= set(arrays):
        return []
    at = arrays["weights"]
    shape = shapes[at]
    axes = (0, 1) if attributes.weights_format in CHANNELS_FIRST else (-1, -2)
    taps = shape[2:] if axes[0] == 0 else shape[:-2]
    if len(shape) <= 2 or len(set(taps)) != 1:
        return []
    turned = list(shape)
    turned[axes[0]], turned[axes[1]] = shape[axes[1]], shape[axes[0]]
    try:
        check(op, [*shapes[:at], tuple(turned), *shapes[at + 1 :]], attributes)
    except ConvgradError:
        return []
    return [f"with {ports[at].name}.swapaxes{axes}"]


def _fitting(
    op: Operator, shapes: Sequence[Shape], attributes: Attributes, check: Check, first: int = 0
) -> Iterator[str]:
    """Yield, as texts, the formats in which the shapes pass the check, the call's own formats first."""
    for read in islice(_formats(op, attributes.data_format, attributes.weights_format), first, None):
        if not _channels_agree(op, shapes, attributes, tuple(read.values())):
            continue
        try:
            check(op, shapes, replace(attributes, **read))  # type: ignore[arg-type]
        except ConvgradError:
            continue
        yield ", ".join(f"{named.name}={read[means]!r}" for means in read if (named := op.attribute(means)))


def _formats(op: Operator, *formats: str) -> tuple[dict[str, str], ...]:
    """Return the choices of the operator's data_format and weights_format, the given ones first."""
    named = {means: attribute for means in _FORMATS if (attribute := op.attribute(means))}
    ours = dict(zip(_FORMATS, formats, strict=True))
    choices = product(*(sorted(attribute.choices, key=ours[means].__ne__) for means, attribute in named.items()))
    return tuple(dict(zip(named, choice, strict=True)) for choice in choices)


def _channels_agree(op: Operator, shapes: Sequence[Shape], attributes: Attributes, formats: Sequence[str]) -> bool:
    """Return whether the operands' channels match the weights. This fast check rules out most wrong formats."""
    known = {port.tensor: shape for port, shape in zip(op.operands, shapes, strict=False) if len(shape) > 2}
    if attributes.weights_shape and len(attributes.weights_shape) > 2:
        known.setdefault("weights", attributes.weights_shape)
    if "weights" not in known:
        return True
    data, weights = (form in CHANNELS_FIRST for form in formats)
    outer, inner = known["weights"][:2] if weights else known["weights"][:-3:-1]
    wanted = {"src": inner * attributes.groups, "dst": outer}
    return all(known[t][1 if data else -1] == channels for t, channels in wanted.items() if t in known)
