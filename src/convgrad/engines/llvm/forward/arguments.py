"""The driver's arguments of a forward or a data gradient in IR."""

from __future__ import annotations

from typing import Any

from convgrad.engines.llvm import arguments as records
from convgrad.engines.llvm.arguments import Named
from convgrad.engines.llvm.emit import Function
from convgrad.plan.passes import arguments_of


def arguments(f: Function, spec: Any) -> Named:
    """Return the driver's arguments, which a function has as ``arguments``: each is loaded where it is used."""
    return records.arguments(f, arguments_of(spec))


def along(a: Named, spec: Any) -> list[Named]:
    """Return the arguments of each axis."""
    return [a.of(f"axis{axis}") for axis in range(spec.axes)]
