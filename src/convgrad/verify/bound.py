"""The bound on the error of any implementation of the declared arithmetic, element by element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad import arrays
from convgrad.array_types import Array, F64Array
from convgrad.arrays import libraries
from convgrad.float_environment import in_default_environment
from convgrad.formats import F64, Format, round_to
from convgrad.functional.call import prepare, spelled_out
from convgrad.parameters import described
from convgrad.spec.bound import output_bound
from convgrad.spec.exact_result import Answer
from convgrad.spec.order import last_additions
from convgrad.spec.problem import Problem
from convgrad.spec.rules import refuse
from convgrad.spec.winograd.bound import BOUNDS, PATHS, direct_height, may_be_direct, result_bound
from convgrad.verify.compare import compare, sum_bound
from convgrad.verify.declared import SUM, Declared, declared_for
from convgrad.verify.parts import PART, OutputPart, parts_of, references
from convgrad.verify.reference import Reference
from convgrad.verify.verdict import Verdict
from convgrad.verify.winograd import winograd_bound
from convgrad.words import shown


@described
@in_default_environment
def error_bound(
    operator: str,
    *inputs: object,
    dtype: object = None,
    accumulation: str | Format | None = None,
    height: int | Sequence[int] | None = None,
    algorithm: str = SUM,
    max_error: float | None = None,
    bound: str = PATHS,
    **attributes: object,
) -> Any:
    """Return for each element the largest error that a correct result of a call of ``convgrad.run`` can have.

    For n products, let A be the sum of all ``abs(x * y)`` plus the magnitude of the bias, and m the number of terms: n,
    plus one for bias. The bound on the sum is B = g A + m tiny/2 (1 + g). If h u < 1/2, g is gamma_h = h u / (1 - h u).
    Otherwise, g is the smaller of gamma_h (infinite if h u >= 1) and (n + 2) u (1 + u). Here, u is the unit roundoff
    and tiny the smallest number of ``accumulation``. The result also includes the largest error of rounding a number of
    size ``|S| + B`` to the output's type, where S is the exact sum.

    By default, the rounding depth h is the number of nonzero products, plus one for bias. This depth is valid for every
    order. A depth or blocks that no sum of so many terms has are refused. The bound of "winograd:M,R" uses norms, and
    ``height`` is not used. The bound of "fft" is infinite.

    The bound is infinite if no bound can be proved: if sums or results may overflow, or if operands are not finite. If
    operands are integers so small that sums are exact, only the output's rounding remains.

    Attributes are as for ``convgrad.verify.check``, which has no ``dtype``: there, the type of the array is the type of
    the output.

    Keyword Args:
        accumulation: The format of the sums: f32, bf16, f16, tf32, f64, f8_e4m3, f8_e5m2, f8_e4m3fnuz or f8_e5m2fnuz;
            None is f32, and f64 for f64 operands. Default: None.
        height: The rounding depth h, which is the largest number of roundings of a term, or the block sizes of a known
            order of the sums; None allows any order. Default: None.
        max_error: The argument passed to the call. If it admits Winograd tiles, the bound is for convgrad's tiles, and
            ``bound`` selects one of three bounds. Default: None.
        bound: "paths" is the tightest bound, which counts each rounding of the transforms and sums where it occurs.
            "norms" is a bound from norms of the values at each point of the Winograd domain. "kappa" is gamma_H kappa
            times two norms of operands, the bound that ``max_error`` limits before the call. Without Winograd tiles,
            ``bound`` has no effect. Default: "paths".

    The result is f64, in the layout of the output and the library of the first input. Raises as ``convgrad.run`` does,
    and InvalidAttributeError for an invalid declaration. Follows the document of the named operator.

    >>> src, diff_dst = np.ones((2, 6, 1), np.float32), np.ones((2, 3, 1), np.float32)
    >>> call = {"strides": 2, "weights_shape": [2, 1, 1]}
    >>> error_bound("ConvolutionBackwardWeights", src, diff_dst, **call).ravel().tolist()
    [0.0, 0.0]
    >>> bound = error_bound("ConvolutionBackwardWeights", src / 3, diff_dst, accumulation="bf16", dtype="bf16", **call)
    >>> [round(value, 4) for value in bound.ravel().tolist()]
    [0.056, 0.056]
    """
    if bound not in BOUNDS:  # D10
        wanted = f"bound must be one of {', '.join(BOUNDS)}"
        refuse("D10", operator, f"{wanted}; got {shown(bound)}; paths, the default, is the tightest")
    prepared = prepare(operator, inputs, spelled_out(operator, inputs, attributes), dtype).within(max_error)
    problem, operands = prepared.problem, prepared.operands
    how = declared_for(problem, accumulation, height, algorithm)
    result = arrays.aligned(problem.output_shape, F64.dtype)
    out = prepared.canonical_output(result)
    maximum = PART if how.filtering is None else out.size  # a Winograd bound needs all outputs of a tile
    for part, reference in references(parts_of(problem, operands, maximum=maximum), out.size):
        out[part.index] = _total(reference, part, how, bound)
    return libraries.like(inputs[0])(result)


def _total(reference: Reference, part: OutputPart, how: Declared, bound: str) -> F64Array:
    """Return the error bounds of a part's elements, including the output's rounding."""
    fmt, value = part.problem.output_format, reference.value
    with np.errstate(all="ignore"):
        bounds = bound_of(reference, part.problem, how, part.operands, bound)
        total = np.where(bounds == 0, np.abs(round_to(value, fmt) - value), output_bound(value, bounds, fmt))
    return np.where(np.isfinite(total), total, np.inf)


@in_default_environment
def bound_of(
    answer: Answer | Reference, problem: Problem, how: Declared, operands: Sequence[Array], bound: str = PATHS
) -> F64Array:
    """Return each element's error bound before the output's rounding, plus the error of the exact value in float64."""
    added = last_additions(problem)
    if problem.algorithm and how.algorithm == SUM:
        own = sum_bound(answer, how.accumulation, np.zeros_like(answer.terms))
        by_tiles: F64Array = result_bound(problem, operands, how.accumulation, bound) + own
        if not may_be_direct(problem, operands, how.accumulation):
            return by_tiles
        direct = np.minimum(rounded_terms(answer) + added, direct_height(problem))
        return np.maximum(by_tiles, sum_bound(answer, how.accumulation, direct, added))
    if how.algorithm == SUM:
        return sum_bound(answer, how.accumulation, heights(rounded_terms(answer), problem, how), added)
    if how.filtering is None:
        return np.full_like(answer.magnitude, np.inf)
    own = sum_bound(answer, how.accumulation, np.zeros_like(answer.terms))
    return winograd_bound(problem, operands, *how.filtering, answer.magnitude, how.accumulation) + own


def bounded_by(
    got: Array, answer: Answer | Reference, problem: Problem, how: Declared, operands: Sequence[Array] = ()
) -> Verdict:
    """Return the verdict on a canonical result by its bound alone; only Winograd bounds need ``operands``."""
    with np.errstate(all="ignore"):
        bound = bound_of(answer, problem, how, operands)
    return compare(got, answer, problem, 0, bound=bound)


def rounded_terms(answer: Answer | Reference) -> NDArray[np.int64]:
    """Return the number of each element's products that can cause a rounding: adding a product of 0 is exact."""
    return answer.nonzero if isinstance(answer, Reference) else answer.terms


def heights(terms: NDArray[np.int64], problem: Problem, how: Declared) -> NDArray[np.int64]:
    """Return each element's declared rounding depth, but at most its number of terms, with bias and old value."""
    last = last_additions(problem)
    own = terms + last
    if how.blocks:
        return np.minimum(own, max(how.blocks) + len(how.blocks) - 1 + last)
    return own if how.height is None else np.minimum(own, how.height)
