"""Values that are no sequence of integers as attributes want them: too long, endless, of other types, or hostile."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

LONG = 10**6


class Raises(Sequence[int]):
    """A sequence of a caller's own class, of which each method raises."""

    def __len__(self) -> int:
        raise RuntimeError("no length")

    def __getitem__(self, at: Any) -> NoReturn:
        raise RuntimeError("no items")

    def __repr__(self) -> str:
        raise RuntimeError("no text")


class RaisesLater(Raises):
    """A sequence that has a length only."""

    def __len__(self) -> int:
        return 1


class Endless(Sequence[int]):
    """A sequence whose length and items do not end."""

    def __len__(self) -> int:
        return 2**62

    def __getitem__(self, at: Any) -> Any:
        return 1


class NoIndex:
    """An integer, as it says, that has no value."""

    def __index__(self) -> int:
        raise ValueError("no index")


def _released() -> memoryview:
    view = memoryview(bytearray(2))
    view.release()
    return view


def _generated() -> Iterator[int]:
    yield from [1, 1]


ODD: Mapping[str, Callable[[], Any]] = {
    "range": lambda: range(10**9),
    "long list": lambda: [1] * LONG,
    "long tuple": lambda: (1,) * LONG,
    "long array": lambda: np.ones(LONG, np.int64),
    "endless iterator": itertools.count,
    "repeated": lambda: itertools.repeat(1),
    "generator": _generated,
    "endless sequence": Endless,
    "dict": lambda: {1: 1},
    "set": lambda: {1},
    "text": lambda: "11",
    "long text": lambda: "1" * LONG,
    "bytes": lambda: b"11",
    "bytearray": lambda: bytearray(b"11"),
    "matrix": lambda: np.ones((2, 2), np.int64),
    "floats": lambda: np.ones(2),
    "bools": lambda: [True, True],
    "0-d floats": lambda: np.array(1.5),
    "2-D memoryview": lambda: memoryview(np.ones((2, 2), np.int64)),
    "0-d memoryview": lambda: memoryview(np.array(1.5)),
    "released memoryview": _released,
    "nested": lambda: [[1], [1]],
    "long nested": lambda: [[1] * LONG],
    "None in a list": lambda: [None, None],
    "large integer": lambda: [10**5000],
    "large number": lambda: 10**5000,
    "float": lambda: 1.5,
    "complex": lambda: 1j,
    "object": object,
    "class": lambda: list,
    "raises": Raises,
    "raises later": RaisesLater,
    "no index": lambda: [NoIndex()],
    "no index alone": NoIndex,
}
