"""How tensors of elementwise functions and sums are stored: formats and strides in bytes, without addresses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Extents = tuple[int, int, int]  # outer axis, rows, columns
PER_ROW = ""  # the format of an operand that has one number per row: f32, or f64 in wide maps


class Strided(NamedTuple):
    """An operand or a result of a map. It is contiguous along the columns, or an operand has one number per row."""

    fmt: str
    outer: int  # the stride of the outer axis; 0 repeats an operand
    row: int  # the stride of the rows


class Lists(NamedTuple):
    """Lists of dense tensors, one list per operand or result that is not a number.

    ``formats`` has PER_ROW for numbers. The rows of ``addresses`` have one tensor of each list, with ``lengths``
    elements. No result may overlap a tensor of another row.
    """

    formats: tuple[str, ...]
    addresses: NDArray[np.int64]
    lengths: NDArray[np.int64]


class Summands(NamedTuple):
    """The sums per channel of a map on operands of the shape (images, channels, positions).

    ``channels_last`` is whether channels are contiguous, instead of positions. Then the rows of ``operands`` are
    positions, else they are channels, and the outer axis is that of images. The map's first result is summed if
    ``plain``, and its product with the second one if ``products``. If images are not ``combined``, each has sums of
    its own. The last one of ``tensors`` is a dense f32 tensor for the map's first result if it is ``stored``.
    """

    name: str
    tensors: tuple[Strided, ...]
    shape: Extents
    channels_last: bool
    plain: bool
    products: bool
    combined: bool
    stored: bool = False

    @property
    def operands(self) -> tuple[Strided, ...]:
        """The operands of the map."""
        return self.tensors[:-1] if self.stored else self.tensors

    @property
    def sums(self) -> int:
        """The number of sums per channel."""
        return self.plain + self.products


class PreparedCall(Protocol):
    """A compiled call without the addresses of its tensors."""

    def __call__(self, addresses: Sequence[int], keep: object) -> None:
        """Run on tensors at these addresses; ``keep`` keeps their memory alive."""
