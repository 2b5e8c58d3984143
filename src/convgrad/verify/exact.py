"""Any call in the caller's own layout: its exact result, and the verdict on somebody's result for it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.functional.call import prepare
from convgrad.spec.oracle import evaluate
from convgrad.spec.order import last_additions
from convgrad.spec.rules import refuse
from convgrad.verify.compare import Verdict, compare

Array = NDArray[Any]


def exact(operator: str, *inputs: object, dtype: object = None, **attributes: object) -> Array:
    """Return what ``convgrad.run`` computes, from the float64 oracle and rounded once to the output's type. Slow.

    Raises as ``convgrad.run`` does. Follows the document of the operator named.

    >>> src, diff_dst = np.ones((2, 6, 1), np.float32), np.ones((2, 3, 1), np.float32)
    >>> exact("ConvolutionBackwardWeights", src, diff_dst, (2, 1, 1), strides=[2], dilations=[1]).ravel().tolist()
    [6.0, 6.0]
    """
    prepared = prepare(operator, inputs, attributes, dtype)
    result = np.empty(prepared.problem.output_shape, prepared.problem.output_format.dtype)
    prepared.canonical_output(result)[...] = evaluate(prepared.problem, prepared.operands).rounded(prepared.problem)
    return result


def check(
    operator: str,
    result: Array,
    *inputs: object,
    old: Array | None = None,
    height: int | None = None,
    **attributes: object,
) -> Verdict:
    """Return the verdict on a result that any implementation computed for a call of ``convgrad.run``.

    Its type is the result's. ``old`` is what it was accumulated into. ``height`` is the most roundings a term went
    through; by default the number of terms, which holds for sums in f32 (f64 for f64) in any order.

    Raises as ``convgrad.run`` does; InvalidShapeError where the result has another shape.

    >>> src, diff_dst = np.ones((2, 6, 1), np.float32), np.ones((2, 3, 1), np.float32)
    >>> call = {"strides": [2], "dilations": [1], "weights_shape": [2, 1, 1]}
    >>> print(check("ConvolutionBackwardWeights", np.full((2, 1, 1), 6, np.float32), src, diff_dst, **call))
    ok: 2 of 2 equal, largest error 0 of the bound
    """
    prepared = prepare(operator, inputs, attributes, result.dtype, accumulate=old is not None)
    problem = prepared.problem
    for name, array in (("the result", result), ("old", old)):
        if array is not None and (
            array.shape != problem.output_shape or array.dtype != problem.output_format.dtype
        ):  # D2
            wanted = f"{problem.output_format} {problem.output_shape}"
            refuse("D2", operator, f"{name} must be {wanted}; got {array.dtype} {array.shape}")
    answer = evaluate(problem, prepared.operands, None if old is None else prepared.canonical_output(old))
    terms = int(answer.terms.max(initial=0)) + last_additions(problem)
    return compare(prepared.canonical_output(result), answer, problem, terms if height is None else height)
