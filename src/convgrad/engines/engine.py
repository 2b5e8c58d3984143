"""What an engine is, and what it makes of a problem: protocols that the rows of the registry fulfil."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from convgrad.plan.machine import Machine
from convgrad.spec.problem import Problem

Array = NDArray[Any]
Strides = Sequence[tuple[int, ...]]  # in bytes, of canonical operands and last of the output


class Call(Protocol):
    """A problem on canonical memory of certain strides: computed from nothing more than where that begins."""

    def at(self, operands: Sequence[int], out: int, keep: object) -> None:
        """Compute from operands that begin at these addresses; the caller has seen to it that ``keep`` is that memory.

        An operand without elements may begin anywhere.
        """

    def on(self, operands: Sequence[Array], out: Array) -> None:
        """Compute from arrays of these strides."""

    def elsewhere(self, strides: Strides) -> Call:
        """Return the call of the same problem, with the same kernels and threads, on memory of other strides."""

    def prepare(self) -> None:
        """Make and keep what can be made before the first call."""


class Engine(Protocol):
    """Computes problems, and says which ones."""

    @property
    def detail(self) -> str:
        """What it computes with, in a word or two: an instruction set."""

    def why_not(self, problem: Problem) -> str:
        """Return why it cannot compute a problem here; the empty string where it can."""

    def call(self, problem: Problem, strides: Strides, threads: int) -> Call:
        """Return a problem on memory of these strides, to be computed as often as wanted."""

    def norms2(self, problem: Problem, operands: Sequence[Array], out: Array, threads: int) -> None:
        """Compute the squared norm of each sample's gradient: ``problem`` is that of one, operands hold all of them."""

    def squares(self, rows: Array) -> Array:
        """Return the squared norm of each row of a dense array of f32, in f64."""

    def scale(self, data: Array, factors: Array, out: Array, threads: int) -> None:
        """Compute out[n] = data[n] * factors[n], rounded once to the factors' type; all are row-major."""

    def machine(self) -> Machine | None:
        """Return this machine as plans see it; None of an engine that plans nothing."""

    def memory_bytes(self, problem: Problem, strides: Strides, threads: int) -> int:
        """Return what a call takes beside its arrays: scratch of all threads, sums they share, and tables."""

    def height(self, problem: Problem) -> int:
        """Return the height h of the sums that it makes of a problem."""
