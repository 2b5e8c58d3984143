"""Maps: functions that compute each element of their results from the elements at the same place.

A map is a Python function of the arithmetic and of numbers, so its code is its definition. bf16 and f16 elements are
widened first, and results are rounded once to the type of their tensor. Every NaN becomes the canonical one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from convgrad.cached import cached_property
from convgrad.formats import F64
from convgrad.spec.elementwise.arithmetic import Number, NumpyOperations

Definition = Callable[..., Number | tuple[Number, ...]]


@dataclass(frozen=True)
class Map:
    """A function of elements and its definition. A call may store only the first of several results.

    ``ulps`` limits the error of a function of one number, in units in the last place of the exact result: 2^-23 times
    the power of two below it, at least 2^-149. A ``wide`` map computes in f64, and its numbers per row are f64. Its
    results are rounded to f32, and then to the type of their tensor, unless this is f64. Other maps, if they consist of
    operations of wide maps, do the same for tensors of f64.
    """

    name: str
    definition: Definition
    ulps: float = 0.0
    wide: bool = False

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """The names of the operands, in order."""
        return tuple(inspect.signature(self.definition).parameters)[1:]

    @cached_property
    def has_f64(self) -> bool:
        """Whether the map consists of operations that f64 has, too."""
        try:
            with np.errstate(all="ignore"):
                self.definition(NumpyOperations(np.float64), *[np.ones(1)] * len(self.operands))
        except TypeError:
            return False
        return True

    def is_wide(self, formats: Iterable[str]) -> bool:
        """Return whether the map computes in f64 on tensors of these formats."""
        return self.wide or F64.name in formats


class Maps(dict[str, Map]):
    """Maps by name."""

    def add(self, ulps: float = 0.0, wide: bool = False) -> Callable[[Definition], Definition]:
        """Return a decorator that adds a definition under its own name."""

        def decorator(definition: Definition) -> Definition:
            self[definition.__name__] = Map(definition.__name__, definition, ulps, wide)
            return definition

        return decorator
