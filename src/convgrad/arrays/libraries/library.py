"""The description of an array library: conversions from and to NumPy arrays, and arrays that are refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

from convgrad.array_types import Array
from convgrad.engines.settings import OWN

Foreign = Any  # an array of the library, whose types are known only if the library is installed


class Refusal(NamedTuple):
    """A reason to refuse an array: a test of the array, the rule, and the message.

    In the message, ``{name}`` is replaced by the operand's name, and ``{got}`` by the array.
    """

    of: Callable[[ModuleType, Foreign], bool]
    rule: str
    words: str


@dataclass(frozen=True, eq=False)
class Library:
    """An array library. The functions take the library's module and one of the library's arrays."""

    module: str
    kind: str  # the name of the library's array class
    dtypes: str  # the prefix of dtype names, such as "torch."
    array: Callable[[ModuleType, Foreign], Array]  # returns the array as a NumPy array
    # ``like`` returns a function that converts NumPy arrays to this library
    like: Callable[[ModuleType, Foreign], Callable[[Array], Foreign]]
    written: Callable[[ModuleType, Foreign], None]  # notifies the library that the array's memory was written to
    detached: Callable[[ModuleType, Foreign], Foreign]  # returns the array without its history of gradients
    refused: tuple[Refusal, ...]
    not_written: tuple[Refusal, ...]  # further refusals, for an ``out`` array
    refused_there: tuple[Refusal, ...] = ()  # refusals that are tested only after an error of ``array``
    unshared: Callable[[ModuleType, Foreign], object] = lambda module, array: (
        None
    )  # gives an array that is to be written own memory
    pool: str = OWN  # the pool whose threads compute, unless the context selects a pool

    @property
    def loaded(self) -> Any:
        """The library's module; None if it is not imported, so that no arrays of it exist."""
        return sys.modules.get(self.module)

    def refusal(self, value: object, among: tuple[Refusal, ...]) -> Refusal | None:
        """Return the first refusal of ``among`` that applies to an array; None if none applies."""
        module = self.loaded
        for refusal in among:
            if refusal.of(module, value):
                return refusal
        return None
