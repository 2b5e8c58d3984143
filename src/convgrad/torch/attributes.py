"""The attributes of an operator's call as one value, which stands for the last arguments of the operator's schema."""

from __future__ import annotations

from typing import NamedTuple

from convgrad.spec.winograd.choice import DIRECT
from convgrad.torch.extents import Ints, Pads


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
