"""The kernels for GPUs, run on the CPU: blocks and threads are loops, and memory of the GPU is memory of NumPy."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from convgrad.engines.addresses import address_of
from convgrad.engines.cuda.grid import CPU_PARAMETERS, POINTERS
from convgrad.engines.cuda.kernels import emitted
from convgrad.engines.llvm import isas, jit
from convgrad.plan.cuda.plan import DevicePlan, plan
from convgrad.plan.cuda.recipe import Spec
from convgrad.plan.cuda.vectors import are_aligned
from convgrad.plan.passes import ONES
from convgrad.spec.problem import Problem
from tests.support.engine_helpers import Array

PROCESSORS = 8  # of the imaginary GPU
_TYPES = {"ptr": ctypes.c_void_p, "i64": ctypes.c_int64}


def _text(spec: Spec) -> str:
    return str(emitted(spec, on_cpu=True))


@cache
def kernel(spec: Spec) -> tuple[Any, int]:
    """Return the compiled kernel of a specification, and the bytes of memory that it needs."""
    grid = emitted(spec, on_cpu=True)
    prototype = (None, *[ctypes.c_void_p] * len(POINTERS), *[_TYPES[kind] for kind in CPU_PARAMETERS.values()])
    (function,) = jit.functions(isas.host_isas()[-1], _text, spec, **{grid.name: prototype})
    return function, grid.memory_bytes


def nan_filled(size: int) -> Array:
    """Return aligned memory of at least ``size`` bytes, full of NaN."""
    memory = np.full(size // 4 + 17, np.nan, np.float32)
    return memory[-address_of(memory) % 64 // 4 :]


def launch(spec: Spec, grid: Sequence[int], arguments: Sequence[int]) -> None:
    """Run a kernel on a grid; its arguments are addresses. Vectors must be at multiples of their size."""
    function, size = kernel(spec)
    memory, misaligned = nan_filled(size), np.zeros(1, np.int64)
    function(*arguments, *grid, address_of(memory), address_of(misaligned))
    assert not misaligned[0], f"the address of a vector is not aligned: {spec}"


def run(problem: Problem, operands: Sequence[Array], out: Array, made: DevicePlan | None = None) -> None:
    """Compute a problem from canonical views of its operands into ``out``, as a GPU would."""
    aligned = are_aligned(problem, [address_of(array) for array in (*operands, out)])
    made = made or plan(problem, (*[array.strides for array in operands], out.strides), PROCESSORS, aligned)
    tensors = dict(zip(problem.operands, operands, strict=True))
    a, b = (0 if name == ONES else address_of(tensors[name]) for name in made.operands)
    bias = address_of(tensors["bias"]) if "bias" in tensors else 0
    table, scratch = nan_filled(len(made.table)), nan_filled(made.scratch_bytes)
    table.view(np.uint8)[: len(made.table)] = np.frombuffer(made.table, np.uint8)
    work = address_of(scratch)
    for one in made.launches:
        reads = work + one.reads if one.spec.name == "level" else a
        of_b, numbers = work if one.is_packed else b, address_of(table) + one.table
        launch(one.spec, one.grid, (reads, of_b, address_of(out), bias, work + one.writes, numbers))
