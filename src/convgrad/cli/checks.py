"""Verdicts for ``--check`` and ``--expect``: convgrad's result, or one from a file, compared with the exact result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from convgrad import engines
from convgrad.array_types import Array
from convgrad.cli.progress import ProgressLine
from convgrad.errors import ConvgradError, FileError
from convgrad.formats import Format, of_dtype, store
from convgrad.functional.call import Prepared
from convgrad.spec.problem import Problem
from convgrad.verify.check import as_result, verdicts_of
from convgrad.verify.declared import Declared, declared_for
from convgrad.verify.verdict import Verdict

OURS = "oracle"


@dataclass(frozen=True, eq=False)
class CheckedArray:
    """An array that is checked as the result of a call, computed as declared."""

    source: str
    call: Prepared
    result: Array
    how: Declared


def ours(call: Prepared, result: Array) -> CheckedArray:
    """Return the claim that convgrad's own result is right, with the rounding depth of the engine's sums."""
    return CheckedArray(OURS, call, result, declared_for(call.problem, height=engines.height(call.problem)))


def theirs(
    place: str, call: Prepared, recorded: Array, height: int | Sequence[int] | None, shared: bool = False
) -> CheckedArray:
    """Return the claim that the result in the file ``place`` is right; raise FileError for a wrong shape or type.

    ``height`` is the rounding depth of its sums, or the blocks of their order. None allows any order. A ``shared``
    height is that of several results.
    """
    check_recorded(place, recorded, call.problem)
    how = declared_for(call.problem, height=height, shared=shared)
    return CheckedArray(place, call, as_kept(recorded, call.problem.output_format), how)


def check_recorded(place: str, recorded: Array, problem: Problem) -> None:
    """Raise FileError if a result from a file does not have the problem's shape, or has a type that no result has."""
    try:
        as_result(recorded, problem)
    except ConvgradError as error:
        raise FileError(f"{place}: {error}") from error


def as_kept(array: Array, fmt: Format) -> Array:
    """Convert a result from a file to ``fmt`` if ``fmt`` is narrower and no value changes; else return it unchanged.

    Files often have a wider type than the result: NumPy's files cannot store bf16, and many programs write only f32.
    """
    array_format = of_dtype(array.dtype)
    if array_format is None or array_format.significand_bits <= fmt.significand_bits:
        return array
    with np.errstate(all="ignore"):
        narrow = store(array.astype(np.float64), fmt)
        same = np.array_equal(narrow.astype(np.float64), array.astype(np.float64), equal_nan=True)
    return narrow if same else array


def verdicts_on(claims: Sequence[CheckedArray], *, silent: bool) -> dict[str, Verdict]:
    """Return the verdict on each claim, by the claim's source; the exact result of each call is computed once."""
    calls = {id(claim.call): claim.call for claim in claims}
    verdicts: dict[str, Verdict] = {}
    for call in calls.values():
        own = [claim for claim in claims if claim.call is call]
        results = [(claim.result, claim.how) for claim in own]
        with ProgressLine("oracle:", silent) as progress:
            verdicts |= zip((claim.source for claim in own), verdicts_of(results, call, progress=progress), strict=True)
    return {claim.source: verdicts[claim.source] for claim in claims}


def against(source: str) -> str:
    """Return the label of a verdict on a result from ``source``."""
    return "against oracle" if source == OURS else f"{source} against oracle"
