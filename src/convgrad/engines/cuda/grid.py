"""Kernels of a grid of thread blocks, in IR for a GPU or for a CPU.

A kernel is a sequence of phases. All threads of a block run a phase, and a barrier ends it. Control flow between
phases is the same for all threads of a block. So the same kernel can be emitted for a CPU: blocks and the threads of
each phase become loops, and variables of threads become arrays. Tests run it without a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from convgrad.engines.llvm.emit import Function, Module, Value

POINTERS = ("a", "b", "c", "bias", "work", "table")  # the parameters of every kernel
CPU_PARAMETERS = {"x_count": "i64", "y_count": "i64", "z_count": "i64", "memory": "ptr", "misaligned": "ptr"}
_SHARED = "@shared = external addrspace(3) global [0 x i8], align 16"
_BYTES = {"float": 4, "half": 2}
_CPU_ATTRIBUTES = "attributes #0 = { nounwind }"  # as emit.py writes them
_ATTRIBUTES = 'attributes #0 = {{ nounwind "nvvm.maxntid"="{threads}" "nvvm.minctasm"="{resident}" }}'


def size_of(kind: str) -> int:
    """Return the bytes of an IR type."""
    if kind[0] == "<":
        lanes, element = kind[1:-1].split(" x ")
        return int(lanes) * size_of(element)
    return _BYTES[kind] if kind in _BYTES else int(kind[1:]) // 8


class GridFunction(Function):
    """A function whose loads and stores are aligned to the size of their values.

    On a CPU, the number at ``misaligned`` is no longer 0 after the access to a vector that is not aligned. Loads are
    volatile, so that LLVM leaves none out whose value is not used. A GPU executes these loads.
    """

    misaligned: Value | None = None

    @property
    def _volatile(self) -> str:
        return "" if self.misaligned is None else "volatile "

    def load(self, kind: str, pointer: Value, offset: Value | int = 0) -> Value:
        """Load a value from an address that is a multiple of its size."""
        place = self._address(self.at(pointer, offset), kind)
        return self.op(kind, f"load {self._volatile}{kind}, {place}, align {size_of(kind)}")

    def store(self, value: Value, pointer: Value, offset: int = 0) -> None:
        """Store a value to an address that is a multiple of its size."""
        place = self._address(self.at(pointer, offset), value.type)
        self.say(f"store {value}, {place}, align {size_of(value.type)}")

    def _address(self, place: Value, kind: str) -> Value:
        """Return an address; on a CPU, remember whether it is not aligned for a vector."""
        if self.misaligned is not None and kind[0] == "<":
            bits = self.op("i64", f"ptrtoint {place} to i64") & (size_of(kind) - 1)
            old = self.op("i64", f"load i64, {self.misaligned}, align 8")
            self.say(f"store {self.op('i64', f'or {old}, {bits.name}')}, {self.misaligned}, align 8")
        return place

    def element(self, pointer: Value, kind: str, index: Value) -> Value:
        """Return the address of an element of an array."""
        return self.op("ptr", f"getelementptr {kind}, {pointer}, {index}")

    def int32(self, what: Value | int) -> Value:
        """Return an i32: a constant, or an i64 without its upper half."""
        if isinstance(what, int):
            return Value(self, "i32", str(what))
        return what if what.type == "i32" else self.op("i32", f"trunc {what} to i32")

    def int64(self, what: Value) -> Value:
        """Return an i32 as an i64 with the same sign."""
        return what if what.type == "i64" else self.op("i64", f"sext {what} to i64")

    def lanes(self, vector: Value) -> list[Value]:
        """Return the elements of a vector."""
        count, element = vector.type[1:-1].split(" x ")
        return [self.op(element, f"extractelement {vector}, i64 {lane}") for lane in range(int(count))]

    def vector(self, elements: list[Value]) -> Value:
        """Return a vector of these elements."""
        kind = f"<{len(elements)} x {elements[0].type}>"
        vector = Value(self, kind, "poison")
        for lane, element in enumerate(elements):
            vector = self.op(kind, f"insertelement {vector}, {element}, i64 {lane}")
        return vector


@dataclass
class Grid:
    """A kernel that is being emitted: its function, the threads of a block, and bytes that a block shares.

    ``resident`` is the number of blocks that a multiprocessor must be able to run at once.
    """

    name: str
    threads: int
    shared_bytes: int
    on_cpu: bool
    resident: int = 2
    module: Module = field(default_factory=Module)
    variables: dict[str, int] = field(default_factory=dict)  # floats per thread, by name

    def __post_init__(self) -> None:
        """Begin the function."""
        parameters = dict.fromkeys(POINTERS, "ptr") | (CPU_PARAMETERS if self.on_cpu else {})
        self.f = GridFunction(self.module, self.name, parameters, public=True)
        self.module.functions[self.name] = self.f
        if self.on_cpu:
            self.shared, self.f.misaligned = self.f.memory, self.f.parameters["misaligned"]
        else:
            self.f.keeps_nan = False  # a GPU narrows NaN to a number whose bits are all set
            self.module.declare(_SHARED)
            self.shared = Value(self.f, "ptr", "addrspacecast (ptr addrspace(3) @shared to ptr)")
        self._places: dict[str, Value] = {}

    @property
    def memory_bytes(self) -> int:
        """The bytes of memory that the kernel needs on a CPU: of shared memory, and of the threads' variables."""
        return self.shared_bytes + 4 * self.threads * sum(self.variables.values())

    def declare(self, **variables: int) -> None:
        """Declare arrays of floats that each thread has of its own; their indices in the kernel are constants."""
        at = self.memory_bytes
        for name, count in variables.items():
            if self.on_cpu:
                self._places[name] = self.f.at(self.f.memory, at)
                at += 4 * self.threads * count
            else:
                self._places[name] = self.f.op("ptr", f"alloca [{count} x float], align 16")
        self.variables |= variables

    def place(self, name: str, index: int, thread: Value) -> Value:
        """Return the address of an element of a thread's variable."""
        base = self._places[name]
        if not self.on_cpu:
            return self.f.at(base, 4 * index)
        return self.f.at(self.f.at(base, 4 * self.threads * index), self.f.int64(thread) * 4)

    def read(self, name: str, index: int, thread: Value) -> Value:
        """Return the value of an element of a thread's variable."""
        return self.f.load("float", self.place(name, index, thread))

    def write(self, name: str, index: int, thread: Value, value: Value) -> None:
        """Set an element of a thread's variable."""
        self.f.store(value, self.place(name, index, thread))

    @contextmanager
    def blocks(self) -> Iterator[tuple[Value, Value, Value]]:
        """Run the body for each block of the grid; yield its three numbers, which are i32."""
        f = self.f
        if not self.on_cpu:
            yield self._special("ctaid.x"), self._special("ctaid.y"), self._special("ctaid.z")
        else:
            with f.loop(f.z_count) as z, f.loop(f.y_count) as y, f.loop(f.x_count) as x:
                yield f.int32(x.index), f.int32(y.index), f.int32(z.index)
        f.done()

    @contextmanager
    def phase(self) -> Iterator[Value]:
        """Run the body for each thread of the block; yield the thread's number, an i32. A barrier follows."""
        f = self.f
        if self.on_cpu:
            with f.loop(self.threads) as thread:
                yield f.int32(thread.index)
        else:
            yield self._special("tid.x")
            f.intrinsic("void", "llvm.nvvm.barrier.cta.sync.aligned.all", "i32 0")

    def _special(self, register: str) -> Value:
        return self.f.intrinsic("i32", f"llvm.nvvm.read.ptx.sreg.{register}")

    def __str__(self) -> str:
        """Return the IR of the module."""
        text = str(self.module)
        if self.on_cpu:
            return text
        assert self.f.head.startswith("define void"), "emit.py begins functions by other text"
        assert _CPU_ATTRIBUTES in text, "emit.py writes other attributes"
        head = self.f.head.replace("define void", "define ptx_kernel void")
        for name in ("a", "b", "table"):  # the kernel does not write to this memory
            head = re.sub(f"ptr %{name}\\b", f"ptr noalias readonly %{name}", head)
        text = text.replace(self.f.head, head)
        declared = _ATTRIBUTES.format(threads=self.threads, resident=self.resident)
        return text.replace(_CPU_ATTRIBUTES, declared)
