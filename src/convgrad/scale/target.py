"""Targets of results, which are written region by region: arrays in memory or files, and objects that can be sliced."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from convgrad import arrays, formats
from convgrad.array_types import Array
from convgrad.arrays import libraries
from convgrad.errors import FileError
from convgrad.scale.source import OperandSource, announced, is_sliced, source_of, words_of
from convgrad.spec.problem import Problem
from convgrad.spec.rules import refuse
from convgrad.spec.subproblems import Region

STORES = ("zarr", "h5py")  # libraries whose arrays are equal if they are stored at the same place


@dataclass(frozen=True, eq=False)
class Target:
    """The given ``out`` or a new array, and ``array``, the array in memory or in a file that kernels write to.

    ``array`` is None if ``out`` is another object, which only accepts ``out[region] = array``. Then ``read`` is
    a source that reads the old values of ``out`` like an operand.
    """

    out: Any
    array: Array | None
    accumulate: bool
    read: OperandSource | None = None

    @property
    def is_staged(self) -> bool:
        """Whether results are computed in other memory and then assigned to ``out``."""
        return self.array is None

    @property
    def is_strided(self) -> bool:
        """Whether the target is an array that is not C-contiguous. A sum is not written to it directly."""
        return self.array is not None and not self.array.flags.c_contiguous

    def room(self, region: Region) -> Array:
        """Return memory for a region of the result. If the call accumulates, the memory contains the old values."""
        if self.read is None:
            assert self.array is not None, "what is not read from is an array"
            view: Array = self.array[region]
            return view
        if self.accumulate:
            return np.array(self.read.read(region, None, lambda: False), order="C")
        return arrays.empty(tuple(interval.stop - interval.start for interval in region), self.read.format.dtype)

    def write(self, region: Region, result: Array) -> None:
        """Assign a result to a region of ``out``, if it was computed in other memory. Errors name the region."""
        if self.read is None:
            return
        try:
            self.out[region] = result
        except MemoryError:
            raise
        except Exception as error:
            where = f"{self.read.operator}: writing {words_of('out', region)}"
            raise FileError(f"{where} failed: {type(error).__name__}: {error}") from error

    def handed_over(self) -> Any:
        """Return the result as the object that the caller passed, or the new array."""
        if self.array is not None and self.array is not self.out:
            libraries.written(self.out)
        return self.out


def target_of(problem: Problem, out: object, sources: Sequence[OperandSource]) -> Target:
    """Return the target of a problem's result, or raise the error of rule D2, D3, D4 or T5."""
    shape, fmt, operator = problem.output_shape, problem.output_format, problem.operator
    if out is None:
        result = arrays.empty(shape, fmt.dtype)
        return Target(result, result, problem.accumulate)
    if isinstance(out, str | os.PathLike):  # T5
        name = f"{os.fspath(out)!r:.200}"
        is_zarr = name.endswith(".zarr'")
        make, mode = ("zarr.create_array", "") if is_zarr else ("numpy.lib.format.open_memmap", ", mode='w+'")
        use = f"{make}({name}{mode}, shape={shape}, dtype={fmt.dtype_name!r})"
        accepted = "an array, a map of a file, or an object with out[region] = array"
        refuse("T5", operator, f"out must be {accepted}; got the name {name}. Use {use}")
    if not is_sliced(out):
        in_memory = {source.name: source.operand for source in sources if isinstance(source.operand, np.ndarray)}
        array = arrays.check_out(out, shape, fmt, in_memory, operator).view(np.ndarray)
        return Target(out, array, problem.accumulate)
    said, dtype = announced(out, operator, "out")
    if formats.of_dtype(dtype) is not fmt:  # T5
        refuse("T5", operator, f"out must be of {fmt}, the output's type; got {dtype}")
    if said != shape:  # D2
        refuse("D2", operator, f"out must have the output's shape {shape}; got {said}")
    if not hasattr(out, "__setitem__"):  # D3
        refuse("D3", operator, f"out must accept out[region] = array; got {type(out).__name__}")
    for source in sources:
        if _is_stored_in(source.operand, out):  # D4
            refuse("D4", operator, f"out must not overlap an operand; got the object of {source.name}")
    return Target(out, None, problem.accumulate, source_of(operator, "out", out, shape, fmt))


def _is_stored_in(operand: object, out: object) -> bool:
    """Return whether two objects are the same object, or arrays of zarr or h5py at the same place in a store."""
    compares_places = type(out).__module__.partition(".")[0] in STORES
    return operand is out or (compares_places and type(operand) is type(out) and operand == out)
