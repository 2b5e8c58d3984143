"""A check of a case against the operator's rules when the case is read, so that errors name the case's place."""

from __future__ import annotations

from convgrad.cases.case import Case
from convgrad.cases.place import Place
from convgrad.errors import ConvgradError
from convgrad.formats import F32
from convgrad.spec.problem import Problem


def posed(case: Case, place: Place) -> Problem:
    """Return the problem of a case, or raise the error of the rule that the case breaks, with the place added."""
    try:
        return case.posed()[1]
    except ConvgradError as error:
        raise place.refuse(str(error)) from error


def unsupported(name: str, place: Place, sentence: str) -> Case:
    """Return an unsupported case, which has only a name, a place and the reason."""
    return Case(name, str(place), "", (), {}, F32, F32, unsupported=sentence)
