"""Where a result is written, region by region: an array in memory or in a file, or anything that takes regions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad import arrays, formats, libraries
from convgrad.errors import FileError
from convgrad.scale.source import announced, file_of, is_sliced, native, region_words
from convgrad.spec.layouts import shape_words
from convgrad.spec.problem import Problem
from convgrad.spec.rules import refuse
from convgrad.spec.slabs import Region

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Target:
    """What was given as ``out``, if anything, and the array that it is; None where it only takes regions."""

    operator: str
    out: Any
    array: Array | None
    accumulate: bool

    @property
    def is_staged(self) -> bool:
        """Whether results are computed beside it and handed over."""
        return self.array is None

    def room(self, region: Region) -> Array:
        """Return memory for a region of the result, with the old value where that is added to."""
        if self.array is not None:
            view: Array = self.array[region]
            return view
        shape, dtype = tuple(one.stop - one.start for one in region), native(np.dtype(self.out.dtype))
        if not self.accumulate:
            return arrays.empty(shape, dtype)
        with self._named("reading", region):
            old = np.array(self.out[region], order="C")
        if old.shape != shape or native(old.dtype) != dtype:
            got = f"{old.dtype} {shape_words(old.shape)}"
            raise FileError(f"{self._doing('reading', region)} must give {dtype} {shape_words(shape)}; got {got}")
        return old.astype(dtype, copy=False)

    def write(self, region: Region, result: Array) -> None:
        """Hand over what was computed in a room; whatever goes wrong names the region."""
        if self.array is None:
            with self._named("writing", region):
                self.out[region] = result

    @contextmanager
    def _named(self, what: str, region: Region) -> Iterator[None]:
        try:
            yield
        except MemoryError:
            raise
        except Exception as error:
            raise FileError(f"{self._doing(what, region)} failed: {type(error).__name__}: {error}") from error

    def _doing(self, what: str, region: Region) -> str:
        return f"{self.operator}: {what} out[{region_words(region)}]"

    def handed_over(self) -> Any:
        """Return it as the caller has it."""
        if self.array is not None and self.array is not self.out:
            libraries.written(self.out)
        return self.out


def target_of(problem: Problem, out: Any, taken: Mapping[str, Any]) -> Target:
    """Return where a problem's result goes, by rules D2 to D4, T5; ``taken`` are the operands."""
    shape, fmt, operator = problem.output_shape, problem.output_format, problem.operator
    if out is None:
        made = arrays.empty(shape, fmt.dtype)
        return Target(operator, made, made, problem.accumulate)
    if not is_sliced(out):
        lie = {name: given for name, given in taken.items() if isinstance(given, np.ndarray)}
        array = arrays.check_out(out, shape, fmt, lie, operator).view(np.ndarray)
        _check_files(operator, out, lie)
        return Target(operator, out, array, problem.accumulate)
    said, dtype = announced(out, operator, "out")
    if formats.of_dtype(dtype) is not fmt:  # T5
        refuse("T5", operator, f"out must be of {fmt}, the output's type; got {dtype}")
    if said != shape:  # D2
        refuse("D2", operator, f"out must have the output's shape {shape}; got {said}")
    for name, given in taken.items():
        if given is out:  # D4
            refuse("D4", operator, f"out must not overlap an operand; got {name} itself")
    if not hasattr(out, "__setitem__"):  # D3
        refuse("D3", operator, f"out must take out[region] = array; got {type(out).__name__}")
    return Target(operator, out, None, problem.accumulate)


def _check_files(operator: str, out: Any, lie: Mapping[str, Array]) -> None:
    """Check that a map of a file that is written is none of what is read from another map of it, by rule D4."""
    written = _span(out)
    for name, given in lie.items():
        read = _span(given)
        if written and read and written[0] == read[0] and max(written[1], read[1]) < min(written[2], read[2]):  # D4
            refuse("D4", operator, f"out must not overlap an operand; got the part of {read[0]} that {name} lies in")


def _span(array: Array) -> tuple[str, int, int] | None:
    """Return the file that a map of one lies in, and from and to which of its bytes."""
    place = file_of(array)
    if place is None or not array.size:
        return None
    steps = [stride * (extent - 1) for stride, extent in zip(array.strides, array.shape, strict=True)]
    begin, end = (place[1] + sum(side(step, 0) for step in steps) for side in (min, max))
    return place[0], begin, end + array.itemsize
