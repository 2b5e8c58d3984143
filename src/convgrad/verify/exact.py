"""Any call in the caller's own layout: its exact result."""

from __future__ import annotations

from typing import Any

from convgrad import libraries
from convgrad.functional.call import prepare, room, spelled_out
from convgrad.verify.reference import certify


def exact(operator: str, *inputs: object, dtype: object = None, **attributes: object) -> Any:
    """Return what ``convgrad.run`` computes, from the exact sums, each rounded once to the output's type.

    Of f32, bf16 and f16 operands every element is certified; of f64 ones sums are exact where there are few terms.

    It comes in the library of the first input. Attributes are as for ``check``. Raises as ``convgrad.run`` does.
    Follows the document of the operator named.

    >>> import numpy as np
    >>> src, diff_dst = np.ones((2, 6, 1), np.float32), np.ones((2, 3, 1), np.float32)
    >>> exact("ConvolutionBackwardWeights", src, diff_dst, (2, 1, 1), strides=2).ravel().tolist()
    [6.0, 6.0]
    """
    prepared = prepare(operator, inputs, spelled_out(operator, inputs, attributes), dtype)
    problem = prepared.problem
    result = room(problem, None, {}, aligned=True)
    prepared.canonical_output(result)[...] = certify(problem, prepared.operands).rounded(problem.output_format)
    return libraries.like(inputs[0])(result)
