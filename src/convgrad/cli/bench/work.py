"""One case that is ready to run: its problem, its operands, and convgrad's call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from convgrad import engines, notation
from convgrad.array_types import Array
from convgrad.cli.bench.suites import TimedCase
from convgrad.functional.run import run
from convgrad.spec.geometry import Conv
from convgrad.spec.layouts import axis_order
from convgrad.spec.operators import find
from convgrad.spec.problem import Problem
from convgrad.verify.fill import fill


@dataclass(frozen=True)
class Contender:
    """An implementation of a case. ``call`` is timed, and ``canonical`` returns its result as a NumPy array to compare.

    ``cores`` are the cores for the calling thread, because the library has pinned its other threads to other cores.
    """

    name: str
    call: Callable[[], object]
    canonical: Callable[[Any], Array]
    notes: tuple[str, ...] = ()
    cores: tuple[int, ...] = ()


@dataclass(frozen=True)
class Work:
    """A case with operands. ``inputs`` are the arguments of ``convgrad.run``, including shape operands.

    ``operands`` are the arrays of ``inputs`` in canonical axes.
    """

    case: TimedCase
    call: notation.OperatorCall
    problem: Problem
    inputs: tuple[object, ...]
    operands: tuple[Array, ...]

    @property
    def engine(self) -> str:
        """The name of the engine that computes the case on this machine."""
        return engines.choose(self.problem).engine

    @property
    def conv(self) -> Conv:
        """The problem's geometry."""
        assert isinstance(self.problem.geometry, Conv)
        return self.problem.geometry

    def run(self, threads: int | None = None, inputs: tuple[object, ...] = (), dtype: str | None = None) -> Array:
        """Return the result of ``convgrad.run`` for ``inputs``, or for the case's own inputs if none are given."""
        attributes: dict[str, Any] = dict(self.call.attributes)
        result: Array = run(self.call.operator, *(inputs or self.inputs), dtype=dtype, threads=threads, **attributes)
        return result

    def canonical(self, result: Array) -> Array:
        """Return the canonical view of a result of ``run``."""
        return result.transpose(self.problem.output_order)


def make_work(case: TimedCase, seed: int = 0) -> Work:
    """Return a case with operands, which are random numbers of the normal distribution."""
    (call,) = notation.calls(case.line)
    problem, ports = case.problem, find(call.operator).operands[: len(call.shapes)]
    shapes = [shape for port, shape in zip(ports, call.shapes, strict=True) if not port.is_shape]
    arrays = fill(problem, shapes, "normal", seed)
    array_iterator = iter(arrays)
    inputs = tuple(
        shape if port.is_shape else next(array_iterator) for port, shape in zip(ports, call.shapes, strict=True)
    )
    views = (a.transpose(axis_order(layout, a.ndim)) for a, layout in zip(arrays, problem.layouts, strict=False))
    return Work(case, call, problem, inputs, tuple(views))


def ours(work: Work, threads: int) -> Contender:
    """Return convgrad as a contender."""
    return Contender("convgrad", partial(work.run, threads), work.canonical)


def magnitudes(work: Work) -> Array:
    """Return sum |x||y| of each result in canonical axes and in the accumulator's format.

    convgrad computes these sums from the operands' absolute values.
    """
    inputs = tuple(np.abs(value) if isinstance(value, np.ndarray) else value for value in work.inputs)
    return work.canonical(work.run(inputs=inputs, dtype=work.problem.operand_format.accumulator.name))
