"""Compiled functions that threads run without the interpreter's lock: waiting for work, and a region of OpenMP.

A thread of the pool polls its mailbox, runs the driver that is posted there, and polls again. A caller polls two
counters until its threads have ended. In an OpenMP region, the threads that a call needs run its driver, each in its
own scratch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from convgrad.engines.llvm import isas, jit
from convgrad.engines.llvm.arguments import loaded_where_used
from convgrad.engines.llvm.emit import Module
from convgrad.engines.llvm.intrinsics import INTRINSICS
from convgrad.engines.mailbox import AWAY, CLAIMED, LEAVE, MAIL, POSTED, READY
from convgrad.plan.records import Record, addresses


class Waiting(NamedTuple):
    """The compiled functions by which threads wait."""

    # (mailbox, looks): run posted drivers; return after so many looks at the mailbox without a new driver.
    serve: Callable[[int, int], None]
    # (mailbox, kernel, arguments, scratch_bytes, pending, thread): post a driver; return whether the thread takes it.
    post: Callable[[int, int, int, int, int, int], int]
    # (address of a word, address of another, looks): return when both words are 0, or after so many looks.
    idle: Callable[[int, int, int], None]


def module(architecture: str) -> str:
    """Return the IR of ``serve``, ``post`` and ``idle``."""
    intrinsics = INTRINSICS[architecture]
    return f"""
declare void {intrinsics.pause_declared}

{_serve(intrinsics.pause)}
{_post()}
{_idle(intrinsics.pause)}"""


def _word(name: str) -> str:
    """Return the instruction that computes the address of a word of the mailbox."""
    return f"%{name}.at = getelementptr i8, ptr %mail, i64 {8 * MAIL.index(name)}"


def _read(kind: str, name: str) -> str:
    """Return the instructions that load a word of the mailbox."""
    return f"{_word(name)}\n  %{name} = load {kind}, ptr %{name}.at"


def _serve(pause: str) -> str:
    """Return the IR of ``serve``: run what is posted, and leave after ``often`` looks without a post."""
    return f"""define void @serve(ptr %mail, i64 %often) nounwind {{
entry:
  store atomic i64 {READY}, ptr %mail release, align 8
  br label %look
look:
  %n = phi i64 [ 0, %entry ], [ %next, %again ], [ %n, %late ], [ 0, %work ]
  %state = load atomic i64, ptr %mail acquire, align 8
  switch i64 %state, label %nothing [ i64 {POSTED}, label %work
                                      i64 {LEAVE}, label %leave ]
nothing:
  %enough = icmp sge i64 %n, %often
  br i1 %enough, label %late, label %again
again:
  call void {pause}
  %next = add i64 %n, 1
  br label %look
late:
  %tried = cmpxchg ptr %mail, i64 {READY}, i64 {AWAY} seq_cst seq_cst
  %left = extractvalue {{ i64, i1 }} %tried, 1
  br i1 %left, label %end, label %look
leave:
  store atomic i64 {AWAY}, ptr %mail release, align 8
  br label %end
work:
  {_read("ptr", "kernel")}
  {_read("ptr", "arguments")}
  {_read("ptr", "scratch")}
  {_read("ptr", "pending")}
  {_read("i64", "thread")}
  call void %kernel(ptr %arguments, ptr %scratch, i64 %thread)
  store atomic i64 {READY}, ptr %mail release, align 8
  %before = atomicrmw sub ptr %pending, i64 1 seq_cst
  br label %look
end:
  ret void
}}
"""


def _post() -> str:
    """Return the IR of ``post``: claim a mailbox and write a driver to it, unless its scratch is too small."""
    return f"""define i64 @post(
  ptr %mail, ptr %kernel, ptr %arguments, i64 %wanted, ptr %pending, i64 %thread) nounwind {{
entry:
  %tried = cmpxchg ptr %mail, i64 {READY}, i64 {CLAIMED} seq_cst seq_cst
  %claimed = extractvalue {{ i64, i1 }} %tried, 1
  br i1 %claimed, label %look, label %refused
look:
  {_read("i64", "scratch_bytes")}
  %enough = icmp sge i64 %scratch_bytes, %wanted
  br i1 %enough, label %write, label %too_small
write:
  {_word("kernel")}
  store ptr %kernel, ptr %kernel.at
  {_word("arguments")}
  store ptr %arguments, ptr %arguments.at
  {_word("pending")}
  store ptr %pending, ptr %pending.at
  {_word("thread")}
  store i64 %thread, ptr %thread.at
  %before = atomicrmw add ptr %pending, i64 1 seq_cst
  store atomic i64 {POSTED}, ptr %mail release, align 8
  ret i64 1
too_small:
  store atomic i64 {LEAVE}, ptr %mail release, align 8
  br label %refused
refused:
  ret i64 0
}}
"""


def _idle(pause: str) -> str:
    """Return the IR of ``idle``: wait until both words are 0."""
    return f"""define void @idle(ptr %one, ptr %other, i64 %often) nounwind {{
entry:
  br label %look
look:
  %n = phi i64 [ 0, %entry ], [ %next, %again ]
  %a = load atomic i64, ptr %one acquire, align 8
  %b = load atomic i64, ptr %other acquire, align 8
  %both = or i64 %a, %b
  %more = icmp ne i64 %both, 0
  %soon = icmp slt i64 %n, %often
  %go = and i1 %more, %soon
  br i1 %go, label %again, label %end
again:
  call void {pause}
  %next = add i64 %n, 1
  br label %look
end:
  ret void
}}
"""


@cache
def compiled() -> Waiting:
    """Return the compiled functions ``serve``, ``post`` and ``idle`` for this machine."""
    isa = isas.host_isas()[0]
    address, number = ctypes.c_void_p, ctypes.c_int64
    return Waiting(
        *jit.functions(
            isa,
            module,
            isa.architecture,
            serve=(None, address, number),
            post=(number, address, address, address, number, address, number),
            idle=(None, address, address, number),
        )
    )


# -- a region of OpenMP --

REGION = (
    addresses("kernel", "arguments", "scratch")
    + Record("scratch_step", "wanted")
    + addresses("number", "system_call")
    + Record("gettid")
    + Record("member")  # an output: the system's number of a thread of the team that is not the caller
)


def region_module() -> str:
    """Return the IR of ``member``, which every thread of a region calls with the address of a REGION record."""
    module = Module()
    f = module.function("member", public=True, region="ptr")
    r = loaded_where_used(f, f.region, REGION)
    number = f.op("i64", f"zext {f.op('i32', f'call i32 {r.number.name}()')} to i64")
    with f.when(f.compare("eq", number, 1)):
        f.store(f.op("i64", f"call i64 (i64, ...) {r.system_call.name}({r.gettid})"), f.region, REGION.at("member"))
    with f.when(f.compare("ult", number, r.wanted)):
        f.say(f"call void {r.kernel.name}({r.arguments}, {f.at(r.scratch, number * r.scratch_step)}, {number})")
    f.done()
    return str(module)


@cache
def region() -> Any:
    """Return the compiled function ``member`` for this machine, with its address as ``address``."""
    (function,) = jit.functions(isas.host_isas()[0], region_module, member=(None, ctypes.c_void_p))
    return function
