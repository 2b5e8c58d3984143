"""Calls of the drivers that compute per-sample norms and that scale samples, with their arguments and scratch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import addressof, sizeof
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from convgrad.array_types import Array
from convgrad.engines import pools
from convgrad.engines.addresses import Words, address_of
from convgrad.engines.engine import CompiledKernel
from convgrad.engines.llvm import jit, squares
from convgrad.engines.llvm.execute import Executable, copied, executable, filled, run
from convgrad.plan.machine import Isa, Machine
from convgrad.plan.records import SHARED
from convgrad.plan.split_k.schedule import OPERANDS
from convgrad.plan.tables import placed
from convgrad.spec.problem import Problem


class NormKernels(NamedTuple):
    """The compiled functions for squared norms."""

    squares: Callable[[int, int, int, int], None]  # (rows, number of rows, elements per row, norms): write the norms
    driver: CompiledKernel  # computes gradients of samples and their squared norms


@cache
def compiled(isa: Isa) -> NormKernels:
    """Return the functions for squared norms, compiled once per instruction set."""
    address, number = ctypes.c_void_p, ctypes.c_int64
    prototypes = {"squares": (None, address, number, number, address), "driver": jit.DRIVER}
    return NormKernels(*jit.functions(isa, squares.module_of, isa, **prototypes))


def squares_of(isa: Isa, rows: Array) -> Array:
    """Return the squared norm of each row of a dense f32 array, in f64."""
    norms = np.empty(len(rows))
    compiled(isa).squares(address_of(rows), len(rows), rows.shape[1], address_of(norms))
    return norms


def norms2(problem: Problem, operands: Sequence[Array], out: Array, machine: Machine, threads: int) -> None:
    """Write the squared norm of each sample's gradient into ``out``.

    ``problem`` has one sample; ``operands`` have all samples. Each thread computes whole samples. If samples are so few
    that this would take longer, all threads compute one sample together, then the next.
    """
    samples = len(out)
    gradient = np.empty(problem.output_shape, np.float32)
    view = gradient.transpose(problem.output_order)
    strides = [*[operand.strides for operand in operands], view.strides]
    alone, together = (executable(problem, strides, machine, number) for number in (1, threads))
    time_ms = -(-samples // threads) * alone.plan.time_ms
    if samples * together.plan.time_ms < time_ms:
        _one_by_one(alone, together, operands, view, out, compiled(machine.isa).squares)
        return
    arguments, scratch_bytes = _bound(alone, operands, gradient, out)
    run(compiled(machine.isa).driver, arguments, scratch_bytes, threads, time_ms, (alone, operands, out))


def _one_by_one(
    alone: Executable, together: Executable, operands: Sequence[Array], view: Array, out: Array, add: Any
) -> None:
    """Compute each sample's gradient on all threads, and its squared norm on the calling thread."""
    gradient, norms = address_of(view), address_of(out)
    for sample in range(len(out)):
        call = together if pools.helped(together.plan.threads, together.plan.time_ms) else alone
        call.execute([operand[sample : sample + 1] for operand in operands], view)
        add(gradient, 1, view.size, norms + out.itemsize * sample)


def _bound(call: Executable, operands: Sequence[Array], gradient: Array, out: Array) -> tuple[Words, int]:
    """Return the driver's arguments for these arrays, and the bytes of scratch per thread."""
    assert call.schedule.partial_bytes == 0, "one thread shares nothing"
    kernel: Any = call.kernel
    size = sizeof(call.arguments)
    at, _ = placed({"image_arguments": size, "gradient": gradient.nbytes, "scratch": 0})
    values = {
        "driver": kernel.address,
        "image_arguments": addressof(call.arguments),
        "norms": address_of(out),
        "samples": len(out),
        "columns": len(call.arguments),
        "flags": size - SHARED.bytes,
        "elements": gradient.size,
        "gradient_at": at["gradient"],
        "scratch_at": at["scratch"],
    }
    for name, number, offset in zip(OPERANDS, call.sides, call.schedule.offsets, strict=True):
        is_operand = number < len(operands)
        array = operands[number] if is_operand else call.ones
        values |= {f"{name}.data": address_of(array) + offset, f"{name}.image": array.strides[0] * is_operand}
    arguments, _ = copied(filled(squares.ARGUMENTS, values))
    return arguments, at["scratch"] + call.schedule.scratch_bytes
