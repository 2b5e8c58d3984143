"""Records in IR: a driver's arguments and rows of tables, loaded by name: ``a.rows.item`` is the column "rows.item"."""

from __future__ import annotations

from collections.abc import Callable

from convgrad.engines.llvm.emit import Function, Value
from convgrad.plan.backward_weights.schedule import ARGUMENTS
from convgrad.plan.records import Record


class Named:
    """Values by name, and those of a side, or of an axis, under its name."""

    def __init__(self, get: Callable[[str], Value], prefix: str = "") -> None:
        self._get, self._prefix = get, prefix

    def __getattr__(self, name: str) -> Value:
        return self._get(self._prefix + name)

    def named(self, name: str) -> Value:
        """Return a value whose name may have points in it."""
        return self._get(self._prefix + name)

    def of(self, side: str) -> Named:
        """Return the values of a side, or of an axis."""
        return Named(self._get, f"{self._prefix}{side}.")

    def but(self, **own: Value) -> Named:
        """Return the same values, but for some."""
        return Named(lambda name: own[name] if name in own else self.named(name))

    @property
    def rows(self) -> Named:
        """The values of the rows' side."""
        return self.of("rows")

    @property
    def lanes(self) -> Named:
        """The values of the lanes' side."""
        return self.of("lanes")


def arguments(f: Function, record: Record = ARGUMENTS) -> Named:
    """Return a driver's arguments, which a function has as ``arguments``: each is loaded where it is used."""
    return loaded_where_used(f, f.arguments, record)


def columns(f: Function, pointer: Value, record: Record) -> Named:
    """Load a row of a table."""
    row = loaded_where_used(f, pointer, record)
    return Named({name: row.named(name) for name in record.columns}.__getitem__)


def loaded_where_used(f: Function, pointer: Value, record: Record) -> Named:
    """Return the columns of a record, of which each is loaded where it is used."""
    return Named(lambda name: f.load("ptr" if name in record.addresses else "i64", pointer, record.at(name)))


def going(f: Function, a: Named) -> Value:
    """Return whether nobody has raised the stop flag: a call that is interrupted ends within milliseconds."""
    return f.op("i1", f"icmp eq {f.op('i32', f'load atomic i32, {a.stop} monotonic, align 4')}, 0")
