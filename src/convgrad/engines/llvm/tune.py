"""Measured choice: the promising plans of a problem are timed at its first call, and the fastest is remembered.

All plans compute the same bits, so the choice changes nothing but the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from math import inf
from time import perf_counter
from typing import Any

import numpy as np

from convgrad.array_types import Array
from convgrad.engines import pools
from convgrad.engines.engine import Strides
from convgrad.engines.llvm import object_cache
from convgrad.engines.llvm.execute import Executable, tabled
from convgrad.engines.settings import kernel_directory
from convgrad.float_environment import in_default_environment
from convgrad.host import cpu_model
from convgrad.plan.constants import MAX_KERNELS_PLANNED
from convgrad.plan.machine import Machine
from convgrad.plan.passes import plan, plans, view_of
from convgrad.plan.recipe import Chosen, Rejected
from convgrad.spec.problem import Problem, canonical_shapes
from convgrad.starting import deferred
from convgrad.words import duration

CUTS = 2  # divisions of the work that are timed per kernel
MAX_PLANS = 8  # that are timed
PROMISING = 3.0  # times the predicted time of the cheapest plan: slower plans are not timed
ROUNDS_OF_ALL = 2  # rounds in which all plans are timed: in the first round, threads may still sleep
SLOW = 1.5  # times the time of the fastest plan: slower plans are not timed in later rounds
MIN_GAIN = 0.03  # of the time: a smaller gain may be noise, and does not replace the plan of the cost model
SAMPLE_S = 0.01  # of calls of one plan per round
MIN_ROUNDS, MAX_ROUNDS, ROUNDS_S = 4, 50, 0.2  # rounds go on until this time is used
REMEMBERED = 1024


@lru_cache(maxsize=REMEMBERED)
@in_default_environment
def fastest(problem: Problem, strides: Strides, machine: Machine, threads: int) -> Chosen:
    """Return the fastest measured plan for arrays of these strides.

    An earlier process may have measured it: results are kept in the kernel cache, by processor and sources.
    """
    candidates = _candidates(problem, strides, machine, threads)
    directory = kernel_directory()
    facts = (problem, strides, machine, threads, pools.name())
    name = None if directory is None else object_cache.key(machine.isa, cpu_model(), measured, facts)
    store = None if directory is None or name is None else object_cache.store(directory)
    times: Any = None if store is None or name is None else store.read_value(name)
    if not _are_times(times, len(candidates)):
        try:
            times = measured(problem, strides, candidates)
        except MemoryError:  # elements of a mapped file may be farther apart than there is memory
            return candidates[0]
        if store is not None and name is not None:
            store.write_value(name, times)
    return _choice(candidates, times)


def _are_times(value: object, count: int) -> bool:
    """Return whether a value from a file is a list of ``count`` times."""
    return isinstance(value, list) and len(value) == count and all(type(v) is float and 0 < v < inf for v in value)


def _candidates(problem: Problem, strides: Strides, machine: Machine, threads: int) -> list[Chosen]:
    """Return the plans to time, first the plan of the cost model."""
    view = view_of(problem, strides[:-1], strides[-1])
    first = plan(problem, view, machine, threads)
    others = plans(problem, view, machine, threads, MAX_KERNELS_PLANNED, CUTS)
    if threads > 1:
        others += plans(problem, view, machine, 1, 1)
    return distinct((first, *(other for other in others if other.time_ms < PROMISING * first.time_ms)))[:MAX_PLANS]


def distinct(candidates: Iterable[Chosen]) -> list[Chosen]:
    """Return the first ones of plans that differ only in what is predicted about them."""
    first: dict[Chosen, Chosen] = {}
    for candidate in candidates:
        first.setdefault(replace(candidate, time_ms=0.0, rejected=()), candidate)
    return [*first.values()]


def measured(problem: Problem, strides: Strides, candidates: Sequence[Chosen]) -> list[float]:
    """Return the time of each plan in ms, the minimum of several rounds, on random operands."""
    *operands, out = _arrays(problem, strides)
    view = view_of(problem, strides[:-1], strides[-1])
    calls = [tabled(candidate, problem, view) for candidate in candidates]
    times = [float("inf")] * len(calls)
    began, rounds = perf_counter(), 0
    while rounds < MIN_ROUNDS or (perf_counter() - began < ROUNDS_S and rounds < MAX_ROUNDS):
        limit = SLOW * min(times) if rounds >= ROUNDS_OF_ALL else float("inf")
        times = [
            time if time > limit else min(time, _time_ms(call, operands, out))
            for time, call in zip(times, calls, strict=True)
        ]
        rounds += 1
    return times


def _time_ms(call: Executable, operands: Sequence[Array], out: Array) -> float:
    """Return the time of the fastest of several calls in ms. The first calls wake the threads of the pool."""
    fastest_s, began, now = float("inf"), perf_counter(), 0.0
    while now < SAMPLE_S:
        before = now
        call.execute(operands, out)
        now = perf_counter() - began
        fastest_s = min(fastest_s, now - before)
    return 1e3 * fastest_s


@deferred
def _default_rng() -> Callable[[int], np.random.Generator]:
    """Return NumPy's function that makes a generator, whose module NumPy imports on first use."""
    from numpy.random import default_rng  # noqa: PLC0415

    return default_rng


def _arrays(problem: Problem, strides: Strides) -> list[Array]:
    """Return canonical arrays of these strides: random operands, and an output of zeros."""
    rng, last = _default_rng()(0), len(problem.operands)
    arrays: list[Array] = []
    for number, (shape, steps) in enumerate(zip(canonical_shapes(problem), strides, strict=True)):
        dtype = (problem.output_format if number == last else problem.operand_format).dtype
        reach = [(extent - 1) * step for extent, step in zip(shape, steps, strict=True)]  # in bytes, of any number
        first = -sum(min(0, distance) for distance in reach)
        memory = np.empty(-(-(first + sum(max(0, distance) for distance in reach)) // dtype.itemsize) + 1, dtype)
        array: Array = np.ndarray(shape, dtype, memory, first, steps)
        array[...] = rng.standard_normal(shape, np.float32) if number < last else 0  # no page is new in a call
        arrays.append(array)
    return arrays


def _choice(candidates: Sequence[Chosen], times: Sequence[float]) -> Chosen:
    """Return the fastest plan, with the times of other kernels. The first stays unless another is clearly faster."""
    best = min(range(len(candidates)), key=lambda n: times[n] * (1 if n else 1 - MIN_GAIN))
    kernels: dict[str, float] = {}
    for time, candidate in sorted(zip(times, candidates, strict=True), key=lambda pair: pair[0]):
        kernels.setdefault(candidate.summary, time)
    del kernels[candidates[best].summary]
    slower = [Rejected(name, f"{duration(time)} measured", slower=True) for name, time in kernels.items()]
    rejected = [candidate for candidate in candidates[0].rejected if not candidate.slower]
    return replace(candidates[best], measured_ms=times[best], rejected=(*slower, *rejected))
