"""The registry of engines. The first engine that supports a problem computes it; a ``Choice`` has it and the reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from convgrad.array_types import Array
from convgrad.engines import products
from convgrad.engines.engine import Call, Engine, Strides
from convgrad.engines.numpy import NUMPY
from convgrad.engines.settings import accuracy, count, selection, tuning
from convgrad.float_environment import in_default_environment
from convgrad.formats import Format
from convgrad.plan.reach import unsupported
from convgrad.spec.problem import Problem
from convgrad.spec.rules import refuse
from convgrad.spec.samples import in_parts, is_product
from convgrad.spec.winograd import choice as chosen
from convgrad.spec.winograd.choice import DIRECT, with_algorithm
from convgrad.starting import deferred

if TYPE_CHECKING:
    from convgrad.engines.llvm.engine import LlvmEngine
    from convgrad.plan.machine import Machine
    from convgrad.plan.recipe import Chosen

REMEMBERED = 256  # cached calls


@deferred
def generated() -> LlvmEngine:
    """Return the generated engine. Its module is imported at the first call, because it loads LLVM."""
    from convgrad.engines.llvm.engine import LLVM  # noqa: PLC0415

    return LLVM


@deferred
def _plan() -> Callable[[Problem, Machine, int], Chosen]:
    """Return the function that plans a problem for dense arrays, which needs the planners."""
    from convgrad.plan.passes import dense_plan  # noqa: PLC0415

    return dense_plan


@deferred
def _scratch_bytes() -> Callable[[Problem, Chosen], int]:
    """Return the function that counts a plan's scratch memory, which needs the planners."""
    from convgrad.plan.passes import scratch_bytes  # noqa: PLC0415

    return scratch_bytes


class EngineRow(NamedTuple):
    """An engine of the registry; ``unsupported`` returns the reason against a problem without loading the engine."""

    name: str
    unsupported: Callable[[Problem], str]
    load: Callable[[], Engine]


GENERATED = "generated"  # its sums have the specified order, so results have the same bits on every machine
ENGINES = (EngineRow(GENERATED, unsupported, generated), EngineRow("numpy", lambda problem: "", lambda: NUMPY))


@dataclass(frozen=True)
class Choice:
    """The engine that computes a problem; ``reason`` says why the preceding engine in the registry does not."""

    engine: str  # generated, numpy
    reason: str
    detail: str
    computes: Engine = field(compare=False, repr=False)

    @property
    def has_order(self) -> bool:
        """Whether the engine adds in the specified order, so that results have the same bits on any machine."""
        return self.engine == GENERATED

    def __str__(self) -> str:
        return f"{self.engine}, {self.detail}" if self.detail else f"{self.engine}: {self.reason}"


def choose(problem: Problem) -> Choice:
    """Return the engine for a problem on this machine."""
    reason = ""
    for row in ENGINES:
        why_not = row.unsupported(problem) or row.load().why_not(problem)
        if not why_not:
            return _choice(row, reason, row.load().detail)
        reason = why_not
    raise AssertionError("the last engine computes everything")


@cache
def _choice(row: EngineRow, reason: str, detail: str) -> Choice:
    return Choice(row.name, reason, detail, row.load())


def within(problem: Problem, max_error: float | None) -> Problem:
    """Return a problem with the algorithm that ``max_error``, or the accuracy of the context, admits.

    The algorithm is always the direct sum if the engine of the problem has no specified order.
    """
    within = accuracy(max_error, problem.operator)
    return with_algorithm(problem, within) if within > DIRECT and choose(problem).has_order else problem


def why_direct(problem: Problem, max_error: float | None) -> str:
    """Return the reason why a problem with ``max_error`` above 1 has a direct sum; "" for other problems."""
    allowed = accuracy(max_error, problem.operator)
    if allowed <= DIRECT:
        return ""
    return chosen.why_direct(problem, allowed) if choose(problem).has_order else "this engine has only direct sums"


def machine_of(problem: Problem) -> Machine | None:
    """Return the description of this machine for plans, or None if the engine of the problem makes no plans."""
    return choose(problem).computes.machine()


@in_default_environment
def plan_of(problem: Problem, machine: Machine, threads: int | None = None) -> Chosen:
    """Return the generated engine's plan for dense row-major arrays. It must be the engine of the problem.

    Plans for this machine are measured if ``tune`` is in force.
    """
    if tuning() and machine is machine_of(problem):
        return generated().measured_plan(problem, count(threads))
    return _plan()(problem, machine, count(threads))


def scratch_of(problem: Problem, chosen: Chosen) -> int:
    """Return the bytes of scratch memory that all threads of a plan of ``plan_of`` use together."""
    return _scratch_bytes()(problem, chosen)


def execute(problem: Problem, operands: Sequence[Array], out: Array, threads: int | None = None) -> Choice:
    """Compute a problem into ``out`` and return the choice of the engine. All arrays are views in canonical order."""
    choice, call = _ready(problem, _strides(operands, out), count(threads), selection())
    call.on(operands, out)
    return choice


def ready(problem: Problem, strides: Strides, threads: int | None = None) -> Call:
    """Return the prepared call of a problem. ``strides`` are those of the operands, then those of the output."""
    return _ready(problem, strides, count(threads), selection())[1]


@lru_cache(maxsize=REMEMBERED)
def _ready(problem: Problem, strides: Strides, threads: int, selection: tuple[str, bool]) -> tuple[Choice, Call]:
    choice = choose(problem)
    return choice, choice.computes.call(problem, strides, threads)


def _strides(operands: Sequence[Array], out: Array) -> Strides:
    return (*[array.strides for array in operands], out.strides)


@in_default_environment
def norms2(problem: Problem, operands: Sequence[Array], out: Array, threads: int | None = None) -> None:
    """Write the squared norm of each sample's gradient into ``out``. ``problem`` has one sample, operands have all."""
    engine, norms = choose(problem).computes, out
    if is_product(problem):
        products.norms2(problem, operands, out, engine.squares)
        return
    for part, arrays in in_parts(problem, operands):
        engine.norms2(part, arrays, norms, count(threads))
        if norms is out:
            norms = np.empty_like(out)
        else:
            out += norms


def add_up(terms: Sequence[Array], out: Array, fmt: Format, accumulate: bool) -> None:
    """Write the sum of one or more dense f32 arrays, from the first to the last, into a dense array of a format.

    Each sum is stored as usual: +0 is added, then the old value of ``out`` if ``accumulate``, then the sum is rounded
    once. By rule P2 the call is refused on a machine without kernels.
    """
    if reason := generated().why_no_kernels():  # P2
        refuse("P2", "join", f"a kernel must add sums in pieces, but there are no kernels here: {reason}")
    generated().add_up(terms, out, fmt, accumulate)


def memory_bytes(problem: Problem, operands: Sequence[Array], out: Array, threads: int | None = None) -> int:
    """Return the bytes that ``execute`` needs besides its arrays: scratch of all threads, shared sums, and tables."""
    return choose(problem).computes.memory_bytes(problem, _strides(operands, out), count(threads))


def height(problem: Problem) -> int:
    """Return the maximum number of roundings between a term and the result of ``execute``."""
    return choose(problem).computes.height(problem)
