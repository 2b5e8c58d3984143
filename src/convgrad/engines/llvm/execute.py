"""Prepared calls: the tables, arguments and driver of a plan. They are cached, so that the next call is fast."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from ctypes import addressof, memmove, sizeof
from dataclasses import dataclass, replace
from struct import Struct
from typing import Any

import numpy as np

from convgrad.array_types import Array
from convgrad.engines import pools, scratch
from convgrad.engines.addresses import Words, address_of, words
from convgrad.engines.engine import CompiledKernel, Strides
from convgrad.engines.llvm import isas, jit
from convgrad.engines.llvm.driver import module_of, packing_of
from convgrad.engines.team import work
from convgrad.float_environment import in_default_environment
from convgrad.plan.machine import LINE_BYTES, Machine
from convgrad.plan.passes import ONES, PASSES, arguments_of, plan, tables, view_of
from convgrad.plan.recipe import Chosen
from convgrad.plan.records import COLUMN_BYTES, FLAGS, SHARED, SHARES, Record
from convgrad.plan.tables import Schedule, Table, wrapped
from convgrad.spec.problem import Problem
from convgrad.spec.work import moved_bytes
from convgrad.starting import forked_with

CAPACITY = 256  # the largest number of cached calls
CAPACITY_BYTES = 64 << 20  # the largest size of the tables of all cached calls
PACK_ALONE_BYTES = 1 << 20  # the calling thread packs fewer bytes of A alone: helpers would start twice for one call
Planner = Callable[[Problem, Strides, Machine, int], Chosen]
_COUNTS, _FLAGS = Struct(f"{len(SHARED.columns) - 1}q"), Struct(f"{len(FLAGS.columns)}q")
_OPERANDS = Struct("4q")  # addresses of A, B, output, and sums or bias
_LOWERED, _FLAGS_AT = (0,) * (len(SHARED.columns) - 1), [SHARED.at(flag) for flag in FLAGS.columns]


@dataclass(frozen=True)
class Executable:
    """A prepared call of a plan for arrays with known strides: all the driver's arguments except the addresses."""

    plan: Chosen
    solves_for: str
    schedule: Schedule
    kernel: CompiledKernel
    arguments: Words
    ones: Array  # stands for an operand that is 1 everywhere
    ones_address: int  # the address of ``ones``
    sides: tuple[int, int]  # the numbers of the operands that become A and B; ``ones`` has the last number
    bias: int | None  # the number of the operand that is the bias, or None
    alone: bool  # whether only the calling thread runs the driver
    free: list[tuple[Words, int]]  # copies of the arguments that no call uses now, and their addresses
    packing: Executable | None = None  # packs A before the kernel runs, if the plan packs it once

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the driver's arguments, in order."""
        return arguments_of(self.plan.spec).columns

    @property
    def paths(self) -> Table | None:
        """The number of panels that took each of ``plan.pairs.PATHS`` so far; None if the kernel has one path."""
        return self.schedule.tables.get("paths")

    @property
    def memory_bytes(self) -> int:
        """The bytes that a call needs besides its arrays: scratch of all threads, memory they share, and tables."""
        tables = self.schedule
        shared = tables.partial_bytes + tables.packed_bytes
        return self.plan.threads * tables.scratch_bytes + shared + tables.table_bytes

    def execute(self, operands: Sequence[Array], out: Array) -> None:
        """Compute the problem from canonical operands into the canonical view ``out``."""
        self.at([address_of(array) for array in operands], address_of(out), (operands, out))

    def at(self, operands: Sequence[int], out: int, keep: object) -> None:
        """Compute the problem from the canonical operands at these addresses into the output at ``out``.

        ``keep`` is an object that keeps the memory of operands and output alive. It is released when no thread can use
        this memory.
        """
        schedule, packed, partial_sums = self.schedule, None, None
        if self.packing is not None:
            packed = scratch.shared.take(-(-(schedule.packed_bytes + LINE_BYTES) // 8))
            to = address_of(packed) + -address_of(packed) % LINE_BYTES
            self.packing.at(operands, to, (keep, packed))
            a = self.sides[0]
            operands = (*operands[:a], to, *operands[a + 1 :])
        elif schedule.partial_bytes:
            partial_sums = scratch.shared.take(schedule.partial_bytes // 8)
            partial_sums[: schedule.counters] = 0
        shared = partial_sums if packed is None else packed  # an interrupted call does not give this memory back
        arguments, address = bound = self.bound(operands, out, partial_sums)
        if self.alone:
            work(self.kernel, address, schedule.scratch_bytes)
            _COUNTS.pack_into(arguments, sizeof(arguments) - _COUNTS.size, *_LOWERED)
            self.free.append(bound)  # an interrupted call skips this, because its arguments may be incomplete
        else:
            kernel, held = self.kernel, (self, keep, shared)
            pools.run(kernel, arguments, schedule.scratch_bytes, self.plan.threads, self.plan.time_ms, held)
        if shared is not None:
            scratch.shared.give_back(shared)

    def bound(self, operands: Sequence[int], out: int, partial_sums: Array | None) -> tuple[Words, int]:
        """Return the driver's arguments for these addresses, followed by its flags, and the address of the arguments.

        ``partial_sums`` is memory for all threads if several tasks add to the same output, else None.
        """
        assert (partial_sums is None) == (self.schedule.partial_bytes == 0), "they are for tasks that share sums"
        (rows, lanes), (rows_at, lanes_at), last = self.sides, self.schedule.offsets, 0
        if partial_sums is not None:  # a call has partial sums, a bias, or neither, so one argument is enough
            last = address_of(partial_sums)
        elif self.bias is not None:
            last = operands[self.bias]
        bound = taken(self.free, self.arguments)
        addresses = (*operands, self.ones_address)
        _OPERANDS.pack_into(bound[0], FLAGS.bytes, addresses[rows] + rows_at, addresses[lanes] + lanes_at, out, last)
        return bound


def shares_of(machine: Machine, threads: int, traffic: int) -> int:
    """Return the number of shares of the tasks of a call that moves so many bytes.

    This is 1 if the threads' own caches keep less than half of them for the next call.
    """
    return min(threads, SHARES) if traffic <= 2 * threads * machine.l2_bytes else 1


def filled(record: Record, numbers: Mapping[str, int], shares: int = 1) -> Words:
    """Return a driver's arguments with the values that are known, followed by the integers that its threads share."""
    arguments = words((record.bytes + SHARED.bytes) // COLUMN_BYTES)
    arguments[-len(SHARED.columns)] = shares
    for name, number in numbers.items():
        arguments[record.index(name)] = wrapped(number)
    return arguments


def copied(arguments: Words) -> tuple[Words, int]:
    """Return a copy of a driver's arguments that has flags of its own, and the address of the copy."""
    copy = type(arguments).from_buffer_copy(arguments)
    address = addressof(copy)
    shared = address + sizeof(copy) - SHARED.bytes
    _FLAGS.pack_into(copy, 0, *[shared + at for at in _FLAGS_AT])
    return copy, address


def taken(free: list[tuple[Words, int]], arguments: Words) -> tuple[Words, int]:
    """Return a copy of a driver's arguments that no call uses, a new one if none is free, and its address."""
    try:
        return free.pop()
    except IndexError:
        return copied(arguments)


def restored(copy: Words, arguments: Words) -> None:
    """Give a copy of a driver's arguments its first values again, also those that the driver counts with."""
    size = sizeof(copy) - FLAGS.bytes  # without the flags' addresses
    memmove(addressof(copy) + FLAGS.bytes, addressof(arguments) + FLAGS.bytes, size)


def run(
    driver: CompiledKernel, arguments: Words, scratch_bytes: int, threads: int, time_ms: float, keep: object
) -> None:
    """Run a driver that takes ``time_ms`` on ``threads`` threads, or on one thread if more would not help."""
    used = threads if threads > 1 and pools.helped(threads, time_ms) else 1
    pools.run(driver, arguments, scratch_bytes, used, time_ms * threads / used, keep)


@in_default_environment
def predicted(problem: Problem, strides: Strides, machine: Machine, threads: int) -> Chosen:
    """Return the plan that the cost model predicts to be the fastest."""
    return plan(problem, view_of(problem, strides[:-1], strides[-1]), machine, threads)


def executable(
    problem: Problem, strides: Strides, machine: Machine, threads: int, planner: Planner = predicted
) -> Executable:
    """Return the prepared call of a problem for canonical arrays of these strides, from the cache if possible."""
    key = (problem, machine, threads, planner, *strides)
    known = _kept.get(key)
    if known is not None and len(_kept) < CAPACITY // 2:  # no eviction is near: skip the lock and the reordering
        return known
    with _lock:
        known = _kept.pop(key, None)
        if known is not None:
            _kept[key] = known  # move the call to the end, because eviction begins with the first
            return known
    call = tabled(planner(problem, strides, machine, threads), problem, view_of(problem, strides[:-1], strides[-1]))
    with _lock:
        _kept[key] = call
        while len(_kept) > 1 and (len(_kept) > CAPACITY or _kept_bytes() > CAPACITY_BYTES):
            _kept.pop(next(iter(_kept)), None)
    return call


def _kept_bytes() -> int:
    return sum(call.schedule.table_bytes for call in list(_kept.values()))


_lock = forked_with()
_kept: dict[object, Executable] = {}


def executable_of(chosen: Chosen, problem: Problem, operands: Sequence[Array], out: Array) -> Executable:
    """Return the prepared call of a given plan for these arrays, without the cache."""
    return tabled(chosen, problem, view_of(problem, [array.strides for array in operands], out.strides))


def tabled(chosen: Chosen, problem: Problem, view: Any) -> Executable:
    """Return the prepared call of a plan; ``view`` is the loop nest of the problem."""
    schedule = tables(problem, view, chosen)
    addresses = {name: address_of(table) for name, table in schedule.tables.items()}
    shares = shares_of(isas.machine(chosen.spec.isa), chosen.threads, moved_bytes(problem))
    arguments = filled(arguments_of(chosen.spec), {**schedule.numbers, **addresses}, shares)
    kernel = jit.compile(chosen.spec, module_of)
    tensors = (*problem.operands, ONES)
    rows, lanes = (tensors.index(PASSES[problem.solves_for].operands[tensor]) for tensor in chosen.operands)
    bias = tensors.index("bias") if "bias" in problem.operands else None
    ones = np.ones(1, problem.operand_format.dtype)
    alone = pools.needs_no_pool(chosen.threads, chosen.time_ms)
    call = Executable(
        chosen, problem.solves_for, schedule, kernel, arguments, ones, address_of(ones), (rows, lanes), bias, alone, []
    )
    return replace(call, packing=_packing(call)) if schedule.packed_bytes else call


def _packing(call: Executable) -> Executable:
    """Return the call that packs A for ``call``. Its tasks are rows of LINE."""
    arguments, index = type(call.arguments).from_buffer_copy(call.arguments), call.names.index
    for name, instead in (("tasks", "packing"), ("task_count", "packing_count")):
        arguments[index(name)] = arguments[index(instead)]
    kernel = jit.compile(call.plan.spec.packing, packing_of)
    alone = call.alone or call.schedule.packed_bytes < PACK_ALONE_BYTES
    return replace(call, kernel=kernel, arguments=arguments, free=[], alone=alone)
