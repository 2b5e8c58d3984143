"""DOING it: the generated engine where it applies, the NumPy engine elsewhere; which and why is a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.engines import numpy as by_numpy
from convgrad.engines.threads import count
from convgrad.plan.machine import Isa
from convgrad.plan.strategies import as_weights, why_none
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
    reasons = why_none(problem)
    if reasons:
        return Choice("numpy", "; ".join(f"not {r.strategy}: {r.reason}" for r in reasons), None)
    from convgrad.engines.llvm import host  # noqa: PLC0415 - LLVM is loaded at the first kernel, not before

    isa = host.isa()
    return Choice("numpy", host.why_none(), None) if isa is None else Choice("generated", "", isa)


def execute(problem: Problem, operands: Sequence[Array], out: Array, threads: int | None = None) -> Choice:
    """Compute a problem from canonical operands into the canonical view ``out``, and say which engine did."""
    choice = choose(problem)
    if choice.isa is None:
        by_numpy.execute(problem, operands, out)
        return choice
    from convgrad.engines.llvm import host  # noqa: PLC0415
    from convgrad.engines.llvm.execute import prepare  # noqa: PLC0415

    if problem.solves_for == "bias":
        problem, operands, out = _bias_as_weights(problem, operands, out)
    prepare(problem, operands, out, host.machine(choice.isa), count(threads)).execute(operands, out)
    return choice


def _bias_as_weights(problem: Problem, operands: Sequence[Array], out: Array) -> tuple[Problem, list[Array], Array]:
    """Return a bias gradient as a weight gradient: src is a single one, seen everywhere."""
    weights = as_weights(problem)
    assert isinstance(weights.geometry, Conv)
    (dst,) = operands
    one = np.broadcast_to(np.ones(1, dst.dtype), weights.geometry.src_shape)
    return weights, [one, dst.reshape(dst.shape + (1,) * (one.ndim - dst.ndim))], out.reshape(-1, *[1] * (one.ndim - 1))


def height(problem: Problem) -> int:
    """Return the height h of the sums that ``execute`` makes: the specified order's, or the NumPy engine's."""
    return height_of(problem) if choose(problem).engine == "generated" else by_numpy.height(problem)
