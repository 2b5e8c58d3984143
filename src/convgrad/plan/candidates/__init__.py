"""The strategies of weight gradients, a file each: what it does not apply to and why, and the kernels it proposes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from convgrad.plan.candidates import dense, depthwise, grouped, thin
from convgrad.plan.machine import Isa
from convgrad.plan.recipe import KernelSpec, Operands
from convgrad.plan.view import View
from convgrad.spec.problem import Problem

Proposed = tuple[KernelSpec, Operands]


@dataclass(frozen=True)
class Candidate:
    """A way to compute some problems: why not this one, or the empty string; and the kernels that it proposes."""

    name: str
    unsupported: Callable[[Problem, View], str]
    kernels: Callable[[Problem, View, Isa], Iterator[Proposed]]


CANDIDATES = (
    Candidate("dense", dense.unsupported, dense.kernels),
    Candidate("taps in the tile", thin.unsupported, thin.kernels),
    Candidate("groups in the lanes", grouped.unsupported, grouped.kernels),
    Candidate("strips", depthwise.unsupported, depthwise.kernels),
)
