"""Call sites in XLA's programs. A site stores its problem as text, so a program can run in any process."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from math import prod

from convgrad.engines import ready
from convgrad.formats import FORMATS
from convgrad.spec.geometry import Axis, Channels, Conv
from convgrad.spec.layouts import from_canonical
from convgrad.spec.operators import find, solving_for
from convgrad.spec.problem import Problem, canonical_shapes, intern, posed

REMEMBERED = 4096  # max number of sites in the cache


@lru_cache(maxsize=REMEMBERED)
def written(problem: Problem, threads: int | None) -> str:
    """Return the text of a call site: its problem and its maximum number of threads."""
    fields = {
        "solves_for": problem.solves_for,
        "transposed": find(problem.operator).transposed,
        "geometry": asdict(problem.geometry),
        "layouts": dict(zip((*problem.operands, problem.output), problem.layouts, strict=True)),
        "operands": str(problem.operand_format),
        "output": str(problem.output_format),
        "bias": "bias" in problem.operands,
        "variant": problem.algorithm,
        "activation": problem.activation,
        "threads": None if threads is None else int(threads),  # it may be an integer of NumPy
    }
    return json.dumps(fields, separators=(",", ":"))


def _geometry(
    axes: Sequence[Mapping[str, int]] | None = None, extents: Sequence[int] = (), **numbers: int
) -> Conv | Channels:
    if axes is None:
        return Channels(extents=tuple(extents), **numbers)
    return Conv(axes=tuple(Axis(**axis) for axis in axes), **numbers)


def read(text: bytes) -> tuple[Problem, int | None]:
    """Return the problem and the maximum number of threads from the text of a call site."""
    fields = json.loads(text)
    problem = posed(
        solving_for(fields["solves_for"], fields["transposed"]),
        _geometry(**fields["geometry"]),
        fields["layouts"],
        FORMATS[fields["operands"]],
        FORMATS[fields["output"]],
        fields["bias"],
    )
    return intern(replace(problem, algorithm=fields["variant"], activation=fields["activation"])), fields["threads"]


def operand_shapes(problem: Problem) -> list[tuple[int, ...]]:
    """Return the shapes of a problem's operands, each in the order of axes of its layout."""
    shapes = canonical_shapes(problem)[:-1]
    return [from_canonical(shape, layout) for shape, layout in zip(shapes, problem.layouts, strict=False)]


def _strides(shape: tuple[int, ...], item: int, order: tuple[int, ...]) -> tuple[int, ...]:
    """Return strides in bytes, in canonical order of axes. The memory is row-major in the caller's order of axes."""
    return tuple(item * prod(shape[axis + 1 :]) for axis in order)


@dataclass(frozen=True)
class Site:
    """A call site: its problem, its maximum number of threads, and the strides of operands and result in bytes."""

    problem: Problem
    threads: int | None
    strides: tuple[tuple[int, ...], ...]

    def compute(self, operands: Sequence[int | None], result: int | None) -> None:
        """Compute the problem. ``operands`` and ``result`` are addresses.

        XLA allocates memory for the shapes, without overlap, so no checks are needed. XLA keeps the memory until
        the call ends, even if the call fails.
        """
        call = ready(self.problem, self.strides, self.threads)
        call.at([address or 0 for address in operands], result or 0, None)


@lru_cache(maxsize=REMEMBERED)
def site(text: bytes) -> Site:
    """Return the call site that a text describes."""
    problem, threads = read(text)
    shapes, item = operand_shapes(problem), problem.operand_format.itemsize
    operands = (_strides(shape, item, order) for shape, order in zip(shapes, problem.operand_orders, strict=False))
    result = _strides(problem.output_shape, problem.output_format.itemsize, problem.output_order)
    return Site(problem, threads, (*operands, result))
