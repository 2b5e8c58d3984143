"""Compilation of a GPU's kernels: from a specification to PTX, NVIDIA's portable assembly language."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from convgrad.engines.cuda.grid import Grid
from convgrad.engines.cuda.single import level, pack, single
from convgrad.engines.cuda.tile import tile
from convgrad.engines.llvm import jit
from convgrad.plan.cuda.recipe import Spec

TRIPLE = "nvptx64-nvidia-cuda"
CAPABILITY = "sm_80"  # the oldest GPUs for which kernels are compiled; newer GPUs run the same PTX
VERSION = "+ptx70"
COMPILING_MIB = 64  # the memory of LLVM, which ends the process if it cannot allocate


# The functions that emit kernels, by name.
KERNELS: dict[str, Callable[[Any, bool], Grid]] = {"tile": tile, "single": single, "level": level, "pack": pack}


def emitted(spec: Spec, on_cpu: bool = False) -> Grid:
    """Return the emitted kernel of a specification."""
    return KERNELS[spec.name](spec, on_cpu)


@cache
def ptx(spec: Spec) -> str:
    """Return the PTX of a specification's kernel."""
    binding = jit.llvm()
    jit.check_room(COMPILING_MIB, "compiling a kernel for GPUs")
    machine = binding.Target.from_triple(TRIPLE).create_target_machine(cpu=CAPABILITY, features=VERSION, opt=3)
    module = binding.parse_assembly(f'target triple = "{TRIPLE}"\n{emitted(spec)}', binding.create_context())
    module.data_layout = str(machine.target_data)
    module.verify()
    tuning = binding.create_pipeline_tuning_options(speed_level=2)
    builder = binding.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    text: str = machine.emit_assembly(module)
    return text
