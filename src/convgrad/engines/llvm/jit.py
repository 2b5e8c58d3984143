"""The compiler: kernels and functions are compiled once per process, or read from the kernel cache."""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from convgrad import starting
from convgrad.engines.engine import CompiledKernel
from convgrad.engines.llvm import object_cache
from convgrad.engines.llvm.emit import separate
from convgrad.engines.llvm.object_cache import Objects
from convgrad.engines.settings import kernel_directory
from convgrad.errors import UnsupportedError
from convgrad.plan.machine import Isa
from convgrad.starting import forked_with, forks_wait_for, has_room, run_on_large_stack

if TYPE_CHECKING:
    from pathlib import Path

    from convgrad.plan.recipe import Spec

CAPACITY = 256  # cached kernels
FUNCTIONS = 1024  # cached code of functions, which new kernels may share: a few MB
MAX_WAIT_S = 10.0  # of the end of the process for each lock, for example that of a kernel that is being compiled
LOADING_MIB, COMPILING_MIB = 192, 40  # the memory of LLVM, which ends the process if it cannot allocate
Specified = TypeVar("Specified", bound="Spec")
Generator = Callable[[Specified], str]  # generates IR: a specification may have several generators
_of_llvmlite: list[threading.RLock] = []  # its lock, which each call of LLVM takes, once it is loaded


@cache
def llvm() -> ModuleType:
    """Return LLVM's binding, initialized; it is loaded at the first kernel."""
    check_room(LOADING_MIB, "loading LLVM")
    import llvmlite.binding  # noqa: PLC0415 - importing convgrad must stay light

    binding: ModuleType = llvmlite.binding
    # llvmlite's own lock, which other users of llvmlite and its finalizers take too
    if (lock := getattr(getattr(binding.ffi.lib, "_lock", None), "_lock", None)) is not None:
        forks_wait_for(lock)
        _of_llvmlite.append(lock)
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    return binding


def check_room(mib: int, what: str) -> None:
    """Raise MemoryError unless ``mib`` can be allocated."""
    if not has_room(mib << 20):
        raise MemoryError(f"unable to allocate {mib} MiB for {what}")


def target_machine(isa: Isa, cpu: str = "", triple: str = "") -> Any:
    """Return LLVM's target machine of an instruction set, tuned for ``cpu``; ``triple`` is Linux by default."""
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
def _llvmlite_version() -> str:
    import llvmlite  # noqa: PLC0415 - importing convgrad must stay light

    version: str = llvmlite.__version__
    return version


@cache
def refusal() -> str:
    """Return why this process cannot run compiled code, or the empty string. It tries."""
    try:
        binding = llvm()
    except (ImportError, OSError) as error:  # there are platforms that llvmlite has no wheel for, or a broken one
        return f"llvmlite, which compiles kernels, cannot be loaded: {error}"
    try:
        machine = binding.Target.from_default_triple().create_target_machine(jit=True)
        # nounwind, as all that is compiled: tables for unwinding stay registered when memory is refused, and name none
        library = (
            binding.JITLibraryBuilder().add_ir("define void @probe() nounwind { ret void }").export_symbol("probe")
        )
        tracker = library.link(binding.create_lljit_compiler(machine, use_jit_link=False), "probe")
        ctypes.CFUNCTYPE(None)(tracker["probe"])()
    except RuntimeError as error:
        return f"executable memory is refused: {str(error).strip()}"
    return ""


class _Linker:
    """The compiler of the process, with a cache of kernels by specification and generator: the least recently used go.

    A thread of ours compiles, under one lock, so that each kernel is compiled once. Cached kernels need no lock.

    Functions are compiled one by one: kernels share about half of them. No pass of LLVM that runs here looks beyond a
    function, so the code is that of whole modules. llvmlite holds a lock of its own while it compiles: two threads
    would not be faster.

    Unused code is unloaded before the next kernel is compiled, by the same thread. At the last reference it could be in
    a finalizer, where Python drops an interrupt.
    """

    def __init__(self) -> None:
        self.lock = forked_with()
        self.kernels: dict[tuple[Spec, Callable[..., str]], CompiledKernel] = {}
        self.compiled: dict[bytes, bytes] = {}  # functions by the digests of their texts
        self.loaded: list[tuple[weakref.ref[Any], Any]] = []  # functions, and what keeps their code in memory
        self.machines: dict[str, Any] = {}  # compilers by instruction set
        self.loaders: dict[str, Any] = {}  # loaders by instruction set
        self.number = 0

    def kernel(self, spec: Specified, generate: Generator[Specified]) -> CompiledKernel:
        known = self._known((spec, generate))
        if known is not None:
            return known
        directory = kernel_directory()
        return run_on_large_stack(lambda: self._make(spec, generate, directory))

    def _known(self, key: tuple[Spec, Callable[..., str]]) -> CompiledKernel | None:
        known = self.kernels.pop(key, None)
        if known is not None:
            self.kernels[key] = known  # the latest at the end
        return known

    def _make(self, spec: Specified, generate: Generator[Specified], directory: Path | None) -> CompiledKernel:
        with self.lock:
            known = self._known((spec, generate))
            if known is None:
                (known,) = self.functions(directory, spec.isa, generate, (spec,), {"driver": DRIVER})
                self.kernels[spec, generate] = known
                if len(self.kernels) > CAPACITY:
                    oldest, *_ = self.kernels  # at once: others look for theirs meanwhile
                    self.kernels.pop(oldest, None)
            return known

    def functions(
        self,
        directory: Path | None,
        isa: Isa,
        module: Callable[..., str],
        described: Sequence[object],
        prototypes: Mapping[str, tuple[Any, ...]],
    ) -> list[Any]:
        with self.lock:  # what is local is gone before a fork gets it: to dispose of that is a call of LLVM too
            self.loaded = [(function, tracker) for function, tracker in self.loaded if function() is not None]
            binding = llvm()
            check_room(COMPILING_MIB, "compiling a kernel")
            triple = binding.get_process_triple()
            if isa.name not in self.machines:
                self.machines[isa.name] = target_machine(isa, triple=triple)
            if self.number % CAPACITY == 0:
                self.loaders.clear()  # LLVM frees the symbols of unloaded kernels only when their loader is freed
            if isa.name not in self.loaders:
                machine = self.machines[isa.name]
                self.loaders[isa.name] = binding.create_lljit_compiler(machine, use_jit_link=False)
            compiler = f"llvmlite {_llvmlite_version()}, LLVM {binding.llvm_version_info}, {triple}"
            key = None if directory is None else object_cache.key(isa, compiler, module, described)
            objects = None
            if directory is not None and key is not None:
                objects = object_cache.store(directory).read(key)
            if objects is None:
                objects = self._objects(isa, f'target triple = "{triple}"\n', module(*described))
                if directory is not None and key is not None:
                    object_cache.store(directory).write(key, objects)
            self.compiled.update(objects)
            while len(self.compiled) > FUNCTIONS:
                del self.compiled[next(iter(self.compiled))]
            return self._linked(isa, objects.values(), prototypes)

    def _objects(self, isa: Isa, triple: str, ir: str) -> Objects:
        """Return the object code of each function of a module."""
        objects = {}
        for text in separate(ir):
            digest = hashlib.sha256(f"{isa!r}\n{text}".encode()).digest()
            code = self.compiled.get(digest)
            if code is None:
                module = llvm().parse_assembly(triple + text, llvm().create_context())
                code = self.machines[isa.name].emit_object(module)
            objects[digest] = code
        return objects

    def _linked(self, isa: Isa, objects: Iterable[bytes], prototypes: Mapping[str, tuple[Any, ...]]) -> list[Any]:
        self.number += 1
        library = llvm().JITLibraryBuilder()
        for code in objects:
            library.add_object_img(code)
        for name in prototypes:
            library.export_symbol(name)
        try:
            tracker = library.link(self.loaders[isa.name], f"kernel{self.number}")
        except RuntimeError as error:  # it was allowed when the first kernel was made
            raise UnsupportedError(
                f"executable memory is refused by now: {str(error).strip()}; CONVGRAD_MAX_ISA=numpy computes without"
            ) from error
        compiled = []
        for name, prototype in prototypes.items():
            function: Any = ctypes.CFUNCTYPE(*prototype)(tracker[name])
            function.address = tracker[name]
            self.loaded.append((weakref.ref(function), tracker))
            compiled.append(function)
        return compiled


DRIVER = (None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)  # of drivers: arguments, scratch, thread
_linker = _Linker()


def end() -> None:
    """Prevent all calls of LLVM by other threads, because the end of the process destroys LLVM's static objects.

    For example, a daemon thread may be loading LLVM for its first call. The locks are taken in the order of a fork, so
    that the end cannot deadlock with a fork of another thread.
    """
    starting.ending.append(True)
    for lock in (_linker.lock, starting.loading, *_of_llvmlite):
        lock.acquire(timeout=MAX_WAIT_S)


atexit.register(end)
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_linker))  # code outlives the interpreter: threads may still be running it


def functions(isa: Isa, module: Callable[..., str], *described: object, **prototypes: tuple[Any, ...]) -> list[Any]:
    """Return compiled functions of ``module(*described)`` by name; a prototype is the result type, then parameters."""
    directory = kernel_directory()
    compiled: list[Any] = run_on_large_stack(lambda: _linker.functions(directory, isa, module, described, prototypes))
    return compiled


def compile(spec: Specified, generate: Generator[Specified]) -> CompiledKernel:
    """Return the compiled driver of a specification: a function of the addresses of its arguments and scratch."""
    return _linker.kernel(spec, generate)
