"""The protocols of an engine, of the calls that an engine prepares for a problem, and of kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from convgrad.array_types import Array
from convgrad.plan.machine import Machine
from convgrad.spec.problem import Problem

Strides = Sequence[tuple[int, ...]]  # in bytes: of each operand in canonical order, then of the output


class Call(Protocol):
    """A prepared call: a problem and the strides of its arrays. The addresses of the arrays are given at each run."""

    def at(self, operands: Sequence[int], out: int, keep: object) -> None:
        """Compute the problem from the operands at these addresses into the output at ``out``.

        ``keep`` is an object that keeps the memory of operands and output alive. An operand without elements may have
        any address.
        """

    def on(self, operands: Sequence[Array], out: Array) -> None:
        """Compute the problem from arrays that have the strides of the call."""

    def elsewhere(self, strides: Strides) -> Call:
        """Return the same call for arrays of other strides, with the same instruction set and threads."""

    def prepare(self) -> None:
        """Compile the kernel and fill its tables now, and keep both as long as this object lives."""


class CompiledKernel(Protocol):
    """A compiled driver: a function of the addresses of its arguments and of scratch, and of a thread's number."""

    address: int

    def __call__(self, arguments: int, scratch: int, thread: int, /) -> object:
        """Compute on this thread."""


class Engine(Protocol):
    """An engine computes problems. It returns a reason if it cannot compute one."""

    @property
    def detail(self) -> str:
        """The instruction set of the kernels, or the empty string if the engine has none."""

    def why_not(self, problem: Problem) -> str:
        """Return why the engine cannot compute a problem on this machine, or the empty string if it can."""

    def call(self, problem: Problem, strides: Strides, threads: int) -> Call:
        """Return the prepared call of a problem for arrays of these strides. The call can be run repeatedly."""

    def norms2(self, problem: Problem, operands: Sequence[Array], out: Array, threads: int) -> None:
        """Write the squared norm of each sample's gradient into ``out``.

        ``problem`` has one sample; ``operands`` have all samples.
        """

    def squares(self, rows: Array) -> Array:
        """Return the squared norm of each row of a dense array of f32, in f64."""

    def scale(self, data: Array, factors: Array, out: Array, threads: int) -> None:
        """Compute out[n] = data[n] * factors[n], rounded once to the type of ``factors``; all arrays are row-major."""

    def machine(self) -> Machine | None:
        """Return the description of this machine for plans, or None if the engine makes no plans."""

    def memory_bytes(self, problem: Problem, strides: Strides, threads: int) -> int:
        """Return the bytes that a call needs besides its arrays: scratch of all threads, shared sums, and tables."""

    def height(self, problem: Problem) -> int:
        """Return the maximum number of roundings between a term of a sum and the result."""
