"""Values that are equal to legal ones and not the same: a call's answer must not depend on earlier calls."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from fractions import Fraction
from typing import Any

import numpy as np


class Integer(int):
    """An integer of a class of its own."""


class Text(str):
    """A string of a class of its own."""

    __slots__ = ()


def alike(value: Any) -> Iterator[Any]:
    """Yield values that are equal to a value, and of other types."""
    if isinstance(value, tuple | list):
        yield tuple(value) if isinstance(value, list) else list(value)
        for each in alike(value[0]):
            yield (each, *value[1:])
            yield [*value[:-1], each] if value[-1] == value[0] else [each, *value[1:]]
    elif isinstance(value, str):
        yield from (Text(value), np.str_(value))
    elif isinstance(value, bool | int | float):
        yield from (float(value), np.float64(value), np.float32(value), Fraction(value), complex(value))
        if value == int(value):
            yield from (int(value), Integer(value), np.int64(value), IntEnum("Number", [("ONE", int(value))])(value))
        if value in (0, 1):
            yield from (bool(value), np.bool_(value))
        if value == 0:
            yield -0.0


_UNCHECKED = ("convgrad.engines.llvm", "convgrad.starting", "convgrad.plan", "convgrad.host", "convgrad.verify")


def caches() -> list[Callable[[], None]]:
    """Return what empties each cache of results of the package's functions, except of code that checks no call."""
    modules = [module for name, module in sys.modules.items() if f"{name}.".startswith("convgrad.")]
    found = {id(each): each for module in modules for each in vars(module).values() if hasattr(each, "cache_clear")}
    return [each.cache_clear for each in found.values() if not each.__module__.startswith(_UNCHECKED)]


def answer(call: Callable[..., Any], options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a call answers: its result, or its error with the message."""
    try:
        result = call(**options)
    except Exception as error:
        return type(error).__name__, str(error)
    if isinstance(result, tuple):
        result = result[0] if hasattr(result[0], "shape") else np.array(result)
    if not hasattr(result, "shape"):
        return type(result).__name__, str(result) if type(result).__str__ is not object.__str__ else ""
    array = np.asarray(result.detach().float() if hasattr(result, "detach") else result)
    return type(result).__name__, str(array.shape), str(array.dtype), array.tobytes().hex()


def differences(call: Callable[..., Any], options: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return which answers to a call differ after a call with an equal value of another type."""
    found = []
    call()  # loads what later calls load
    every = caches()

    def anew() -> None:
        for clear in every:
            clear()

    for name, legals in options.items():
        for legal in legals:
            anew()
            right = answer(call, {name: legal})
            for other in alike(legal):
                anew()
                cold, legal_after = answer(call, {name: other}), answer(call, {name: legal})
                anew()
                answer(call, {name: legal})
                warm = answer(call, {name: other})
                if cold != warm or legal_after != right:
                    found.append(f"{name}={other!r} ({type(other).__name__}): {cold[:2]}, then {warm[:2]}")
    return found
