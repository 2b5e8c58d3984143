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
from convgrad.scale.mapped import part_of
from convgrad.scale.source import announced, is_sliced, native, region_words
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
        for name, given in lie.items():
            _check_other_bytes(operator, array, name, given)
        return Target(operator, out, array, problem.accumulate)
    said, dtype = announced(out, operator, "out")
    if formats.of_dtype(dtype) is not fmt:  # T5
        refuse("T5", operator, f"out must be of {fmt}, the output's type; got {dtype}")
    if said != shape:  # D2
        refuse("D2", operator, f"out must have the output's shape {shape}; got {said}")
    for name, given in taken.items():
        if given is out:  # D4
            refuse("D4", operator, f"out must not overlap an operand; got what {name} is read from")
    if not hasattr(out, "__setitem__"):  # D3
        refuse("D3", operator, f"out must take out[region] = array; got {type(out).__name__}")
    return Target(operator, out, None, problem.accumulate)


def _check_other_bytes(operator: str, out: Array, name: str, operand: Array) -> None:
    """Refuse an operand in the bytes of a file that are written, which another map of it does not share memory with."""
    written, read = part_of(out), part_of(operand)
    if written and read and written.meets(read):  # D4
        refuse("D4", operator, f"out must not overlap an operand; got bytes of {read.file} that {name} is read from")
