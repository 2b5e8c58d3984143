"""The arguments of layers as the operators need them: a value per spatial axis, and pads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from convgrad.spec.check import few
from convgrad.spec.rules import refuse
from convgrad.torch import recorded
from convgrad.torch.extents import Ints, Pads

PerAxis = int | Sequence[int]


def spread(attribute: str, value: PerAxis, axes: int) -> Ints:
    """Return one value per spatial axis; an int, or the only value of a list, is used for all axes."""
    items = few("", attribute, value)
    if not isinstance(items, tuple):
        return (cast(int, items),) * axes
    return items if len(items) != 1 else items * axes


def at_end(name: str, end: PerAxis, axes: int) -> Ints:
    """Return the pads at the end, which the operators accept below 0, but a layer does not."""
    ends = spread("pads_end", end, axes)
    if ends and min(recorded.numbers(ends)) < 0:  # A4
        refuse("A4", name, f"pads_end must be at least 0; got {ends}")
    return ends


def by_name(name: str, padding: str, strides: Ints) -> Pads:
    """Return the pads at the begin and at the end for "same" or "valid"."""
    if padding == "valid":
        return (0,) * len(strides), (0,) * len(strides)
    if padding != "same":  # A5
        refuse("A5", name, f"padding must be 'same', 'valid' or integers; got {padding!r:.200}")
    if any(stride != 1 for stride in recorded.numbers(strides)):  # A5
        refuse("A5", name, f"padding='same' needs stride 1 on every axis; got {strides}")
    return None, None
