"""The driver's arguments and tables in IR, read by name."""

from __future__ import annotations

from convgrad.engines.llvm.emit import Function, Value
from convgrad.plan.joins import JOIN
from convgrad.plan.schedule import ADDRESSES, FIELDS
from convgrad.plan.taps import SEGMENT, TAP

ENTRY_BYTES, INDEX_BYTES = 16, 16  # rows of two integers
TAP_BYTES, SEGMENT_BYTES, JOIN_BYTES = 8 * len(TAP), 8 * len(SEGMENT), 8 * len(JOIN)
_FIELD = {name: 8 * at for at, name in enumerate(FIELDS)}


class Arguments:
    """The arguments of the driver by name; each is loaded where it is used."""

    def __init__(self, f: Function) -> None:
        self.f = f

    def __getattr__(self, name: str) -> Value:
        pointer = name in ADDRESSES
        return self.f.load("ptr" if pointer else "i64", self.f.arguments, _FIELD[name])


def columns(f: Function, pointer: Value, names: tuple[str, ...]) -> dict[str, Value]:
    """Load a row of a table by its columns' names."""
    return {name: f.load("i64", pointer, 8 * at) for at, name in enumerate(names)}


def going(f: Function, a: Arguments) -> Value:
    """Tell whether nobody has raised the stop flag: a call that is interrupted ends within milliseconds."""
    return f.op("i1", f"icmp eq {f.op('i32', f'load atomic i32, {a.stop} monotonic, align 4')}, 0")


def bit(f: Function, bits: Value) -> Value:
    """Return the lowest bit of an integer."""
    return f.op("i1", f"trunc {bits} to i1")
