"""Assumptions that make a wrong result right: a narrower format of its sums, or subnormal operands taken as 0.

Verdicts report these assumptions as facts, not as names of defects. A name must exclude chance, which a few wrong
elements cannot do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from convgrad.formats import F32, F64, Format, round_to
from convgrad.verify.bound import bounded_by
from convgrad.verify.declared import SUM, DeclaredResult
from convgrad.verify.diagnose.running import running_sums
from convgrad.verify.judge.names import ACCUMULATED
from convgrad.verify.reference import Reference, certify
from convgrad.verify.verdict import OK, Defect

SMALL = 32  # maximum number of elements of results whose running sums are repeated


def is_right_in(fmt: Format, result: DeclaredResult, reference: Reference) -> bool:
    """Return whether no element is beyond the bound of sums in ``fmt``, which is narrower than the declared format."""
    short = int(reference.nonzero.max(initial=0)) + 2 < 2**fmt.significand_bits  # the bound of longer sums says little
    if not short or fmt.significand_bits >= result.declared.accumulation.significand_bits:
        return False
    other = replace(result.declared, accumulation=fmt)
    return bounded_by(result.got, reference, result.problem, other, result.operands).outcome == OK


def computed_in_f32(result: DeclaredResult, reference: Reference) -> tuple[Defect, ...]:
    """Return the defect of f64 sums that were kept in f32, if at least half of the errors have the size of f32's.

    Chance cannot place many elements within a bound that is that narrow.
    """
    if result.problem.operand_format is not F64 or result.declared.algorithm != SUM or result.got.size < SMALL:
        return ()
    with np.errstate(all="ignore"):
        error = np.abs(result.got.astype(np.float64) - reference.value)
        sizes = error > F32.unit / 16 * np.abs(reference.value)
    if 2 * np.count_nonzero(sizes) < result.got.size or not is_right_in(F32, result, reference):
        return ()
    return (Defect(ACCUMULATED.format(F32)),)


def pardoned(result: DeclaredResult, reference: Reference) -> Iterator[str]:
    """Yield a sentence for each assumption under which no element of a result is wrong."""
    got, problem, operands, how, old = result.got, result.problem, result.operands, result.declared, result.old
    fmt = problem.operand_format
    if how.algorithm == SUM and is_right_in(F32 if fmt is F64 else fmt, result, reference):
        yield f"none is beyond the bound of sums kept in {F32 if fmt is F64 else fmt}"
    if how.algorithm == SUM and got.size <= SMALL:
        narrow = {
            narrow_format.name: narrow_format
            for narrow_format in (fmt, problem.output_format)
            if narrow_format.significand_bits < how.accumulation.significand_bits
        }
        actual, where = got.astype(np.float64).ravel(), np.arange(got.size)
        for narrow_format in narrow.values():
            sums = running_sums(problem, operands, old, where, narrow_format)
            if any(np.array_equal(round_to(total, problem.output_format), actual) for _, total in sums):
                yield f"all elements have the bits of one running sum in {narrow_format}"
    minimum = 2.0**fmt.min_exponent
    with np.errstate(invalid="ignore"):  # operands may be NaN
        subnormal = [(np.abs(array) < array.dtype.type(minimum)) & (array != 0) for array in operands]
    if any(some.any() for some in subnormal):
        pairs = zip(subnormal, operands, strict=True)
        flushed = [np.where(some, array.dtype.type(0), array) for some, array in pairs]
        reference_of_flushed = certify(problem, flushed, old)
        if bounded_by(got, reference_of_flushed, problem, how, flushed).outcome == OK:
            yield "none is beyond the bound where subnormal operands count as 0"
