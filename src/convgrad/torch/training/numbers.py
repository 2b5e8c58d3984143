"""The numbers of optimizers in Python, such as ``beta ** step``: the bits of the C library's pow differ by machine."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from convgrad.spec.elementwise.arithmetic import NumpyOperations
from convgrad.spec.elementwise.table import MAPS


def power(base: float, exponent: float) -> float:
    """Return a power by products if the exponent is a whole number, by a root if it is 1/2, or by the map in f64."""
    if exponent == 0.5 and base >= 0:
        return math.sqrt(base)
    if exponent >= 0 and float(exponent).is_integer():
        result = 1.0
        for bit in f"{int(exponent):b}":
            result = result * result * (base if bit == "1" else 1.0)
        return result
    operands = np.array([base]), np.array([exponent])
    with np.errstate(all="ignore"):
        return float(MAPS["power"].definition(NumpyOperations(np.float64), *operands)[0])


class SpecifiedFloat(float):
    """A float whose powers, and those of results that are computed from it, have specified bits."""

    def __pow__(self, exponent: Any, modulo: None = None) -> Any:
        """Return a power of the number."""
        return SpecifiedFloat(power(self, exponent)) if isinstance(exponent, float | int) else NotImplemented

    def __rpow__(self, base: Any, modulo: None = None) -> Any:
        """Return a power whose exponent is the number."""
        return SpecifiedFloat(power(base, self)) if isinstance(base, float | int) else NotImplemented


def _in_class(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Return a float's operation with a result of this class."""

    @wraps(operation)
    def computed(*numbers: Any) -> Any:
        result = operation(*numbers)
        return SpecifiedFloat(result) if isinstance(result, float) else result

    return computed


for _name in [
    "add",
    "radd",
    "sub",
    "rsub",
    "mul",
    "rmul",
    "truediv",
    "rtruediv",
    "floordiv",
    "mod",
    "neg",
    "pos",
    "abs",
]:
    setattr(SpecifiedFloat, f"__{_name}__", _in_class(getattr(float, f"__{_name}__")))


def specified(value: Any) -> Any:
    """Return a float or a tuple of floats, such as betas, with specified powers; other values as they are."""
    if type(value) is float:
        return SpecifiedFloat(value)
    if type(value) is tuple and any(type(number) is float for number in value):
        return tuple([specified(number) for number in value])
    return value
