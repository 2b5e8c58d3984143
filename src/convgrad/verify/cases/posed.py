"""A check of a case against the operator's rules when the case is read, so that errors name the case's place."""

from __future__ import annotations

from convgrad.errors import ConvgradError
from convgrad.formats import F32
from convgrad.spec.problem import Problem
from convgrad.spec.shapes import Shape
from convgrad.verify.cases.case import Case
from convgrad.verify.cases.place import Place


def posed(case: Case, place: Place) -> Problem:
    """Return the problem of a case, or raise the error of the rule that the case breaks, with the place added."""
    try:
        return case.posed()[1]
    except ConvgradError as error:
        raise place.refuse(str(error)) from error


def legal(case: Case, place: Place, result: Shape) -> Case:
    """Return a case whose notation allows it, or an unsupported case if it breaks a rule of the operator.

    ``result`` is the shape of the result by the rules of the notation.
    """
    try:
        case.posed()
    except ConvgradError as error:
        empty = f"the result {'x'.join(map(str, result))} has no elements, so there is nothing to check"
        return unsupported(case.name, place, empty if 0 in result else str(error))
    return case


def unsupported(name: str, place: Place, sentence: str) -> Case:
    """Return an unsupported case, which has only a name, a place and the reason."""
    return Case(name, str(place), "", (), {}, F32, F32, unsupported=sentence)
