"""Running a plan: tables, arguments and driver of one kind of call, kept so that the next one costs little."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import addressof, sizeof
from dataclasses import dataclass
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.engines import pool, scratch
from convgrad.engines.addresses import Words, address_of, words
from convgrad.engines.llvm import jit
from convgrad.engines.llvm.driver import module_of
from convgrad.engines.starting import forked_with
from convgrad.plan.fields import CALL, FLAGS
from convgrad.plan.machine import Machine
from convgrad.plan.recipe import Chosen
from convgrad.plan.roles import ONES, ROLES, plan, tables, view_of
from convgrad.plan.tables import Schedule
from convgrad.plan.view import wrapped
from convgrad.spec.problem import Problem

CAPACITY = 256  # prepared calls kept,
CAPACITY_BYTES = 64 << 20  # and what their tables may take
Array = NDArray[Any]
Lies = Sequence[tuple[int, ...]]  # the strides of operands, and last of the output
_CALL = Struct(f"{len(CALL)}q")
_FLAG_BYTES = 8 * len(FLAGS)


@dataclass(frozen=True)
class Executable:
    """A plan for arrays of certain strides, ready to run: all of the driver's arguments but addresses."""

    plan: Chosen
    schedule: Schedule
    kernel: jit.Kernel
    arguments: Words
    ones: Array  # what stands in the place of an operand that is one everywhere
    sides: tuple[int, int]  # which operands rows and lanes are: one behind all of them is ``ones``,
    bias: int | None  # and which the bias is, if any

    @property
    def memory_bytes(self) -> int:
        """What running it takes: scratch of all threads, sums they share, and tables."""
        tables = self.schedule
        return self.plan.threads * tables.scratch_bytes + tables.kept_bytes + tables.table_bytes

    def bound(self, operands: Sequence[Array], out: Array, kept: Array | None) -> Words:
        """Return the driver's arguments for these arrays; the last of them is the flag that stops it.

        ``kept`` is what all threads share, where tasks share parts of the weights: ``schedule.kept_bytes``.
        """
        assert (kept is None) == (self.schedule.kept_bytes == 0), "kept is for tasks that share sums"
        (rows, lanes), (rows_at, lanes_at), last = self.sides, self.schedule.offsets, 0
        if kept is not None:  # what not all calls have: what threads share, or a bias
            last = address_of(kept)
        elif self.bias is not None:
            last = address_of(operands[self.bias])
        arguments = type(self.arguments).from_buffer_copy(self.arguments)
        counter = addressof(arguments) + sizeof(arguments) - _FLAG_BYTES
        given = (*operands, self.ones)
        _CALL.pack_into(
            arguments,
            0,
            *range(counter, counter + _FLAG_BYTES, 8),
            address_of(given[rows]) + rows_at,
            address_of(given[lanes]) + lanes_at,
            address_of(out),
            last,
        )
        return arguments

    def execute(self, operands: Sequence[Array], out: Array) -> None:
        """Compute into ``out``, canonical, from canonical operands."""
        kept = None
        if self.schedule.kept_bytes:
            kept = scratch.shared.take(self.schedule.kept_bytes // 8)
            kept[: self.schedule.counters] = 0
        arguments = self.bound(operands, out, kept)
        keep = (self, operands, out, kept)
        pool.run(self.kernel, arguments, self.schedule.scratch_bytes, self.plan.threads, self.plan.time_ms, keep)
        if kept is not None:
            scratch.shared.give_back(kept)


def executable(problem: Problem, lies: Lies, machine: Machine, threads: int) -> Executable:
    """Return the prepared call of a problem for canonical arrays that lie so; made once."""
    key = (problem, machine, threads, *lies)
    known = _kept.get(key)
    if known is not None and len(_kept) < CAPACITY // 2:  # nobody leaves soon, whoever is the latest
        return known
    with _lock:
        known = _kept.pop(key, None)
        if known is not None:
            _kept[key] = known  # the latest at the end
            return known
    seen = view_of(problem, lies[:-1], lies[-1])
    made = _tabled(plan(problem, seen, machine, threads), problem, seen)
    with _lock:
        _kept[key] = made
        while len(_kept) > 1 and (len(_kept) > CAPACITY or _kept_bytes() > CAPACITY_BYTES):
            _kept.pop(next(iter(_kept)), None)
    return made


def _kept_bytes() -> int:
    return sum(one.schedule.table_bytes for one in list(_kept.values()))


_lock = forked_with()
_kept: dict[Any, Executable] = {}


def executable_of(chosen: Chosen, problem: Problem, operands: Sequence[Array], out: Array) -> Executable:
    """Return the prepared call of one plan."""
    return _tabled(chosen, problem, view_of(problem, [array.strides for array in operands], out.strides))


def _tabled(chosen: Chosen, problem: Problem, seen: Any) -> Executable:
    made, role = tables(problem, seen, chosen), ROLES[problem.solves_for]
    at = {name: number for number, name in enumerate(role.fields(chosen.spec))}
    arguments = words(len(at) + len(FLAGS))
    for name, number in made.numbers.items():
        arguments[at[name]] = wrapped(number)
    for name, table in made.tables.items():
        arguments[at[name]] = address_of(table)
    kernel = jit.compile(chosen.spec, module_of)
    tensors = (*problem.operands, ONES)
    rows, lanes = (tensors.index(role.operands[tensor]) for tensor in chosen.operands)
    bias = tensors.index("bias") if "bias" in problem.operands else None
    ones = np.ones(1, problem.operand_format.dtype)
    return Executable(chosen, made, kernel, arguments, ones, (rows, lanes), bias)
