"""One case ready to run: its operands, its minimum cost, and convgrad's own call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad import engines, notation
from convgrad.bench.suites import Case
from convgrad.functional.run import run
from convgrad.spec.geometry import Conv
from convgrad.spec.layouts import axis_order
from convgrad.spec.operators import find
from convgrad.spec.problem import Problem
from convgrad.verify.fill import fill

Array = NDArray[Any]


@dataclass(frozen=True)
class Contender:
    """An implementation of a case: ``call`` is timed, ``canonical`` makes its result comparable.

    ``cores`` are the cores for the calling thread, because its library has pinned its other threads to other cores.
    """

    name: str
    call: Callable[[], Any]
    canonical: Callable[[Any], Array]
    notes: tuple[str, ...] = ()
    cores: tuple[int, ...] = ()


@dataclass(frozen=True)
class Work:
    """A case with operands: ``inputs`` for convgrad.run, with shape operands; ``operands`` are canonical views."""

    case: Case
    call: notation.OperatorCall
    problem: Problem
    inputs: tuple[object, ...]
    operands: tuple[Array, ...]

    @property
    def engine(self) -> str:
        """The engine that computes the case here."""
        return engines.choose(self.problem).engine

    @property
    def conv(self) -> Conv:
        """The problem's geometry."""
        assert isinstance(self.problem.geometry, Conv)
        return self.problem.geometry

    def run(self, threads: int | None = None, inputs: tuple[object, ...] = (), dtype: str | None = None) -> Array:
        """Run convgrad end to end from plain arrays: on ``inputs`` if given, else on its own."""
        attributes: dict[str, Any] = dict(self.call.attributes)
        result: Array = run(self.call.operator, *(inputs or self.inputs), dtype=dtype, threads=threads, **attributes)
        return result

    def canonical(self, result: Array) -> Array:
        """Return the canonical view of a result of ``run``."""
        return result.transpose(self.problem.output_order)


def make_work(case: Case, seed: int = 0) -> Work:
    """Make operands of normal numbers for a case."""
    (call,) = notation.calls(case.line)
    problem, ports = case.problem, find(call.operator).operands[: len(call.shapes)]
    shapes = [shape for port, shape in zip(ports, call.shapes, strict=True) if not port.is_shape]
    arrays = fill(problem, shapes, "normal", seed)
    made = iter(arrays)
    inputs = tuple(shape if port.is_shape else next(made) for port, shape in zip(ports, call.shapes, strict=True))
    views = (a.transpose(axis_order(layout, a.ndim)) for a, layout in zip(arrays, problem.layouts, strict=False))
    return Work(case, call, problem, inputs, tuple(views))


def ours(work: Work, threads: int) -> Contender:
    """Return convgrad as a contender."""
    return Contender("convgrad", partial(work.run, threads), work.canonical)


def magnitudes(work: Work) -> Array:
    """Return sum |x||y| of every result, canonical, in the accumulator's format: convgrad run on absolute values."""
    inputs = tuple(np.abs(value) if isinstance(value, np.ndarray) else value for value in work.inputs)
    return work.canonical(work.run(inputs=inputs, dtype=work.problem.operand_format.accumulator.name))
