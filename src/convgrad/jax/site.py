"""A call site in a program of XLA: its problem, as a text, so that the program means the same in any process."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.engines import execute
from convgrad.formats import FORMATS
from convgrad.spec.geometry import Axis, Channels, Conv
from convgrad.spec.layouts import from_canonical
from convgrad.spec.operators import find
from convgrad.spec.problem import Problem, canonical_shape, posed

Array = NDArray[Any]
REMEMBERED = 4096  # sites whose text is not read again


@lru_cache(maxsize=REMEMBERED)
def written(problem: Problem, threads: int | None) -> str:
    """Return a problem as a text, with the threads that it may take."""
    said = {
        "solves_for": problem.solves_for,
        "transposed": find(problem.operator).transposed,
        "geometry": asdict(problem.geometry),
        "layouts": dict(zip((*problem.operands, problem.output), problem.layouts, strict=True)),
        "operands": str(problem.operand_format),
        "output": str(problem.output_format),
        "bias": "bias" in problem.operands,
        "threads": threads,
    }
    return json.dumps(said, separators=(",", ":"))


def _geometry(**said: Any) -> Conv | Channels:
    if "axes" not in said:
        return Channels(said["batch"], said["channels"], tuple(said["extents"]))
    return Conv(**said | {"axes": tuple(Axis(**axis) for axis in said["axes"])})


def read(text: bytes) -> tuple[Problem, int | None]:
    """Return the problem and the threads that a text says."""
    said = json.loads(text)
    problem = posed(
        said["solves_for"],
        said["transposed"],
        _geometry(**said["geometry"]),
        said["layouts"],
        FORMATS[said["operands"]],
        FORMATS[said["output"]],
        said["bias"],
    )
    return problem, said["threads"]


def operand_shapes(problem: Problem) -> list[tuple[int, ...]]:
    """Return the shapes of a problem's operands, in their layouts."""
    channels = canonical_shape(problem.geometry, problem.output)[1:2]
    return [
        channels if tensor == "bias" else from_canonical(canonical_shape(problem.geometry, tensor), layout)
        for tensor, layout in zip(problem.operands, problem.layouts, strict=False)
    ]


@dataclass(frozen=True)
class Memory:
    """What memory of XLA holds: row-major in the caller's layout, seen in canonical order."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...]
    words: type[ctypes.Array[ctypes.c_char]]

    def at(self, address: int | None) -> Array:
        """Return the array that lies at an address, which is none where it has no elements."""
        buffer: Any = self.words.from_address(address) if address else b""
        return np.ndarray(self.shape, self.dtype, buffer, 0, self.strides)


def _memory(shape: tuple[int, ...], dtype: np.dtype[Any], order: tuple[int, ...]) -> Memory:
    dense = [dtype.itemsize * prod(shape[axis + 1 :]) for axis in range(len(shape))]
    canonical, strides = (tuple(each[axis] for axis in order) for each in (shape, dense))
    return Memory(canonical, dtype, strides, ctypes.c_char * (prod(shape) * dtype.itemsize))


@dataclass(frozen=True)
class Site:
    """What is computed at a call site, and of what memory."""

    problem: Problem
    threads: int | None
    operands: tuple[Memory, ...]
    result: Memory

    def compute(self, operands: Sequence[int | None], result: int | None) -> None:
        """Compute a problem from operands that lie at these addresses into a result at that one.

        XLA has made the memory of these shapes, and none of it overlaps: there is nothing left to check.
        """
        given = [memory.at(address) for memory, address in zip(self.operands, operands, strict=True)]
        execute(self.problem, given, self.result.at(result), self.threads)


@lru_cache(maxsize=REMEMBERED)
def site(text: bytes) -> Site:
    """Return the site that a text says."""
    problem, threads = read(text)
    shapes, dtype = operand_shapes(problem), problem.operand_format.dtype
    operands = tuple(_memory(s, dtype, order) for s, order in zip(shapes, problem.operand_orders, strict=True))
    result = _memory(problem.output_shape, problem.output_format.dtype, problem.output_order)
    return Site(problem, threads, operands, result)
