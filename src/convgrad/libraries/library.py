"""The row of a library of arrays: the conversions between its arrays and NumPy's, and the arrays that it refuses."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from numpy.typing import NDArray

from convgrad.engines.settings import OWN

Array = NDArray[Any]


class Refusal(NamedTuple):
    """A refusal: a test of arrays, the rule, and the message; ``{name}`` is the operand, ``{got}`` the array."""

    of: Callable[[Any, Any], bool]
    rule: str
    words: str


@dataclass(frozen=True, eq=False)
class Library:
    """A library, by its module's name. Its functions take the module, and then one of its arrays."""

    module: str
    kind: str  # the name of its class of arrays
    dtypes: str  # the prefix of its dtypes' names
    array: Callable[[Any, Any], Array]  # its memory as NumPy's
    like: Callable[[Any, Any], Callable[[Array], Any]]  # makes a function that converts NumPy's memory, like the array
    written: Callable[[Any, Any], None]  # notifies the library that the array's memory was written to
    detached: Callable[[Any, Any], Any]  # the array without recorded gradients
    refused: tuple[Refusal, ...]
    not_written: tuple[Refusal, ...]  # further refusals for an array to be written to
    refused_there: tuple[Refusal, ...] = ()  # refusals that explain an error of ``array``
    pool: str = OWN  # whose threads compute its arrays, if the context does not say

    @property
    def loaded(self) -> Any:
        """The module; None if it is not loaded, and so has not made an array."""
        return sys.modules.get(self.module)

    def refusal(self, value: object, among: tuple[Refusal, ...]) -> Refusal | None:
        """Return the first of some refusals that applies to an array; None if none applies."""
        module = self.loaded
        for refusal in among:
            if refusal.of(module, value):
                return refusal
        return None
