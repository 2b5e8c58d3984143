"""How long a call took: planning it and compiling its kernels, once a process, and computing it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from convgrad import arrays, engines
from convgrad.functional.call import Prepared


@dataclass(frozen=True)
class Times:
    """The milliseconds that planning and compiling kernels took, 0 where there are none, and computing."""

    compile_ms: float
    compute_ms: float

    def values(self) -> dict[str, float]:
        """Return the times ready for JSON: of all, and its two parts."""
        parts = {"compile_ms": self.compile_ms, "compute_ms": self.compute_ms}
        return {name: round(ms, 3) for name, ms in {"time_ms": sum(parts.values()), **parts}.items()}

    def __str__(self) -> str:
        """Return the times in words.

        >>> str(Times(210.0, 3.0)), str(Times(0.0, 3.0))
        ('kernels compiled in 210 ms, computed in 3 ms', 'computed in 3 ms')
        """
        compiled = f"kernels compiled in {self.compile_ms:.3g} ms, " if self.compile_ms else ""
        return f"{compiled}computed in {self.compute_ms:.3g} ms"


def timed(call: Prepared, threads: int | None) -> tuple[NDArray[Any], Times]:
    """Compute a call; return its result and how long it took to be ready, and then."""
    problem = call.problem
    out = arrays.empty(problem.output_shape, problem.output_format.dtype)
    started = time.perf_counter()
    engines.memory_bytes(problem, call.operands, call.canonical_output(out), threads)  # which has its kernels made
    ready = time.perf_counter()
    result = call.execute(out, threads)
    ended = time.perf_counter()
    has_kernels = engines.choose(problem).isa is not None
    return result, Times(1e3 * (ready - started) * has_kernels, 1e3 * (ended - ready))
