"""Any call in the caller's own layout: its exact result."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.functional.call import prepare
from convgrad.verify.reference import certify

Array = NDArray[Any]


def exact(operator: str, *inputs: object, dtype: object = None, **attributes: object) -> Array:
    """Return what ``convgrad.run`` computes, from the exact sums, each rounded once to the output's type.

    Of f32, bf16 and f16 operands every element is certified; of f64 ones sums are exact where there are few terms.

    Raises as ``convgrad.run`` does. Follows the document of the operator named.

    >>> src, diff_dst = np.ones((2, 6, 1), np.float32), np.ones((2, 3, 1), np.float32)
    >>> exact("ConvolutionBackwardWeights", src, diff_dst, (2, 1, 1), strides=[2], dilations=[1]).ravel().tolist()
    [6.0, 6.0]
    """
    prepared = prepare(operator, inputs, attributes, dtype)
    result = np.empty(prepared.problem.output_shape, prepared.problem.output_format.dtype)
    prepared.canonical_output(result)[...] = certify(prepared.problem, prepared.operands).rounded(
        prepared.problem.output_format
    )
    return result
