"""The protocols of the registry: an engine, and a call that an engine prepares for a problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from convgrad.plan.machine import Machine
from convgrad.spec.problem import Problem

Array = NDArray[Any]
Strides = Sequence[tuple[int, ...]]  # in bytes, of canonical operands and last of the output


class Call(Protocol):
    """A problem on canonical memory of certain strides: only addresses are missing."""

    def at(self, operands: Sequence[int], out: int, keep: object) -> None:
        """Compute from operands at these addresses, in memory that ``keep`` holds.

        An operand without elements may have any address.
        """

    def on(self, operands: Sequence[Array], out: Array) -> None:
        """Compute from arrays of these strides."""

    def elsewhere(self, strides: Strides) -> Call:
        """Return the call of the same problem on memory of other strides, with the same instruction set and threads."""

    def prepare(self) -> None:
        """Compile the kernel and hold the tables that the first call needs."""


class Engine(Protocol):
    """An engine computes problems, and returns the reason if it cannot."""

    @property
    def detail(self) -> str:
        """The instruction set, or the empty string."""

    def why_not(self, problem: Problem) -> str:
        """Return why the engine cannot compute a problem on this machine, or the empty string."""

    def call(self, problem: Problem, strides: Strides, threads: int) -> Call:
        """Return the call of a problem on memory of these strides; it can be run any number of times."""

    def norms2(self, problem: Problem, operands: Sequence[Array], out: Array, threads: int) -> None:
        """Compute the squared norm of each sample's gradient: ``problem`` has one sample, operands have all."""

    def squares(self, rows: Array) -> Array:
        """Return the squared norm of each row of a dense array of f32, in f64."""

    def scale(self, data: Array, factors: Array, out: Array, threads: int) -> None:
        """Compute out[n] = data[n] * factors[n], rounded once to the factors' type; all are row-major."""

    def machine(self) -> Machine | None:
        """Return this machine as plans see it, or None if the engine plans nothing."""

    def memory_bytes(self, problem: Problem, strides: Strides, threads: int) -> int:
        """Return the memory of a call without its arrays: scratch of all threads, shared sums, and tables."""

    def height(self, problem: Problem) -> int:
        """Return the rounding depth of the sums of a problem."""
