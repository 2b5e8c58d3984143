"""The times of a call: of planning it and compiling its kernels, once per process, and of computing it."""

from __future__ import annotations

import time
from collections.abc import Mapping

from convgrad import arrays, engines
from convgrad.array_types import Array
from convgrad.functional.call import Prepared
from convgrad.spec.problem import Problem
from convgrad.words import duration

Times = Mapping[str, float]


def times_of(problem: Problem, ready_ms: float, compute_ms: float) -> Times:
    """Return the total time and its parts, ready for JSON; the NumPy engine compiles nothing."""
    compile_ms = ready_ms if engines.choose(problem).has_order else 0.0
    times = {"time_ms": compile_ms + compute_ms, "compile_ms": compile_ms, "compute_ms": compute_ms}
    return {name: round(ms, 3) for name, ms in times.items()}


def time_words(times: Mapping[str, float]) -> str:
    """Return times in words; a call that is computed in parts has only a total time.

    >>> time_words({"time_ms": 213, "compile_ms": 210, "compute_ms": 3})
    'kernels ready after 210 ms, computed in 3 ms'
    >>> time_words({"time_ms": 3, "compile_ms": 0, "compute_ms": 3}), time_words({"time_ms": 3})
    ('computed in 3 ms', '3 ms')
    """
    if "compute_ms" not in times:
        return duration(times["time_ms"])
    compiled = f"kernels ready after {duration(times['compile_ms'])}, " if times["compile_ms"] else ""
    return f"{compiled}computed in {duration(times['compute_ms'])}"


def timed(call: Prepared, threads: int | None) -> tuple[Array, Times]:
    """Compute a call; return its result and the times of preparation and computation."""
    problem = call.problem
    out = arrays.empty(problem.output_shape, problem.output_format.dtype)
    started = time.perf_counter()
    engines.memory_bytes(problem, call.operands, call.canonical_output(out), threads)  # compiles the kernels
    ready = time.perf_counter()
    result = call.execute(out, threads)
    ended = time.perf_counter()
    return result, times_of(problem, 1e3 * (ready - started), 1e3 * (ended - ready))
