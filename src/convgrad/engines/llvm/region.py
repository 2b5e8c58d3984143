"""What each thread of an OpenMP region runs: a driver, if it is one of those wanted, in scratch of its own."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from convgrad.engines.llvm import isas, jit

REGION = (  # words, most of them addresses; "member" is written: the system's number of a thread that is not the caller
    "kernel", "arguments", "scratch", "scratch_step", "wanted", "number", "system_call", "gettid", "member",
)  # fmt: skip


def module() -> str:
    """Return the IR of ``each``, a function of the address of a region's words."""

    def word(name: str) -> str:
        return f"%{name}.at = getelementptr i8, ptr %region, i64 {8 * REGION.index(name)}"

    def read(kind: str, name: str) -> str:
        return f"{word(name)}\n  %{name} = load {kind}, ptr %{name}.at"

    return f"""
define void @each(ptr %region) nounwind {{
entry:
  {read("ptr", "number")}
  %mine = call i32 %number()
  %n = zext i32 %mine to i64
  %second = icmp eq i64 %n, 1
  br i1 %second, label %tell, label %begin
tell:
  {read("ptr", "system_call")}
  {read("i64", "gettid")}
  %tid = call i64 (i64, ...) %system_call(i64 %gettid)
  {word("member")}
  store i64 %tid, ptr %member.at
  br label %begin
begin:
  {read("i64", "wanted")}
  %joins = icmp ult i64 %n, %wanted
  br i1 %joins, label %work, label %end
work:
  {read("ptr", "kernel")}
  {read("ptr", "arguments")}
  {read("ptr", "scratch")}
  {read("i64", "scratch_step")}
  %offset = mul i64 %n, %scratch_step
  %own = getelementptr i8, ptr %scratch, i64 %offset
  call void %kernel(ptr %arguments, ptr %own)
  br label %end
end:
  ret void
}}
"""


@cache
def compiled() -> Any:
    """Return the function, compiled for this machine; its ``address`` is where it begins."""
    (each,) = jit.functions(isas.host_isas()[0], module, each=(None, ctypes.c_void_p))
    return each
