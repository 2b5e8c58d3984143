"""Keywords that a function does not have: taken, for the checks to say what was meant, but not in its signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def refuses_keywords(function: Function) -> Function:
    """Return a function as it is, whose signature tells nothing of the ``**unknown`` that it takes to refuse.

    That is typed Never: type checkers refuse such keywords too. A wrapper that caught the TypeError would be run by
    each call; this is not.

    >>> inspect.signature(refuses_keywords(lambda src, **unknown: src))
    <Signature (src)>
    """
    signature = inspect.signature(function)
    ours = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    vars(function)["__signature__"] = signature.replace(parameters=ours)
    return function
