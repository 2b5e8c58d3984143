"""The gate between XLA and the handler: compiled code that runs without the interpreter and is shut at exit.

A thread that requests the GIL of an ending interpreter never returns, and XLA would wait for the thread forever. So the
gate returns an error instead of calling the handler. It also returns an error if the handler stores no answer, because
an interrupt may be raised before the handler's first line.
"""

from __future__ import annotations

import ctypes
import os
import time

from convgrad.engines.llvm import isas, jit
from convgrad.jax.frame import CANCELLED, Api, ErrorArguments, Frame
from convgrad.plan.machine import Isa

LOOK_S = 0.0005  # seconds between two checks whether all threads have left the gate
NOTHING = 1  # the initial value of the slot for the handler's answer; answers are addresses
_REFUSAL = b"convgrad: interrupted, or the process is ending"
Answers = ctypes.CFUNCTYPE(None, ctypes.POINTER(Frame), ctypes.POINTER(ctypes.c_void_p))  # the type of a gate's handler


class Gate:
    """Compiled code that calls a handler until the gate is shut; afterwards the code returns an error."""

    def __init__(self, isa: Isa, handler: ctypes._CFunctionType) -> None:
        self.words = (ctypes.c_int64 * 2)()  # is the gate shut; number of threads in it
        self.error = ErrorArguments(ctypes.sizeof(ErrorArguments), None, _REFUSAL, CANCELLED)
        self.handler = handler
        shut, error = ctypes.addressof(self.words), ctypes.addressof(self.error)
        target = ctypes.cast(handler, ctypes.c_void_p).value
        pointers = (ctypes.c_void_p, ctypes.c_void_p)
        # the code is never stored in a file, because its addresses are valid only in this process
        (self.entry,) = jit.functions(isa, lambda: _module(shut, error, target or 0), enter=pointers)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))  # keep the gate forever, because threads may still enter
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.empty)

    def empty(self) -> None:
        """Set the number of threads in the gate to 0, because a forked child does not have its parent's threads."""
        self.words[1] = 0

    def shut(self) -> None:
        """Refuse all later calls, and wait until all threads have left the gate."""
        self.words[0] = 1
        while self.words[1]:
            time.sleep(LOOK_S)


def gate(handler: ctypes._CFunctionType) -> Gate | None:
    """Return a gate for a handler; None if this system cannot run code that is generated at run time."""
    isa = isas.isa()
    return Gate(isa, handler) if isa else None


def _module(shut: int, error: int, handler: int) -> str:
    return f"""
define ptr @enter(ptr %frame) nounwind {{
entry:
  %inside = inttoptr i64 {shut + 8} to ptr
  %shut.at = inttoptr i64 {shut} to ptr
  %before = atomicrmw add ptr %inside, i64 1 seq_cst
  %shut = load atomic i64, ptr %shut.at seq_cst, align 8
  %open = icmp eq i64 %shut, 0
  br i1 %open, label %call, label %refuse
call:
  %handler = inttoptr i64 {handler} to ptr
  %slot = alloca i64, align 8
  store i64 {NOTHING}, ptr %slot
  call void %handler(ptr %frame, ptr %slot)
  %answer = load i64, ptr %slot
  %said = icmp ne i64 %answer, {NOTHING}
  br i1 %said, label %answered, label %refuse
answered:
  %address = inttoptr i64 %answer to ptr
  br label %leave
refuse:
  %api.at = getelementptr i8, ptr %frame, i64 {Frame.api.offset}
  %api = load ptr, ptr %api.at
  %make.at = getelementptr i8, ptr %api, i64 {Api.make_error.offset}
  %make = load ptr, ptr %make.at
  %arguments = inttoptr i64 {error} to ptr
  %error = call ptr %make(ptr %arguments)
  br label %leave
leave:
  %result = phi ptr [ %address, %answered ], [ %error, %refuse ]
  %after = atomicrmw sub ptr %inside, i64 1 seq_cst
  ret ptr %result
}}
"""
