"""The driver's arguments and tables of a forward or a data gradient in IR, read by name."""

from __future__ import annotations

from collections.abc import Container, Sequence

from convgrad.engines.llvm.arguments import Named
from convgrad.engines.llvm.emit import Function
from convgrad.plan.forward.fields import BLOCK, CALL, PART, RUN, SLAB, TABLES, TASK, WINDOW_RUN, positions_fields
from convgrad.plan.forward.recipe import ForwardSpec

BLOCK_BYTES, PART_BYTES, RUN_BYTES, SLAB_BYTES, TASK_BYTES, WINDOW_RUN_BYTES = (
    8 * len(columns) for columns in (BLOCK, PART, RUN, SLAB, TASK, WINDOW_RUN)
)
_ADDRESSES = frozenset((*CALL, *TABLES, "paths"))


def arguments(f: Function, spec: ForwardSpec) -> Named:
    """Return the driver's arguments, which a function has as ``arguments``: each is loaded where it is used."""
    return named(f, positions_fields(spec.axes), _ADDRESSES)


def named(f: Function, names: Sequence[str], addresses: Container[str]) -> Named:
    """Return a driver's arguments of these names, of which some are addresses."""
    at = {name: 8 * number for number, name in enumerate(names)}
    return Named(lambda name: f.load("ptr" if name in addresses else "i64", f.arguments, at[name]))


def along(a: Named, spec: ForwardSpec) -> list[Named]:
    """Return the arguments of each axis."""
    return [a.of(f"axis{axis}") for axis in range(spec.axes)]
