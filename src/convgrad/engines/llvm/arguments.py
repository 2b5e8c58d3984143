"""The driver's arguments in IR, read by name: ``a.rows.item`` is the field "rows.item"; those of weight gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from convgrad.engines.llvm.emit import Function, Value
from convgrad.plan.fields import ADDRESSES, CHUNK, FIELDS, SIDE
from convgrad.plan.lines import LINE
from convgrad.plan.taps import SEGMENT, TAP
from convgrad.plan.tasks import TASK
from convgrad.plan.tree import CHAIN

ENTRY_BYTES, INDEX_BYTES = 16, 16  # rows of two integers
CHAIN_BYTES, CHUNK_BYTES, LINE_ROW_BYTES, SEGMENT_BYTES, TAP_BYTES, TASK_BYTES = (
    8 * len(columns) for columns in (CHAIN, CHUNK, LINE, SEGMENT, TAP, TASK)
)
_FIELD = {name: 8 * at for at, name in enumerate(FIELDS)}


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


def arguments(f: Function) -> Named:
    """Return the driver's arguments, which a function has as ``arguments``: each is loaded where it is used."""
    return Named(lambda name: f.load("ptr" if name in ADDRESSES else "i64", f.arguments, _FIELD[name]))


def side_fields(f: Function, side: str) -> Value:
    """Return where the arguments of a side are, for what is the same for both."""
    return f.at(f.arguments, _FIELD[f"{side}.{SIDE[0]}"])


def of_side(f: Function, fields: Value) -> Named:
    """Return the arguments of a side that lie there."""
    return Named(lambda name: f.load("i64", fields, 8 * SIDE.index(name)))


def columns(f: Function, pointer: Value, names: Sequence[str]) -> Named:
    """Load a row of a table, to be read by its columns' names."""
    return Named({name: f.load("i64", pointer, 8 * at) for at, name in enumerate(names)}.__getitem__)


def going(f: Function, a: Named) -> Value:
    """Tell whether nobody has raised the stop flag: a call that is interrupted ends within milliseconds."""
    return f.op("i1", f"icmp eq {f.op('i32', f'load atomic i32, {a.stop} monotonic, align 4')}, 0")
