"""Comparisons of a result on request: with the oracle, and with recorded results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from convgrad import engines, formats
from convgrad.cli.progress import Progress
from convgrad.errors import FileError
from convgrad.functional.call import Prepared
from convgrad.spec import oracle
from convgrad.spec.layouts import shape_words
from convgrad.spec.problem import Problem
from convgrad.verify.compare import Verdict, compare, compare_recorded

Array = NDArray[Any]


def check_recorded(place: str, recorded: Array, problem: Problem) -> None:
    """Refuse a recorded result of another shape than the problem's, or of no type that results have."""
    if recorded.shape != problem.output_shape or formats.of_dtype(recorded.dtype) is None:
        wanted = f"{problem.output_format} {shape_words(problem.output_shape)}"
        given = f"{recorded.dtype} {shape_words(recorded.shape)}"
        raise FileError(f"{place}: the result is {wanted}; the file has {given}")


def verdicts_on(
    prepared: Prepared, result: Array, recorded: Mapping[str, Array], *, oracle_too: bool, silent: bool
) -> dict[str, Verdict]:
    """Return the verdicts of a result against each recorded one by its place, and against the oracle."""
    if not recorded and not oracle_too:
        return {}
    problem, got = prepared.problem, prepared.canonical_output(result)
    height = engines.height(problem)
    with Progress("oracle:", silent) as progress:
        answer = oracle.evaluate(problem, prepared.operands, progress=progress)
    verdicts = {"oracle": compare(got, answer, problem, height)} if oracle_too else {}
    for place, array in recorded.items():
        verdicts[place] = compare_recorded(got, prepared.canonical_output(array), answer, problem, height)
    return verdicts
