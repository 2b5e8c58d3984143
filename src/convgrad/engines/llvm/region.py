"""What each thread of an OpenMP region runs: a driver, if it is one of those wanted, in scratch of its own."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from convgrad.engines.llvm import isas, jit

REGION = ("kernel", "arguments", "scratch", "scratch_step", "wanted", "number")  # words, most of them addresses


def module() -> str:
    """Return the IR of ``each``, a function of the address of a region's words."""

    def read(kind: str, name: str) -> str:
        at = f"%{name}.at = getelementptr i8, ptr %region, i64 {8 * REGION.index(name)}"
        return f"{at}\n  %{name} = load {kind}, ptr %{name}.at"

    return f"""
define void @each(ptr %region) nounwind {{
entry:
  {read("ptr", "number")}
  %mine = call i32 %number()
  %n = zext i32 %mine to i64
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
