"""The attributes of an operator's call as one value, which stands for the last arguments of the operator's schema."""

from __future__ import annotations

from typing import Any, NamedTuple

from convgrad.spec.winograd.choice import DIRECT
from convgrad.torch.extents import Ints, Pads

_PADDED = "data_gradient"  # the only operator whose schema has output_padding


class OpAttributes(NamedTuple):
    """The attributes of an operator's call, in the order of the schemas.

    If a value of ``pads_end`` is negative, no tap reads the last positions of src. Derivatives of transposed layers
    need such values. If the pads are None, dst has the extents of src, as with padding="same".
    """

    strides: Ints
    pads_begin: Ints | None
    pads_end: Ints | None
    output_padding: Ints | None
    dilations: Ints
    groups: int
    channels_last: bool
    max_error: float = DIRECT
    tune: bool = False

    @property
    def pads(self) -> Pads:
        """The pads at the begin and at the end."""
        return self.pads_begin, self.pads_end

    def padded(self, pads: Pads, output_padding: Ints | None = None) -> OpAttributes:
        """Return the attributes with other pads."""
        strides, _, _, _, dilations, groups, last, max_error, tune = self
        return OpAttributes(strides, *pads, output_padding, dilations, groups, last, max_error, tune)


def flat(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of an operator's schema from arguments that may end with OpAttributes."""
    layer = args[-1]
    if not isinstance(layer, OpAttributes):
        return args
    return (*args[:-1], *layer) if name == _PADDED else (*args[:-1], *layer[:3], *layer[4:])


def gathered(name: str, heads: int, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the first arguments of an operator's schema, and the others, if there are any, as OpAttributes."""
    first, others = args[:heads], args[heads:]
    if not others:
        return first
    attributes = others if name == _PADDED else (*others[:3], None, *others[3:])
    return (*first, OpAttributes(*attributes))
