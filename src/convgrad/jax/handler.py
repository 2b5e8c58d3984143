"""The handler: the function that XLA calls. It computes in XLA's memory, on XLA's threads.

The handler's operands are addresses. A callback of JAX would get arrays instead. Reading an array may wait for a thread
that another callback occupies.
"""

from __future__ import annotations

import atexit
import ctypes

import jax

from convgrad.jax.frame import CANCELLED, INTERNAL, Frame, Handler, error, is_version_query
from convgrad.jax.gate import Answers, gate
from convgrad.jax.site import site

TARGET = "convgrad"


def answer(pointer: ctypes._Pointer[Frame]) -> int | None:
    """Compute the problem of a frame, or answer its version query. Return the address of an error; None on success."""
    frame = pointer.contents
    try:
        if not is_version_query(frame):
            _compute(frame)
    except KeyboardInterrupt:
        return error(frame, CANCELLED, "convgrad: interrupted")
    except BaseException as problem:  # an exception must not propagate into XLA
        return error(frame, INTERNAL, f"{type(problem).__name__}: {problem}")
    return None


def _compute(frame: Frame) -> None:
    text, operands, results = frame.attributes.pointers[0].contents, frame.operands, frame.results
    call_site = site(ctypes.string_at(text.begin, text.size))
    problem = call_site.problem
    if (operands.size, results.size) != (len(problem.operands), 1):
        raise ValueError(
            f"{problem.operator} has {len(problem.operands)} operands and a result; got a program with"
            f" {operands.size} and {results.size}"
        )
    pointers = operands.pointers
    addresses = [pointers[n].contents.data for n in range(len(problem.operands))]
    call_site.compute(addresses, results.pointers[0].contents.data)


def _put(pointer: ctypes._Pointer[Frame], slot: ctypes._Pointer[ctypes.c_void_p]) -> None:
    slot.contents.value = answer(pointer)


_alone, _behind = Handler(answer), Answers(_put)  # never freed, because XLA may call them until the process ends


def register() -> None:
    """Register the handler with XLA for the CPU. XLA then asks for the handler's version before it first calls it."""
    before = gate(_behind)
    if before is not None:
        atexit.register(before.shut)
    entry = _alone if before is None else before.entry
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(entry), platform="cpu")
