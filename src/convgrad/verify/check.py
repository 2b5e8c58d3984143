"""The verdict on somebody's result of any call: the bound first, then the statistics, then the defect's name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from convgrad import arrays
from convgrad.errors import ConvgradError
from convgrad.formats import F64, Format
from convgrad.functional.call import Prepared, prepare, spelled_out
from convgrad.libraries import detached
from convgrad.spec.layouts import shape_words
from convgrad.spec.problem import Problem
from convgrad.spec.rules import refuse
from convgrad.verify.bound import bounded_by
from convgrad.verify.declared import SUM, Declared, declared
from convgrad.verify.diagnose import diagnose
from convgrad.verify.foreign import WRONG_KIND, answer
from convgrad.verify.judge import judge
from convgrad.verify.pardon import pardoned
from convgrad.verify.reference import Reference, certify
from convgrad.verify.verdict import DEGRADED, OK, UNDECIDED, WRONG, Defect, Verdict

Array = NDArray[Any]


def check(
    operator: str,
    result: object,
    *inputs: object,
    old: object = None,
    accumulation: str | Format | None = None,
    height: int | Sequence[int] | None = None,
    algorithm: str = SUM,
    **attributes: object,
) -> Verdict:
    """Return the verdict on a result that any implementation computed for a call of ``convgrad.run``.

    ``result`` is the array, whose type is the output's, or a function that is called as ``convgrad.run`` is, with the
    operator, its inputs and its attributes, and returns it: one that raises, or answers in another shape or type, is
    wrong. ``old`` is what it was accumulated into. Tensors are taken whether or not they require gradients.

    Declared is the arithmetic it is judged by: ``accumulation``, the format sums are kept in (f32, bf16, f16, tf32,
    f64; by default f32, f64 for f64); ``height``, the most roundings a term went through, those of adding bias and
    ``old`` counted, or the blocks of an order that ``convgrad probe`` revealed; by default any order of each element's
    own terms.

    Attributes are as for ``convgrad.run``, or as the functions take them: one int for all axes, strides and dilations 1
    where nothing is said of them; a function is given them spelled out. Raises as ``convgrad.run`` does of the inputs.

    >>> import numpy as np
    >>> src, diff_dst = np.ones((2, 6, 1), np.float32), np.ones((2, 3, 1), np.float32)
    >>> call = {"strides": 2, "weights_shape": [2, 1, 1]}
    >>> print(check("ConvolutionBackwardWeights", np.full((2, 1, 1), 6, np.float32), src, diff_dst, **call))
    ok: 2 of 2 equal, largest error 0 of the bound
    """
    inputs, result, old = tuple(map(detached, inputs)), detached(result), detached(old)
    attributes = dict(spelled_out(operator, inputs, attributes))
    prepared = prepare(operator, inputs, attributes, None, accumulate=old is not None)
    problem = prepared.problem
    if callable(result):
        result = answer(result, operator, inputs, attributes)
    how = declared(operator, problem.operand_format, accumulation, height, algorithm)
    before = None
    if old is not None:
        before, before_fmt = as_result(old, problem, "old")
        fmt = _format_of(result)
        if fmt is not None and before_fmt is not fmt:  # T5
            refuse("T5", operator, f"old must be of the result's type, {fmt}; got {before_fmt}")
        before = prepared.canonical_output(before)
    return verdict_on(result, prepared, how, before)


def _format_of(result: object) -> Format | None:
    """Return the format of a result; None of one that is none, which is wrong and not to be refused."""
    try:
        return None if isinstance(result, Verdict) else arrays.take(result, "", "result")[1]
    except ConvgradError:
        return None


def verdict_on(
    result: object,
    prepared: Prepared,
    how: Declared,
    old: Array | None = None,
    reference: Reference | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> Verdict:
    """Return the verdict on what is said to be the result of a prepared call, in the caller's layout.

    Its own type counts, whatever output type the problem names. ``old`` and ``reference`` are canonical; a reference
    that is at hand is not computed again.
    """
    if isinstance(result, Verdict):
        return result
    try:
        array, fmt = as_result(result, prepared.problem)
    except ConvgradError as error:
        return Verdict(outcome=WRONG, reason=str(error), found=(Defect(WRONG_KIND),))
    problem, operands = replace(prepared.problem, output_format=fmt), prepared.operands
    got = array.transpose(problem.output_order)
    reference = reference or certify(problem, operands, old, progress)
    bounded = bounded_by(got, reference, problem, how, operands)
    if bounded.outcome == WRONG and bounded.mask is not None:
        beyond = bounded.mask.transpose(problem.output_order)
        diagnosis = diagnose(got, beyond, reference, problem, operands, old, how.accumulation)
        found = diagnosis.found or judge(got, reference, problem, operands, how, old).found  # its arithmetic, its place
        where = "; ".join([diagnosis.where, *pardoned(got, reference, problem, operands, how, old)])
        return replace(bounded, where=where, found=found)
    if bounded.undecided == bounded.elements > 0 and how.algorithm != SUM:
        unknown = f"no bound is known of the errors of {how.algorithm} in this problem"
        return replace(bounded, reason=f"{unknown}; declare {SUM} to hold it to that")
    if bounded.outcome != OK or not bounded.elements or problem.variant:  # of tiles the bound is all that is known
        return bounded
    judged = judge(got, reference, problem, operands, how, old)
    outcome = DEGRADED if judged.evidence else UNDECIDED if judged.reason else OK
    found = judged.found
    if outcome == DEGRADED and not found:  # a bound of long sums is wide: zeros, a transposed result may lie inside
        unequal = got != reference.rounded(fmt)
        if unequal.any():
            found = diagnose(got, unequal, reference, problem, operands, old, how.accumulation).found
    return replace(
        bounded,
        outcome=outcome,
        reason=judged.reason,
        evidence=judged.evidence,
        found=found,
        statistics=judged.statistics,
        limits=judged.limits,
    )


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
