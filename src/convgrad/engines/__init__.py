"""DOING it: the generated engine where it applies, the NumPy engine elsewhere; which and why is a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from convgrad.engines import numpy as by_numpy
from convgrad.engines.threads import count
from convgrad.formats import F64
from convgrad.plan.machine import Isa
from convgrad.spec.geometry import Conv
from convgrad.spec.order import height_of
from convgrad.spec.problem import Problem

Array = NDArray[Any]


@dataclass(frozen=True)
class Choice:
    """Which engine computes a problem; ``reason`` says why not the generated one, and is empty where it does."""

    engine: str  # generated, numpy
    reason: str
    isa: Isa | None

    def __str__(self) -> str:
        return f"generated, {self.isa}" if self.engine == "generated" else f"numpy: {self.reason}"


def choose(problem: Problem) -> Choice:
    """Return the engine for a problem on this machine."""
    reason = _not_generated(problem)
    if reason:
        return Choice("numpy", reason, None)
    from convgrad.engines.llvm import host  # noqa: PLC0415 - LLVM is loaded at the first kernel, not before

    isa = host.isa()
    return Choice("numpy", host.why_none(), None) if isa is None else Choice("generated", "", isa)


def _not_generated(problem: Problem) -> str:
    geometry = problem.geometry
    if problem.solves_for != "weights" or not isinstance(geometry, Conv):
        return f"no generated kernel solves for {problem.solves_for}"
    if problem.operand_format is F64:
        return "generated kernels keep sums in f32; got f64"
    if geometry.batch * geometry.positions == 0:
        return "there is nothing to sum"
    return ""


def execute(problem: Problem, operands: Sequence[Array], out: Array, threads: int | None = None) -> Choice:
    """Compute a problem from canonical operands into the canonical view ``out``, and say which engine did."""
    choice = choose(problem)
    if choice.isa is None:
        by_numpy.execute(problem, operands, out)
        return choice
    from convgrad.engines.llvm import host  # noqa: PLC0415
    from convgrad.engines.llvm.execute import prepare  # noqa: PLC0415

    prepare(problem, operands, out, host.machine(choice.isa), count(threads)).execute(operands, out)
    return choice


def height(problem: Problem) -> int:
    """Return the height h of the sums that ``execute`` makes: the specified order's, or the NumPy engine's."""
    return height_of(problem) if choose(problem).engine == "generated" else by_numpy.height(problem)
