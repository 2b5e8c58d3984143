"""Calls by Toom-Cook, prepared: kept, so that the next one of a kind costs little."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from convgrad.engines.engine import Strides
from convgrad.engines.llvm.winograd import of_positions, of_weights
from convgrad.engines.llvm.winograd.stage import Tiled
from convgrad.plan.machine import Machine
from convgrad.spec.problem import Problem

CAPACITY = 64  # prepared calls kept
_PASSES: Mapping[str, Callable[[Problem, Strides, Machine, int], Tiled]] = {
    "weights": of_weights.tiled, "dst": of_positions.tiled, "src": of_positions.tiled,
}  # fmt: skip


@lru_cache(maxsize=CAPACITY)
def tiled(problem: Problem, strides: Strides, machine: Machine, threads: int) -> Tiled:
    """Return the prepared call of a problem that has a variant, for canonical arrays that lie so; made once."""
    return _PASSES[problem.solves_for](problem, strides, machine, threads)
