"""Sources: operands that are read region by region, with checks of the arrays that they return."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import prod
from typing import Any, Literal, Protocol, SupportsInt, TypeGuard

import numpy as np
from numpy.typing import DTypeLike

from convgrad import arrays, files
from convgrad.array_types import Array, Dtype
from convgrad.arrays import libraries
from convgrad.arrays.mapped import is_mapped
from convgrad.errors import FileError
from convgrad.formats import Format
from convgrad.spec.check import as_integer
from convgrad.spec.layouts import shape_words
from convgrad.spec.operators import find
from convgrad.spec.rules import refuse
from convgrad.spec.subproblems import Region

How = Literal["in place", "copied", "sliced"]

STEP_BYTES = 4 << 20  # bytes copied at a time: a stopped reader ends after one step


class Sliced(Protocol):
    """An object that can be sliced like an array. What it returns is checked when it is used."""

    @property
    def shape(self) -> Sequence[int]:
        """The extents of the axes."""

    @property
    def dtype(self) -> DTypeLike:
        """The type of the elements."""

    def __getitem__(self, region: Region, /) -> Any:
        """Return an array of the elements of a region."""


class Stopped(Exception):
    """The exception that ends a read after its caller has stopped it."""


@dataclass(frozen=True, eq=False)
class OperandSource:
    """An operand: the object to slice, the way to read it, and the extents of its chunks if all are equal.

    Arrays in memory are used ``in place``. Arrays that map files or have foreign byte order are ``copied`` into memory
    that is reused. All other objects are ``sliced``, and each slice is a new array.
    """

    operator: str
    name: str
    operand: Sliced
    shape: tuple[int, ...]
    format: Format
    how: How
    chunks: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """The bytes of the whole operand."""
        return prod(self.shape) * self.format.itemsize

    def bytes_of(self, region: Region) -> int:
        """Return the number of bytes of a region."""
        return prod(len(range(interval.start, interval.stop)) for interval in region) * self.format.itemsize

    def of(self, array: Array) -> OperandSource:
        """Return a source of the same operand after it was read whole into an array."""
        return replace(self, operand=array, how="in place", chunks=())

    def read_whole(self) -> Array:
        """Return the whole operand, in memory."""
        room = arrays.aligned((self.nbytes,), np.dtype(np.uint8)) if self.how == "copied" else None
        return self.read(tuple(slice(0, extent) for extent in self.shape), room, lambda: False)

    def read(self, region: Region, room: Array | None, stopped: Callable[[], bool]) -> Array:
        """Return the array of a region. If it is copied, its memory is ``room``, an array of bytes.

        Errors name the operand and the region.
        """
        if self.how == "in place":
            view: Array = self.operand[region]
            return view
        shape = tuple(interval.stop - interval.start for interval in region)
        try:
            if self.how == "copied":
                assert room is not None, "what is copied has memory"
                into: Array = np.ndarray(shape, self.format.dtype, room)
                _copy(self.operand[region], into, stopped)
                return into
            sliced = self.operand[region]
            got = np.asarray(sliced)
        except (Stopped, MemoryError):
            raise
        except Exception as error:
            raise FileError(f"{self._reading(region)} failed: {type(error).__name__}: {error}") from error
        if arrays.is_masked(sliced) and np.any(sliced.mask):
            raise FileError(f"{self._reading(region)} must give a plain array; got masked elements")
        if got.shape != shape or native(got.dtype) != self.format.dtype:
            must = f"{self.format} {shape_words(shape)}"
            raise FileError(f"{self._reading(region)} must give {must}; got {got.dtype} {shape_words(got.shape)}")
        return arrays.native(got, self.format)

    def _reading(self, region: Region) -> str:
        return f"{self.operator}: reading {words_of(self.name, region)}"


def words_of(name: str, region: Region) -> str:
    """Return a region of an array as text, for example ``src[0:2, 3:5]``."""
    return f"{name}[{', '.join(f'{interval.start}:{interval.stop}' for interval in region)}]"


def at_place(value: object, fmt: Format | None = None) -> object:
    """Return the array at a place in a file or a folder of Zarr, or any other value unchanged.

    If the file contains a shape, which is a list of integers, the list is returned. ``fmt`` is that of ``files.read``.
    """
    if not isinstance(value, os.PathLike) and not (isinstance(value, str) and files.is_place(value)):
        return value
    array = files.mapped(os.fspath(value), fmt)
    return np.asarray(array[...]).tolist() if array.dtype.kind in "iu" and array.ndim == 1 else array


def is_sliced(value: object) -> TypeGuard[Sliced]:
    """Return whether a value is not an array in memory, but can be sliced like one."""
    if value is None or isinstance(value, np.ndarray | np.generic | list | tuple) or libraries.library_of(value):
        return False
    return all(hasattr(value, name) for name in ("shape", "dtype", "__getitem__"))


def stand_in(value: object, operator: str, name: str) -> object:
    """Return a placeholder for checks: an array of an operand's type and shape that needs no memory.

    Shape operands, and values that are not arrays, are returned unchanged.
    """
    if is_sliced(value) and not arrays.is_shape(value):
        shape, dtype = announced(value, operator, name)
        return arrays.stand_in(shape, native(dtype))
    if (type(value) is np.ndarray or isinstance(value, np.memmap)) and not arrays.is_shape(value):
        return arrays.stand_in(value.shape, native(value.dtype))
    return value


def native(dtype: Dtype) -> Dtype:
    """Return a type in the machine's byte order."""
    return dtype if dtype.isnative else dtype.newbyteorder("=")


def stand_ins(operator: str, values: Sequence[object]) -> tuple[object, ...]:
    """Return placeholders for the operands of an operator, so that the call can be checked without reading them."""
    names = [port.name for port in find(operator).operands]
    return tuple(
        stand_in(value, operator, names[at] if at < len(names) else f"operand {at}") for at, value in enumerate(values)
    )


def announced(value: Sliced, operator: str, name: str) -> tuple[tuple[int, ...], Dtype]:
    """Return the ``shape`` and ``dtype`` of an object that can be sliced, or raise the error of rule G9 or T1."""
    said = value.shape
    extents = [as_integer(extent) for extent in said] if isinstance(said, Iterable) else [None]
    shape = tuple(extent for extent in extents if extent is not None and extent >= 0)
    if len(shape) < len(extents):  # G9
        refuse("G9", operator, f"{name} must have a shape of non-negative integers; got shape {said}")
    try:
        return shape, np.dtype(value.dtype)
    except TypeError:  # T1
        refuse("T1", operator, f"{name} must have the dtype of a NumPy array; got {value.dtype!r:.200}")


def source_of(operator: str, name: str, value: object, shape: tuple[int, ...], fmt: Format) -> OperandSource:
    """Return the source of a checked operand."""
    if is_sliced(value):
        return OperandSource(operator, name, value, shape, fmt, "sliced", chunks_of(value))
    array, _ = arrays.take(value, operator, name)
    how: How = "copied" if is_mapped(array) or not array.dtype.isnative else "in place"
    return OperandSource(operator, name, array, array.shape, fmt, how, ())


def chunks_of(value: Sliced) -> tuple[int, ...]:
    """Return the extents of a value's chunks, one per axis; an empty tuple without chunks, or if chunks differ.

    >>> from types import SimpleNamespace
    >>> chunks_of(SimpleNamespace(shape=(7, 5), chunks=((3, 3, 1), (5,)))), chunks_of(SimpleNamespace(chunks=None))
    ((3, 5), ())
    """
    chunks = getattr(value, "chunks", None)
    if not isinstance(chunks, Sequence) or not chunks or len(chunks) != len(value.shape):
        return ()
    extents = [_chunk(axis_chunks) for axis_chunks in chunks]
    return tuple(extents) if all(extents) else ()


def _chunk(extents: SupportsInt | Sequence[int]) -> int:
    """Return the extent of an axis's chunks, or 0 if they differ. The last chunk may be smaller."""
    if not isinstance(extents, Sequence):
        return int(extents)
    ends = [0, *accumulate(extents)]
    begins_regular = all(begin % max(1, extents[0]) == 0 for begin in ends[:-1])
    return int(extents[0]) if begins_regular and all(b - a <= extents[0] for a, b in pairwise(ends)) else 0


def _copy(array: Array, into: Array, stopped: Callable[[], bool]) -> None:
    """Copy an array in steps along the first axis that has an extent above 1. NumPy releases the GIL in each step."""
    if array.dtype == into.dtype and into.dtype.isbuiltin != 1:  # as integers: faster
        array, into = array.view(f"u{into.itemsize}"), into.view(f"u{into.itemsize}")
    axis = next((axis for axis, extent in enumerate(into.shape) if extent > 1), 0)
    lead = (slice(None),) * axis
    lines = into.shape[axis] if into.ndim else 0
    step = max(1, STEP_BYTES * lines // max(1, into.nbytes))
    for begin in range(0, lines, step):
        if stopped():
            raise Stopped
        some = (*lead, slice(begin, begin + step))
        np.copyto(into[some], array[some])
