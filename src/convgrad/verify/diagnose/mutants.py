"""The table of recognised defects, the simplest first, with the function that yields each row's explanations."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from convgrad.verify.diagnose import attributes, channels, missing, numbers, overwritten, partly, ranges
from convgrad.verify.diagnose.fit import DefectEffect, Fit, fits
from convgrad.verify.diagnose.make import LARGE
from convgrad.verify.diagnose.sums import Scene

Rows = Callable[[Scene], Iterator[DefectEffect]]

# A row has a description, a function that yields explanations, and a flag.
# The flag marks rows that copy operands: these rows are skipped if an operand is larger than LARGE.
# If two rows fit equally well, the first gives the name.
TABLE: tuple[tuple[str, Rows, bool], ...] = (
    ("NaN or infinity multiplied by padding", attributes.padding_multiplied, True),
    ("NaN or infinity left out", numbers.swallowed, True),
    ("results rounded, truncated, saturated, flushed", numbers.rounded, False),
    ("sign, scale", numbers.scaled, False),
    ("bias, old contents", numbers.added, False),
    ("output_padding", missing.output_padding_dropped, True),
    ("results not written", missing.unwritten, False),
    ("operands rounded or flushed", numbers.operands, True),
    ("direction of the kernel", attributes.kernel_flipped, False),
    ("strides, dilations, pads", attributes.misread, False),
    ("axes exchanged", attributes.axes_swapped, False),
    ("positions not read", missing.unread, True),
    ("images or channels not summed", missing.unsummed, True),
    ("positions not summed", missing.unsummed_positions, True),
    ("taps", missing.tap_missing, True),
    ("ranges of loops summed twice or left out", ranges.ranges, False),
    ("results added twice", ranges.written_twice, False),
    ("only the last terms summed", overwritten.overwritten, True),
    ("values of padding", attributes.pads_filled, True),
    ("padded input of a transposed layer", attributes.input_padded, True),
    ("groups", channels.groups, True),
    ("strides of views", channels.strides, False),
    ("shifts", channels.shifted, False),
    ("roles of operands", channels.operands_swapped, False),
    ("order of axes", channels.layouts, True),
    ("terms left out in some channels", partly.partly, True),
)


def explanations(scene: Scene) -> Iterator[DefectEffect]:
    """Yield every explanation to try for a wrong result."""
    large = _large(scene)
    for _, rows, copies in TABLE:
        if not (copies and large):
            yield from rows(scene)


def not_tried(scene: Scene) -> tuple[str, ...]:
    """Return the descriptions of the rows that are skipped because operands are large."""
    return tuple(what for what, _, copies in TABLE if copies and _large(scene))


def _large(scene: Scene) -> bool:
    return max(array.size for array in scene.operands) > LARGE


def recognised(scene: Scene) -> list[Fit]:
    """Return the defects that explain a result, the simplest first."""
    return fits(scene, explanations(scene))
