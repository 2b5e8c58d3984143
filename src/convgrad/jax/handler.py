"""The function that XLA calls: it computes in XLA's own memory, on XLA's own threads, without JAX arrays.

JAX's own callbacks get arrays. Reading an array may wait for a thread that another callback occupies. This function
gets addresses instead.
"""

from __future__ import annotations

import atexit
import ctypes
from typing import Any

import jax

from convgrad.jax.frame import CANCELLED, INTERNAL, Handler, error, is_version_query
from convgrad.jax.gate import Answers, gate
from convgrad.jax.site import site

TARGET = "convgrad"


def answer(pointer: Any) -> int | None:
    """Compute a frame's problem or answer its version query; return the address of an error, or None."""
    frame = pointer.contents
    try:
        if not is_version_query(frame):
            _compute(frame)
    except KeyboardInterrupt:
        return error(frame, CANCELLED, "convgrad: interrupted")
    except BaseException as problem:  # exceptions must not pass through XLA
        return error(frame, INTERNAL, f"{type(problem).__name__}: {problem}")
    return None


def _compute(frame: Any) -> None:
    text, operands, results = frame.attributes.each[0].contents, frame.operands, frame.results
    what = site(ctypes.string_at(text.begin, text.size))
    if (operands.size, results.size) != (len(what.problem.operands), 1):
        raise ValueError(
            f"{what.problem.operator} has {len(what.problem.operands)} operands and a result; got a program with"
            f" {operands.size} and {results.size}"
        )
    each = operands.each
    given = [each[n].contents.data for n in range(len(what.problem.operands))]
    what.compute(given, results.each[0].contents.data)


def _put(pointer: Any, slot: Any) -> None:
    slot[0] = answer(pointer)


_alone, _behind = Handler(answer), Answers(_put)  # kept until the process ends, because XLA may call them until then


def register() -> None:
    """Register the handler with XLA for the CPU; XLA asks for its version before the first program that calls it."""
    before = gate(_behind)
    if before is not None:
        atexit.register(before.shut)
    entry = _alone if before is None else before.entry
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(entry), platform="cpu")
