"""Verdicts on given results of calls: the bound is checked first, then the statistics, and then defects are named."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from convgrad import arrays
from convgrad.array_types import Array
from convgrad.arrays.libraries import detached
from convgrad.errors import ConvgradError, InvalidAttributeError
from convgrad.float_environment import in_default_environment
from convgrad.formats import F64, Format
from convgrad.functional.call import Prepared, prepare, spelled_out
from convgrad.parameters import described
from convgrad.spec.check import as_integer
from convgrad.spec.layouts import shape_words
from convgrad.spec.problem import Problem
from convgrad.spec.rules import refuse
from convgrad.spec.winograd.choice import DIRECT
from convgrad.verify.claim import Claim
from convgrad.verify.declared import SUM, Declared, declared_for
from convgrad.verify.foreign import WRONG_KIND, Function, answer
from convgrad.verify.parts import PART, OutputPart, SampleWish, is_sampled, parts_of, references
from convgrad.verify.reference import Progress, Reference
from convgrad.verify.repeat import verdict_on_calls
from convgrad.verify.verdict import WRONG, Defect, Verdict


@described
def check(
    operator: str,
    result: object,
    *inputs: object,
    old: object = None,
    accumulation: str | Format | None = None,
    height: int | Sequence[int] | None = None,
    algorithm: str = SUM,
    max_error: float | None = None,
    sample: int | None = None,
    seed: int = 0,
    repeat: int = 1,
    **attributes: object,
) -> Verdict:
    """Return the verdict on a result that any implementation computed for a call of ``convgrad.run``.

    A function as ``result`` gets the arguments of ``convgrad.run``: the operator, its inputs and its attributes. The
    verdict is *not served* if the function raises NotImplementedError or returns NotImplemented. It is *wrong* if the
    function raises another error, or returns a wrong shape or type. Arguments may be tensors that require gradients.

    The verdict assumes the arithmetic that ``accumulation``, ``height``, ``algorithm`` and ``max_error`` declare. A
    depth or blocks that no sum of so many terms has are refused. The command ``convgrad probe`` finds the block sizes.

    Attributes are as for ``convgrad.run``, or as for ``convgrad.convolution``: one int for all axes, and strides and
    dilations 1 by default. If ``result`` is a function, its attributes have one value per axis. Raises as
    ``convgrad.run`` does for these inputs.

    Args:
        result: The array to judge, whose type is the output's type, or a function that returns the array.

    Keyword Args:
        max_error: The argument of the call that computed the result. If it admits Winograd tiles, the bound is for
            convgrad's tiles. A function as ``result`` is called without it. Default: None.
        sample: The approximate number of elements to check, to save time; None is all. The verdict's ``sample`` states
            how many elements were checked, and what may be missed. Default: None.
        seed: The seed that draws these elements. Default: 0.
        repeat: The number of calls if ``result`` is a function. The verdict is *not repeatable* if calls with equal
            operands give different bits or different verdicts. Every distinct result is judged, see the verdict's
            ``calls``. Default: 1.

    >>> import numpy as np
    >>> src, diff_dst = np.ones((2, 6, 1), np.float32), np.ones((2, 3, 1), np.float32)
    >>> call = {"strides": 2, "weights_shape": [2, 1, 1]}
    >>> print(check("ConvolutionBackwardWeights", np.full((2, 1, 1), 6, np.float32), src, diff_dst, **call))
    ok: 2 of 2 equal, largest error 0 of the bound
    """
    inputs, result, old = tuple(map(detached, inputs)), detached(result), detached(old)
    attributes = dict(spelled_out(operator, inputs, attributes))
    prepared = prepare(operator, inputs, attributes, None, accumulate=old is not None).within(
        DIRECT if max_error is None else max_error
    )
    problem = prepared.problem
    how = declared_for(problem, accumulation, height, algorithm)
    times = as_integer(repeat) or 0
    if times < 1 or (times > 1 and not callable(result)):
        wanted = "a positive integer, and 1 if the result is an array instead of a function"
        raise InvalidAttributeError(f"{operator}: repeat must be {wanted}; got {repeat!r:.200}")
    results: Iterator[Any] = iter([result])
    if callable(result):
        function: Function = result
        results = (answer(function, operator, inputs, attributes) for _ in range(times))
    first = next(results)
    some = _sample_wish(operator, sample, seed)
    before = None
    if old is not None:
        before, before_fmt = as_result(old, problem, "old")
        fmt = _format_of(first)
        if fmt is not None and before_fmt is not fmt:  # T5
            refuse("T5", operator, f"old must be of the result's type, {fmt}; got {before_fmt}")
        before = prepared.canonical_output(before)
    calls = chain([first], results)

    def judged(answers: Sequence[object]) -> list[Verdict]:
        return verdicts_of([(answer, how) for answer in answers], prepared, before, sample=some)

    return verdict_on_calls(lambda: next(calls), times, judged)


def _sample_wish(operator: str, sample: object, seed: object) -> SampleWish | None:
    """Return the wish that ``sample`` and ``seed`` express, None for all elements; refuse other values."""
    elements, number = as_integer(sample) or 0, as_integer(seed)
    if (sample is not None and elements < 1) or number is None or number < 0:
        wanted = "sample must be a positive integer or None, and seed a non-negative integer"
        raise InvalidAttributeError(f"{operator}: {wanted}; got {sample!r:.200} and {seed!r:.200}")
    return None if sample is None else SampleWish(elements, number)


def _format_of(result: object) -> Format | None:
    """Return the format of a result, or None if the value has no valid format."""
    try:
        return None if isinstance(result, Verdict) else arrays.take(result, "", "result")[1]
    except ConvgradError:
        return None


@in_default_environment
def verdict_on(
    result: object,
    prepared: Prepared,
    how: Declared,
    old: Array | None = None,
    reference: Reference | None = None,
    maximum: int = PART,
) -> Verdict:
    """Return the verdict on a result of a prepared call; ``result`` is in the caller's layout.

    The result is judged by its own type, not by the problem's output type. ``old`` and ``reference`` are canonical. If
    ``reference`` is given, no exact sums are computed, and the result is judged as one part.
    """
    if reference is None:
        return verdicts_of([(result, how)], prepared, old, maximum=maximum)[0]
    claim = _claim(result, prepared, how, old)
    return claim if isinstance(claim, Verdict) else claim.whole(reference)


@in_default_environment
def verdicts_of(
    results: Sequence[tuple[object, Declared]],
    prepared: Prepared,
    old: Array | None = None,
    progress: Progress = lambda share: None,
    maximum: int = PART,
    sample: SampleWish | None = None,
) -> list[Verdict]:
    """Return the verdicts on several results of one call, given as pairs of a result and its declared arithmetic.

    Exact sums are computed once for all results, in parts of at most ``maximum`` elements. With a ``sample``, they are
    computed for some elements.
    """
    claims = [_claim(result, prepared, how, old) for result, how in results]
    to_judge = [claim for claim in claims if isinstance(claim, Claim)]
    if to_judge:
        size = to_judge[0].got.size
        if any(claim.is_one_part for claim in to_judge):
            maximum, sample = max(maximum, size), None
        sample = sample if is_sampled(prepared.problem, sample) else None
        for claim in to_judge:
            claim.sample = sample
        parts: Iterable[OutputPart] = parts_of(prepared.problem, prepared.operands, old, maximum, sample)
        if sample is not None:
            parts = [*parts]  # few, so that the share of the elements that are done is known
            size = sum(part.elements for part in parts)
        for part, reference in references(parts, size, progress):
            for claim in to_judge:
                claim.add(part, reference)
    return [claim.verdict() if isinstance(claim, Claim) else claim for claim in claims]


def _claim(result: object, prepared: Prepared, how: Declared, old: Array | None) -> Claim | Verdict:
    """Return the claim to judge, or a verdict if the value has a type or shape that no result has."""
    if isinstance(result, Verdict):
        return result
    try:
        array, fmt = as_result(result, prepared.problem)
    except ConvgradError as error:
        return Verdict(outcome=WRONG, reason=str(error), found=(Defect(WRONG_KIND),))
    problem = replace(prepared.problem, output_format=fmt)
    return Claim(array.transpose(problem.output_order), problem, prepared.operands, how, old)


def as_result(value: object, problem: Problem, name: str = "result") -> tuple[Array, Format]:
    """Return a value as an array, with its format; raise if no result has its type or shape (rules T1, T4, D2)."""
    array, fmt = arrays.take(value, problem.operator, name)
    if fmt is F64 and problem.operand_format is not F64:  # T4
        sums = f"sums of {problem.operand_format} operands are kept in f32 and rounded to f32 or to fewer bits"
        refuse("T4", problem.operator, f"{name} must be of a type that results have: {sums}; got f64")
    if array.shape != problem.output_shape:  # D2
        wanted, got = (f"{fmt} {shape_words(shape)}" for shape in (problem.output_shape, array.shape))
        refuse("D2", problem.operator, f"{name} must be {wanted}; got {got}")
    return arrays.native(array, fmt), fmt
