"""Verdicts on request: our result of a call, or a file's, compared with the exact result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from convgrad import engines
from convgrad.cli.progress import Progress
from convgrad.errors import ConvgradError, FileError
from convgrad.functional.call import Prepared
from convgrad.spec.problem import Problem
from convgrad.verify.check import as_result, verdicts_of
from convgrad.verify.declared import Declared, declared
from convgrad.verify.verdict import Verdict

Array = NDArray[Any]

OURS = "oracle"


@dataclass(frozen=True, eq=False)
class Claim:
    """An array to check as a call's result; ``height`` is its rounding depth, or its blocks, or None for any order."""

    source: str
    call: Prepared
    result: Array
    height: int | Sequence[int] | None


def ours(call: Prepared, result: Array) -> Claim:
    """Return the claim that our own result is right; its rounding depth is known."""
    return Claim(OURS, call, result, engines.height(call.problem))


def theirs(place: str, call: Prepared, recorded: Array, height: int | Sequence[int] | None) -> Claim:
    """Return the claim that a recorded result is right, or raise FileError if its shape or type cannot be."""
    check_recorded(place, recorded, call.problem)
    return Claim(place, call, recorded, height)


def check_recorded(place: str, recorded: Array, problem: Problem) -> None:
    """Raise FileError if a recorded result does not have the problem's shape, or a type that results have."""
    try:
        as_result(recorded, problem)
    except ConvgradError as error:
        raise FileError(f"{place}: {error}") from error


def verdicts_on(claims: Sequence[Claim], *, silent: bool) -> dict[str, Verdict]:
    """Return the verdict on every claim by its source; the exact result of a call is computed once."""
    calls = {id(claim.call): claim.call for claim in claims}
    found: dict[str, Verdict] = {}
    for call in calls.values():
        own = [claim for claim in claims if claim.call is call]
        given = [(claim.result, _declared(claim)) for claim in own]
        with Progress("oracle:", silent) as progress:
            found |= zip((claim.source for claim in own), verdicts_of(given, call, progress=progress), strict=True)
    return {claim.source: found[claim.source] for claim in claims}


def _declared(claim: Claim) -> Declared:
    problem = claim.call.problem
    return declared(problem.operator, problem.operand_format, height=claim.height)


def against(source: str) -> str:
    """Return the words before a verdict."""
    return "against oracle" if source == OURS else f"{source} against oracle"
