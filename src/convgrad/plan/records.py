"""Records: named columns of tables and named arguments of compiled drivers.

A schedule writes the values of a record by name, and a kernel loads them by name. Each column has 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from convgrad.cached import cached_property
from convgrad.plan.tables import Ints, wrapped

COLUMN_BYTES = 8


class Record:
    """The columns of a table row, in order; ``addresses`` are the columns that a kernel loads as pointers.

    >>> line = Record("first", "count")
    >>> line.bytes, line.at("count")
    (16, 8)
    >>> (addresses("data") + line.within("axis0")).columns
    ('data', 'axis0.first', 'axis0.count')
    """

    def __init__(self, *columns: str, addresses: Iterable[str] = ()) -> None:
        self.columns, self.addresses = columns, frozenset(addresses)
        self.bytes = COLUMN_BYTES * len(columns)

    def __add__(self, other: Record) -> Record:
        return Record(*self.columns, *other.columns, addresses=self.addresses | other.addresses)

    def within(self, name: str) -> Record:
        """Return a record with the prefix ``name.`` before all column names. ``name`` is, for example, an axis."""
        return Record(
            *(f"{name}.{column}" for column in self.columns),
            addresses=(f"{name}.{column}" for column in self.addresses),
        )

    def index(self, column: str) -> int:
        """Return the position of a column in the row, counted from 0."""
        return self._numbers[column]

    def at(self, column: str) -> int:
        """Return the offset of a column from the begin of its row, in bytes."""
        return COLUMN_BYTES * self._numbers[column]

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        return {column: number for number, column in enumerate(self.columns)}

    def values(self, name: str, /, **columns: int) -> dict[str, int]:
        """Return the given values of all columns, under the column names of ``within(name)``."""
        self._check(columns)
        return {f"{name}.{column}": value for column, value in columns.items()}

    def table(self, count: int, /, **columns: Ints | int) -> Ints:
        """Return a table of ``count`` rows from one array per column; a number fills its whole column.

        >>> Record("first", "end").table(2, end=1 << 63, first=np.arange(2)).tolist()
        [[0, -9223372036854775808], [1, -9223372036854775808]]
        """
        self._check(columns)
        table = np.empty((count, len(self.columns)), np.int64)
        for number, column in enumerate(self.columns):
            values = columns[column]
            table[:, number] = values if isinstance(values, np.ndarray) else wrapped(values)
        return table

    def rows(self, rows: Iterable[Mapping[str, int]]) -> Ints:
        """Return a table of rows that are given as mappings from all column names to values.

        >>> Record("first", "end").rows([{"end": 3, "first": 1}]).tolist()
        [[1, 3]]
        """
        wrapped_rows = []
        for row in rows:
            self._check(row)
            wrapped_rows.append([wrapped(row[column]) for column in self.columns])
        return np.array(wrapped_rows, np.int64).reshape(-1, len(self.columns))

    def _check(self, names: Iterable[str]) -> None:
        wrong = set(self.columns) ^ set(names)
        assert not wrong, f"columns that only the record or only the row has: {', '.join(sorted(wrong))}"


def addresses(*columns: str) -> Record:
    """Return a record whose columns are all addresses."""
    return Record(*columns, addresses=columns)


SHARES = 8  # the largest number of shares of a call's tasks: each thread begins with one of them
CLAIMED = Record("claimed", *[f"claimed.{share}" for share in range(1, SHARES)])  # how many tasks of each are claimed
SHARED = Record("shares") + CLAIMED + Record("pending", "active", "stop")
"""The integers that all threads of a call use, after its arguments. Those after the number of shares are 0 at first."""
FLAGS = addresses("shares", "claimed", "pending", "active", "stop")  # their addresses, among the arguments
