"""Any call in the caller's own layout: its exact result, and the verdict on somebody's result for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad import arrays
from convgrad.errors import InvalidAttributeError
from convgrad.formats import F64, Format
from convgrad.functional.call import prepare
from convgrad.spec.check import as_integer
from convgrad.spec.layouts import shape_words
from convgrad.spec.oracle import Answer, evaluate
from convgrad.spec.order import last_additions
from convgrad.spec.problem import Problem
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
    result: object,
    *inputs: object,
    old: object = None,
    height: int | None = None,
    **attributes: object,
) -> Verdict:
    """Return the verdict on a result that any implementation computed for a call of ``convgrad.run``.

    Its type is the result's. ``old`` is what it was accumulated into. ``height`` is the most roundings a term went
    through, those of adding bias and ``old`` counted; by default the number of terms, which holds for sums in f32 (f64
    for f64) in any order.

    Raises as ``convgrad.run`` does; InvalidShapeError where the result has another shape, InvalidDataTypeError where no
    result is of its type.

    >>> src, diff_dst = np.ones((2, 6, 1), np.float32), np.ones((2, 3, 1), np.float32)
    >>> call = {"strides": [2], "dilations": [1], "weights_shape": [2, 1, 1]}
    >>> print(check("ConvolutionBackwardWeights", np.full((2, 1, 1), 6, np.float32), src, diff_dst, **call))
    ok: 2 of 2 equal, largest error 0 of the bound
    """
    prepared = prepare(operator, inputs, attributes, None, accumulate=old is not None)
    problem = prepared.problem
    claimed, fmt = as_result(result, problem)
    before = None
    if old is not None:
        before, old_fmt = as_result(old, problem, "old")
        if old_fmt is not fmt:  # T5
            refuse("T5", operator, f"old must be of the result's type, {fmt}; got {old_fmt}")
        before = prepared.canonical_output(before)
    return verdict_on(claimed, evaluate(problem, prepared.operands, before), problem, height)


def verdict_on(result: object, answer: Answer, problem: Problem, height: int | None = None) -> Verdict:
    """Return the verdict on an array in the caller's layout, of any type results have; its sums are of ``height``.

    By default they are sums of all terms in any order. ``problem`` may say another output type: the array's own counts.
    """
    array, fmt = as_result(result, problem)
    if height is None:
        height = int(answer.terms.max(initial=0)) + last_additions(problem)
    elif as_integer(height) is None or height < 0:
        wanted = "a non-negative integer, the most roundings a term of a sum went through"
        raise InvalidAttributeError(f"{problem.operator}: height must be {wanted}; got {height!r}")
    height = min(height, 2**F64.significand_bits)  # from there on no bound holds, in any format
    return compare(array.transpose(problem.output_order), answer, replace(problem, output_format=fmt), height)


def as_result(value: object, problem: Problem, name: str = "result") -> tuple[Array, Format]:
    """Return an array that may be a result of a problem, with its format; refuse any other by rules T1, T4 and D2."""
    array, fmt = arrays.take(value, problem.operator, name)
    if fmt is F64 and problem.operand_format is not F64:  # T4
        sums = f"sums of {problem.operand_format} operands are kept in f32 and rounded to f32, bf16 or f16"
        refuse("T4", problem.operator, f"{name} must be of a type that results have: {sums}; got f64")
    if array.shape != problem.output_shape:  # D2
        wanted, given = (f"{fmt} {shape_words(shape)}" for shape in (problem.output_shape, array.shape))
        refuse("D2", problem.operator, f"{name} must be {wanted}; got {given}")
    return arrays.native(array, fmt), fmt
