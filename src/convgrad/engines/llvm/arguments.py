"""Records in IR: a driver's arguments and rows of tables, by name. ``a.of("out").step`` is the column "out.step"."""

from __future__ import annotations

from collections.abc import Callable

from convgrad.engines.llvm.emit import Function, Value
from convgrad.plan.records import Record


class Named:
    """Values that are attributes, by name. The name of an operand's value begins with the operand, as in "out.step"."""

    def __init__(self, get: Callable[[str], Value], prefix: str = "") -> None:
        self._get, self._prefix = get, prefix

    def __getattr__(self, name: str) -> Value:
        return self._get(self._prefix + name)

    def named(self, name: str) -> Value:
        """Return the value of this name, which need not be a Python identifier."""
        return self._get(self._prefix + name)

    def of(self, side: str) -> Named:
        """Return the values of the operand or axis ``side``, whose names then need no prefix."""
        return Named(self._get, f"{self._prefix}{side}.")

    def but(self, **own: Value) -> Named:
        """Return the same values, except those that are given by name."""
        return Named(lambda name: own[name] if name in own else self.named(name))


def arguments(f: Function, record: Record) -> Named:
    """Return the driver's arguments from a function's parameter ``arguments``. Each use loads the argument again."""
    return loaded_where_used(f, f.arguments, record)


def columns(f: Function, pointer: Value, record: Record, *some: str) -> Named:
    """Load all columns of the table row at ``pointer``, or only the columns ``some``."""
    row = loaded_where_used(f, pointer, record)
    return Named({name: row.named(name) for name in some or record.columns}.__getitem__)


def fill(f: Function, pointer: Value, record: Record, **row: Value) -> None:
    """Store all columns of the table row at ``pointer``."""
    assert set(row) == set(record.columns), "a row has the columns of its record"
    for name, value in row.items():
        f.store(value, pointer, record.at(name))


def loaded_where_used(f: Function, pointer: Value, record: Record) -> Named:
    """Return the columns of the record at ``pointer``. Each use loads the column again."""
    return Named(lambda name: f.load("ptr" if name in record.addresses else "i64", pointer, record.at(name)))


def going(f: Function, a: Named) -> Value:
    """Return whether the stop flag is clear. Loops check it often, so an interrupted call ends within milliseconds."""
    return f.op("i1", f"icmp eq {f.op('i32', f'load atomic i32, {a.stop} monotonic, align 4')}, 0")
