"""Access to a driver's arguments in the IR of forward passes and data gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from convgrad.engines.llvm import arguments as records
from convgrad.engines.llvm.arguments import Named
from convgrad.engines.llvm.emit import Function, Value
from convgrad.plan.passes import arguments_of
from convgrad.plan.recipe import Spec


class SpatialSpec(Spec, Protocol):
    """A specification that has a number of axes."""

    @property
    def axes(self) -> int:
        """The number of axes."""


def arguments(f: Function, spec: Spec) -> Named:
    """Return the driver's arguments from a function's parameter ``arguments``. Each use loads the argument again."""
    return records.arguments(f, arguments_of(spec))


def along(a: Named, spec: SpatialSpec) -> list[Named]:
    """Return the driver's arguments for each spatial axis."""
    return [a.of(f"axis{axis}") for axis in range(spec.axes)]


def each_tap(
    f: Function,
    parts: Sequence[Named],
    state: dict[str, Value],
    body: Callable[..., dict[str, Value]],
    tap: Value | None = None,
    data: Value | None = None,
) -> dict[str, Value]:
    """Visit the taps of one part per axis, row-major, and return the last state.

    ``body`` takes a tap's number, its offset in the data, and the state, and returns the new state.
    """
    tap, data = tap or f.value(0), data or f.value(0)
    if not parts:
        return body(tap, data, state)
    part, *inner = parts
    with f.loop(part.taps, tap=tap + part.tap, data=data, **state) as iteration:
        after = each_tap(
            f, inner, {name: iteration.carried[name] for name in state}, body, iteration.tap, iteration.data
        )
        iteration.next(tap=iteration.tap + part.tap_step, data=iteration.data + part.tap_data, **after)
    return {name: iteration.carried[name] for name in state}
