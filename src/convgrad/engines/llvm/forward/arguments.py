"""The driver's arguments of a forward or a data gradient in IR."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from convgrad.engines.llvm import arguments as records
from convgrad.engines.llvm.arguments import Named
from convgrad.engines.llvm.emit import Function, Value
from convgrad.plan.passes import arguments_of


def arguments(f: Function, spec: Any) -> Named:
    """Return the driver's arguments, which a function has as ``arguments``: each is loaded where it is used."""
    return records.arguments(f, arguments_of(spec))


def along(a: Named, spec: Any) -> list[Named]:
    """Return the arguments of each axis."""
    return [a.of(f"axis{axis}") for axis in range(spec.axes)]


def each_tap(
    f: Function, parts: Sequence[Named], state: dict[str, Value], body: Callable[..., dict[str, Value]],
    tap: Value | None = None, data: Value | None = None,
) -> dict[str, Value]:  # fmt: skip
    """Visit the taps of a part of each axis row-major: ``body`` takes a number, the data's offset and the state."""
    tap, data = tap or f.value(0), data or f.value(0)
    if not parts:
        return body(tap, data, state)
    part, *inner = parts
    with f.loop(part.taps, tap=tap + part.tap, data=data, **state) as each:
        after = each_tap(f, inner, {name: each.carried[name] for name in state}, body, each.tap, each.data)
        each.next(tap=each.tap + part.tap_step, data=each.data + part.tap_data, **after)
    return {name: each.carried[name] for name in state}
