"""How tensors of elementwise functions and sums are stored: formats and strides in bytes, without addresses."""

from __future__ import annotations

from typing import NamedTuple

Extents = tuple[int, int, int]  # outer axis, rows, columns
TASK_ELEMENTS = 1 << 14  # elements of a task of a map; a call on fewer needs one thread
REMEMBERED_LISTS = 32  # calls on lists, each with a row of a table for each of its tasks
PER_ROW = ""  # the format of an operand that has one number per row: f32, or f64 in wide maps


def rows_of_task(columns: int) -> int:
    """Return the number of rows of a task of a map or of sums."""
    return max(1, TASK_ELEMENTS // max(1, columns))


class Strided(NamedTuple):
    """An operand or a result of a map. It is contiguous along the columns, or an operand has one number per row."""

    fmt: str
    outer: int  # the stride of the outer axis; 0 repeats an operand
    row: int  # the stride of the rows


class Lists(NamedTuple):
    """Lists of dense tensors: the operands of a map that are not numbers. The results replace the first operands.

    ``formats`` are those of the lists. The map's other operands are f32 ``numbers``, for all tensors. The tensors at
    one place of all lists have a number of elements from ``lengths``. No result may overlap a tensor at another place.
    """

    formats: tuple[str, ...]
    numbers: int
    results: int
    lengths: tuple[int, ...]

    @property
    def all_formats(self) -> tuple[str, ...]:
        """The formats of the map's operands and results; a number is PER_ROW."""
        return *self.formats, *[PER_ROW] * self.numbers, *self.formats[: self.results]


class Combinations(NamedTuple):
    """Combinations of positions along an axis of a dense tensor (images, rows, positions, columns), by a table.

    ``formats`` are those of the tensor and of the results. The table has ``results`` with at most ``terms`` terms.
    Sums start with +0 if ``from_zero``, else with -0. No result needs another image.
    """

    formats: tuple[str, str]
    images: int
    rows: int
    positions: int
    columns: int
    results: int
    terms: int
    from_zero: bool

    @property
    def outers(self) -> int:
        """The number of rows of all images."""
        return self.images * self.rows


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
