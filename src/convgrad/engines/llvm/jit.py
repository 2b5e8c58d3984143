"""Compiling: one target machine and one linker a process, a kernel once, and the instruction set of the host."""

from __future__ import annotations

import ctypes
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from convgrad.errors import UnsupportedError
from convgrad.plan.machine import Isa

if TYPE_CHECKING:
    from convgrad.plan.recipe import KernelSpec

CAPACITY = 256  # kernels kept
LOADING_MIB, COMPILING_MIB = 192, 32  # what LLVM takes: where it cannot have that, it ends the process
Kernel = Callable[[int, int], None]


@cache
def llvm() -> Any:
    """Return LLVM's binding, set up; loaded at the first kernel only."""
    _room(LOADING_MIB, "loading LLVM")
    from llvmlite import binding  # noqa: PLC0415 - importing convgrad must stay light

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    return binding


def _room(mib: int, what: str) -> None:
    """Raise MemoryError unless so much memory can be had."""
    try:
        np.empty(mib << 20, np.uint8)
    except MemoryError:
        raise MemoryError(f"unable to allocate {mib} MiB for {what}") from None


def target_machine(isa: Isa, cpu: str = "", triple: str = "") -> Any:
    """Return what makes code for an instruction set; ``cpu`` tunes, ``triple`` is the system, Linux without one."""
    features = ",".join(f"+{name}" for name in isa.features)
    if isa.architecture == "x86_64":
        features += ",-prefer-256-bit" if isa.lanes == 16 else ",+prefer-256-bit"
    target = llvm().Target.from_triple(triple or isa.triple)
    return target.create_target_machine(cpu=cpu, features=features, opt=2, jit=bool(triple), reloc="pic")


def assembly(ir: str, isa: Isa, cpu: str = "") -> str:
    """Return the assembly text of a module for Linux."""
    module = llvm().parse_assembly(f'target triple = "{isa.triple}"\n{ir}')
    module.verify()
    text: str = target_machine(isa, cpu).emit_assembly(module)
    return text


@cache
def refusal() -> str:
    """Return why this process may not run code made at run time, by trying; the empty string where it may."""
    binding = llvm()
    try:
        machine = binding.Target.from_default_triple().create_target_machine(jit=True)
        library = binding.JITLibraryBuilder().add_ir("define void @probe() { ret void }").export_symbol("probe")
        tracker = library.link(binding.create_lljit_compiler(machine, use_jit_link=False), "probe")
        ctypes.CFUNCTYPE(None)(tracker["probe"])()
    except RuntimeError as error:
        return f"executable memory is refused: {str(error).strip()}"
    return ""


class _Linker:
    """The process's compiler: kernels by specification, the longest unused leave first."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.kernels: OrderedDict[KernelSpec, tuple[Kernel, Any]] = OrderedDict()
        self.busy: dict[KernelSpec, threading.Event] = {}
        self.jits: dict[str, Any] = {}
        self.number = 0

    def kernel(self, spec: KernelSpec, generate: Callable[[KernelSpec], str]) -> Kernel:
        while True:
            with self.lock:
                if spec in self.kernels:
                    self.kernels.move_to_end(spec)
                    return self.kernels[spec][0]
                waiting = self.busy.get(spec)
                if waiting is None:
                    done = self.busy[spec] = threading.Event()
                    break
            waiting.wait()
        try:
            ir = generate(spec)
            with self.lock:
                made = self._compile(ir, spec)
                self.kernels[spec] = made
                if len(self.kernels) > CAPACITY:
                    self.kernels.popitem(last=False)
                return made[0]
        finally:
            with self.lock:
                del self.busy[spec]
            done.set()

    def _compile(self, ir: str, spec: KernelSpec) -> tuple[Kernel, Any]:
        binding = llvm()
        _room(COMPILING_MIB, "compiling a kernel")
        triple = binding.get_process_triple()
        if spec.isa.name not in self.jits:
            machine = target_machine(spec.isa, triple=triple)
            self.jits[spec.isa.name] = binding.create_lljit_compiler(machine, use_jit_link=False)
        self.number += 1
        library = binding.JITLibraryBuilder().add_ir(f'target triple = "{triple}"\n{ir}').export_symbol("driver")
        try:
            tracker = library.link(self.jits[spec.isa.name], f"kernel{self.number}")
        except RuntimeError as error:  # it was allowed when the first kernel was made
            raise UnsupportedError(
                f"executable memory is refused by now: {str(error).strip()}; CONVGRAD_MAX_ISA=numpy computes without"
            ) from error
        prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
        function: Any = prototype(tracker["driver"])
        function.tracker = tracker  # the code lives as long as somebody may call it
        return function, tracker


_linker = _Linker()
if hasattr(os, "register_at_fork"):  # a child must not inherit a lock that a thread it does not have is holding
    os.register_at_fork(
        before=_linker.lock.acquire, after_in_parent=_linker.lock.release, after_in_child=_linker.lock.release
    )


def compile(spec: KernelSpec, generate: Callable[[KernelSpec], str]) -> Kernel:
    """Return the compiled driver of a specification: a function of the addresses of its arguments and scratch."""
    return _linker.kernel(spec, generate)
