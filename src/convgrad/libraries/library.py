"""What a library of arrays is: a row that says how its arrays become NumPy's, and NumPy's its own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from numpy.typing import NDArray

from convgrad.engines.settings import OWN

Array = NDArray[Any]


class Refusal(NamedTuple):
    """What is refused: of which arrays, by what rule, in which words: ``{name}`` is the operand, ``{got}`` it."""

    of: Callable[[Any, Any], bool]
    rule: str
    words: str


@dataclass(frozen=True, eq=False)
class Library:
    """A library, by its module's name. Its functions take the module, and then one of its arrays."""

    module: str
    kind: str  # the name of its class of arrays
    dtypes: str  # what its dtypes' names begin with
    array: Callable[[Any, Any], Array]  # its memory as NumPy's
    like: Callable[[Any, Any], Callable[[Array], Any]]  # what makes NumPy's memory one of its own, beside the array
    written: Callable[[Any, Any], None]  # tells the library that the array's memory was written to
    detached: Callable[[Any, Any], Any]  # the array, whose gradients nobody asks for
    refused: tuple[Refusal, ...]
    not_written: tuple[Refusal, ...]  # what else is refused where a result is to be written to
    refused_there: tuple[Refusal, ...] = ()  # what ``array`` raises an error of, said in words of ours
    pool: str = OWN  # whose threads compute its arrays, if the context does not say

    @property
    def loaded(self) -> Any:
        """The module; None where it is not loaded, and so has made no array."""
        return sys.modules.get(self.module)

    def refusal(self, value: object, among: tuple[Refusal, ...]) -> Refusal | None:
        """Return the first of some refusals that holds of an array; None where none does."""
        module = self.loaded
        for refusal in among:
            if refusal.of(module, value):
                return refusal
        return None
