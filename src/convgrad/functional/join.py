"""The gradient of a whole batch, computed from the unfinished sums of its parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from convgrad import arrays
from convgrad.formats import F64, FORMATS
from convgrad.functional.call import check_options, handed_over
from convgrad.functional.partials import Partials, check_neighbours, check_one_problem
from convgrad.functional.sums import add, store
from convgrad.functional.types import Array, DType
from convgrad.parameters import described
from convgrad.spec.check import as_items
from convgrad.spec.pieces import combine, total
from convgrad.spec.rules import refuse


@described
def join(
    parts: Iterable[Partials], *, dtype: DType | None = None, out: Array | None = None, accumulate: bool = False
) -> Array:
    """Return the gradient of a batch from its parts, with the bits of one plain call on the whole batch.

        diff_weights = the sum of the parts that :func:`partials` returned, in the order of the tree over the batch

    Together the parts must contain every image, from image 0 on, exactly once. Images missing at the end of the batch
    cannot be detected. The parts are not changed.

    Args:
        parts: The parts that :func:`partials` returned, in any order.

    Keyword Args:
        accumulate: Whether the old value of ``out`` is added, last, in f32, before the only rounding. Default: False.

    Raises:
        InvalidShapeError: The parts belong to different problems, an image is missing or in two parts, or a part other
            than the last ends inside a leaf. Another reason is an ``out`` of the wrong shape.
        InvalidDataTypeError, InvalidAttributeError: See the plain call.

    Follows oneDNN's documentation of the operator of the parts.

    >>> import numpy as np
    >>> from convgrad import partials
    >>> diff_dst = np.arange(12, dtype=np.float32).reshape(3, 4, 1)
    >>> join([partials("BiasAddBackward", diff_dst)]).tolist()
    [66.0]
    """
    held = None if isinstance(parts, Partials) else as_items(parts)
    if held is None:  # P4
        hint = ". Use [part]" if isinstance(parts, Partials) else ""
        refuse("P4", "join", f"parts must be a list of results of partials; got {type(parts).__name__}{hint}")
    sorted_parts = sorted(held, key=_place)
    if not sorted_parts:  # P4
        refuse("P4", "join", "parts must contain at least one part, which gives the operator; got none")
    first = sorted_parts[0]
    check_options(first.operator, out, accumulate, None)
    fmt = arrays.output_format(dtype, FORMATS[first.operand_type], first.operator)
    if fmt is F64:  # T4
        refuse("T4", first.operator, "dtype must not be f64, because the sums are kept in f32")
    _check_all(sorted_parts)
    known = [node_sum for part in sorted_parts for node_sum in part.known()]
    combined = combine(known, add)
    batch_sum = total(combined, add) if combined else (np.zeros(first.shape, np.float32),)
    if out is None:
        result = arrays.aligned(first.shape, fmt.dtype)
    else:
        taken = {f"sum {n} of the parts": array for n, (_, (array,)) in enumerate(known)}
        result = arrays.check_out(out, first.shape, fmt, taken, first.operator).view(np.ndarray)
    store(batch_sum, result, fmt, accumulate)
    return handed_over(result, first.sample, out)


def _place(part: object) -> tuple[int, int]:
    if not isinstance(part, Partials):  # P4
        refuse("P4", "join", f"parts must be results of partials; got {type(part).__name__}")
    return part.first, part.end


def _check_all(parts: Sequence[Partials]) -> None:
    """Check, by rules P4 and P5, that the parts of one batch have all images from 0 on. Parts may be empty."""
    for other in parts[1:]:
        check_one_problem(parts[0], other)
    before = replace(parts[0], first=0, images=0)
    for left, right in pairwise([before, *(part for part in parts if part.images)]):
        check_neighbours(left, right)
