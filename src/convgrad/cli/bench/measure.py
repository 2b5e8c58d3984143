"""The machine's peak speeds, measured with loops in LLVM IR that only multiply and add, or only read memory.

Multiply-adds run in CHAINS independent chains of registers, so that their latency is hidden. Reads repeat over one
working set. The loops run on Python's threads, because ctypes releases the interpreter's lock.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from threading import Barrier
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from convgrad.engines.llvm import jit
from convgrad.errors import UnsupportedError
from convgrad.host import staying_on, usable_cores

CHAINS = 12
SAMPLE_S = 0.01  # so long that waking threads, about 50 us, takes less than one percent
GATE_S = 10.0  # the longest wait for all threads: if the start is interrupted, they must not wait forever
STREAMS = 8
WIDTHS = (("avx512f", 64), ("avx", 32))  # the bytes of a vector, by CPU feature; without these features a vector has 16
ELEMENTS = {"f32": ("float", 4), "f64": ("double", 8)}


@cache
def _llvm() -> ModuleType:
    """Return LLVM's Python module. Raise UnsupportedError if the system does not run code generated at run time."""
    if why := jit.refusal():
        raise UnsupportedError(f"bench compiles the loops that measure the machine's peak: {why}")
    return jit.llvm()


@cache
def vector_bytes() -> int:
    """Return the size of the host's widest vector register in bytes."""
    features = _llvm().get_host_cpu_features()
    return next((width for feature, width in WIDTHS if features.get(feature)), 16)


def fma_ir(element: str) -> str:
    """Return the IR of fma(passes, x), which repeats a = a*x[0] + x[1] in CHAINS registers and stores the sum in x[0].

    x[0] and x[1] are vectors.
    """
    scalar, size = ELEMENTS[element]
    lanes = vector_bytes() // size
    vector, intrinsic = f"<{lanes} x {scalar}>", f"@llvm.fma.v{lanes}{element}"
    chains = range(CHAINS)
    phis = [f"  %a{i} = phi {vector} [zeroinitializer, %entry], [%b{i}, %loop]" for i in chains]
    steps = [f"  %b{i} = call {vector} {intrinsic}({vector} %a{i}, {vector} %scale, {vector} %shift)" for i in chains]
    sums = [f"  %s{i + 1} = fadd {vector} {'%b0' if i == 0 else f'%s{i}'}, %b{i + 1}" for i in chains[:-1]]
    return "\n".join(
        [
            f"declare {vector} {intrinsic}({vector}, {vector}, {vector})",
            "define void @fma(i64 %passes, ptr %x) nounwind {",
            "entry:",
            f"  %second = getelementptr {vector}, ptr %x, i64 1",
            f"  %scale = load {vector}, ptr %x, align {size}",
            f"  %shift = load {vector}, ptr %second, align {size}",
            "  br label %loop",
            "loop:",
            "  %n = phi i64 [%passes, %entry], [%left, %loop]",
            *phis,
            *steps,
            "  %left = sub i64 %n, 1",
            "  %more = icmp ne i64 %left, 0",
            "  br i1 %more, label %loop, label %end",
            "end:",
            *sums,
            f"  store {vector} %s{CHAINS - 1}, ptr %x, align {size}",
            "  ret void",
            "}",
        ]
    )


def read_ir() -> str:
    """Return the IR of read(passes, x, bytes): it reads all bytes ``passes`` times and stores their bitwise or in x."""
    width = vector_bytes()
    vector = f"<{width // 8} x i64>"
    streams = range(STREAMS)
    phis = [f"  %a{i} = phi {vector} [zeroinitializer, %pass], [%b{i}, %loop]" for i in streams]
    body = [
        line
        for i in streams
        for line in (
            f"  %o{i} = add i64 %at, {i * width}",
            f"  %p{i} = getelementptr i8, ptr %x, i64 %o{i}",
            f"  %v{i} = load {vector}, ptr %p{i}, align {width}",
            f"  %b{i} = or {vector} %a{i}, %v{i}",
        )
    ]
    joins = [f"  %s{i + 1} = or {vector} {'%b0' if i == 0 else f'%s{i}'}, %b{i + 1}" for i in streams[:-1]]
    return "\n".join(
        [
            "define void @read(i64 %passes, ptr %x, i64 %bytes) nounwind {",
            "entry:",
            "  br label %pass",
            "pass:",
            "  %n = phi i64 [%passes, %entry], [%left, %next]",
            "  br label %loop",
            "loop:",
            "  %at = phi i64 [0, %pass], [%after, %loop]",
            *phis,
            *body,
            f"  %after = add i64 %at, {STREAMS * width}",
            "  %inside = icmp ult i64 %after, %bytes",
            "  br i1 %inside, label %loop, label %next",
            "next:",
            *joins,
            f"  store {vector} %s{STREAMS - 1}, ptr %x, align {width}",
            "  %left = sub i64 %n, 1",
            "  %more = icmp ne i64 %left, 0",
            "  br i1 %more, label %pass, label %end",
            "end:",
            "  ret void",
            "}",
        ]
    )


@cache
def _compiler() -> object:
    llvm = _llvm()
    host = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3, jit=True
    )
    return llvm.create_lljit_compiler(host)


@cache
def _compiled(name: str, ir: str) -> tuple[object, int]:
    """Return the owner of the compiled function, and the function's address, which is valid while the owner exists."""
    library = f"measure.{name}.{hash(ir)}"
    tracker = _llvm().JITLibraryBuilder().add_ir(ir).export_symbol(name).link(_compiler(), library)
    return tracker, tracker[name]


class FmaPeak:
    """A sampler of the multiply-add peak of some threads. ``FmaPeak(2, "f32")()`` returns a sample in GFLOP/s."""

    def __init__(self, threads: int, element: str) -> None:
        size = ELEMENTS[element][1]
        self._run = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(_compiled("fma", fma_ir(element))[1])
        self._lanes = vector_bytes() // size
        self._threads, self._dtype = threads, np.dtype(f"f{size}")
        self._flops_per_pass = 2 * CHAINS * self._lanes
        self._passes = _enough(self._timed)

    def __call__(self) -> float:
        """Return one sample of the peak in GFLOP/s."""
        return self._passes * self._flops_per_pass * self._threads / self._timed(self._passes) / 1e9

    def _timed(self, passes: int) -> float:
        operands = [np.repeat(np.array([0.5, 1.0], self._dtype), self._lanes) for _ in range(self._threads)]
        return _together([partial(self._run, passes, x.ctypes.data) for x in operands])


def read_bandwidth(threads: int, bytes_per_thread: int) -> float:
    """Return the bandwidth in GB/s of ``threads`` threads, each reading its own working set; the best of five runs."""
    run = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(_compiled("read", read_ir())[1])
    step = STREAMS * vector_bytes()
    size = max(step, bytes_per_thread // step * step)
    sets = [_aligned(size) for _ in range(threads)]

    def timed(passes: int) -> float:
        return _together([partial(run, passes, x.ctypes.data, size) for x in sets])

    passes = _enough(timed)
    return passes * size * threads / min(timed(passes) for _ in range(5)) / 1e9


def _aligned(size: int) -> NDArray[np.uint8]:
    memory = np.ones(size + 64, np.uint8)  # because all pages of np.zeros share memory until they are written
    first = -memory.ctypes.data % 64
    return memory[first : first + size]


def _together(calls: Sequence[Callable[[], None]]) -> float:
    """Return the seconds from the first start to the last end of calls that start together, one per thread.

    Each thread records its own times, because the calling thread may still sleep after the others have started.
    """
    gate, cores = Barrier(len(calls)), usable_cores()

    def run(number: int) -> tuple[float, float]:
        with staying_on([cores[number % len(cores)]]):
            gate.wait(GATE_S)
            started = time.perf_counter()
            calls[number]()
            return started, time.perf_counter()

    with ThreadPoolExecutor(len(calls)) as pool:
        starts, ends = zip(*pool.map(run, range(len(calls))), strict=True)
    return float(max(ends) - min(starts))


def _enough(timed: Callable[[int], float]) -> int:
    """Return the number of passes that take SAMPLE_S.

    The fastest of three runs is used, because another process may interrupt a run.
    """
    passes = 1
    while (taken := min(timed(passes) for _ in range(3))) < SAMPLE_S / 2:
        passes = max(2 * passes, int(passes * SAMPLE_S / max(taken, 1e-6)) // 2)
    return max(1, int(passes * SAMPLE_S / taken))
