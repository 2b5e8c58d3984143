"""Exact results of calls, in the caller's layout."""

from __future__ import annotations

from typing import Any

from convgrad.array_types import Array
from convgrad.arrays import libraries
from convgrad.float_environment import in_default_environment
from convgrad.functional.call import Prepared, prepare, room, spelled_out
from convgrad.parameters import described
from convgrad.verify.parts import PART, parts_of, references
from convgrad.verify.reference import Progress


@described
def exact(operator: str, *inputs: object, dtype: object = None, **attributes: object) -> Any:
    """Return the exact result of a call of ``convgrad.run``: exact sums, each rounded once to the output's type.

    Every element is proved to be correctly rounded. For f64 operands, the proof needs a call with few terms.

    The result is an array of the library of the first input. Attributes are as for ``check``. Raises as
    ``convgrad.run`` does. Follows the document of the named operator.

    >>> import numpy as np
    >>> src, diff_dst = np.ones((2, 6, 1), np.float32), np.ones((2, 3, 1), np.float32)
    >>> exact("ConvolutionBackwardWeights", src, diff_dst, (2, 1, 1), strides=2).ravel().tolist()
    [6.0, 6.0]
    """
    prepared = prepare(operator, inputs, spelled_out(operator, inputs, attributes), dtype)
    return libraries.like(inputs[0])(exact_of(prepared))


@in_default_environment
def exact_of(prepared: Prepared, progress: Progress = lambda share: None, maximum: int = PART) -> Array:
    """Return the exact result of a prepared call in the caller's layout, computed in parts of ``maximum`` elements."""
    problem = prepared.problem
    result: Array = room(problem, None, {}, aligned=True)
    out = prepared.canonical_output(result)
    for part, reference in references(parts_of(problem, prepared.operands, maximum=maximum), out.size, progress):
        out[part.index] = reference.rounded(problem.output_format)
    return result
