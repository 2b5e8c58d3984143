"""The emitter of LLVM IR: values, memory, vectors, and control flow as ``with`` blocks.

The methods of ``Function`` append instructions. Their docstrings describe the effect of these instructions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from struct import pack

from convgrad.plan.machine import LINE_BYTES


@dataclass(frozen=True)
class Value:
    """An SSA value or a constant; ``function`` is the IR function that it belongs to."""

    function: Function
    type: str
    name: str

    def __add__(self, other: Value | int) -> Value:
        return self.function.arithmetic("add", self, other)

    def __sub__(self, other: Value | int) -> Value:
        return self.function.arithmetic("sub", self, other)

    def __mul__(self, other: Value | int) -> Value:
        return self.function.arithmetic("mul", self, other)

    def __lt__(self, other: Value | int) -> Value:
        return self.function.compare("slt", self, other)

    def __ge__(self, other: Value | int) -> Value:
        return self.function.compare("sge", self, other)

    def __and__(self, other: Value | int) -> Value:
        return self.function.arithmetic("and", self, other)

    def __rshift__(self, other: Value | int) -> Value:
        return self.function.arithmetic("lshr", self, other)

    def __str__(self) -> str:
        return f"{self.type} {self.name}"


class Loop:
    """A loop that is being emitted. Its attributes are ``index`` and the carried values of the present iteration."""

    def __init__(self, index: Value, carried: dict[str, Value]) -> None:
        self.index = index
        self.carried = carried
        self.following = dict(carried)

    def __getattr__(self, name: str) -> Value:
        return self.carried[name]

    def next(self, **values: Value) -> None:
        """Set carried values for the next iteration. Values that are not given stay the same."""
        self.following |= values


class Function:
    """A function that is being emitted. Its parameters are attributes. Integers are i64, and offsets are in bytes."""

    keeps_nan = True  # whether the target narrows the canonical NaN to the canonical NaN

    def __init__(self, module: Module, name: str, parameters: dict[str, str], public: bool = False) -> None:
        self.module = module
        self.parameters = {n: Value(self, t, f"%{n}") for n, t in parameters.items()}
        declared = ", ".join(f"{t} %{n}" for n, t in parameters.items())
        self.head = f"define {'' if public else 'internal '}void @{name}({declared}) #0 {{"
        self.lines: list[str] = ["entry:"]
        self.block = "entry"
        self.named = 0
        assert not any(hasattr(Function, n) or n in self.__dict__ for n in parameters), "a parameter hides a method"

    def __getattr__(self, name: str) -> Value:
        try:
            return self.parameters[name]
        except KeyError:
            raise AttributeError(name) from None

    def __str__(self) -> str:
        return "\n".join([self.head, *self.lines, "}"])

    # -- instructions --

    def fresh(self, hint: str = "v") -> str:
        """Return a name that the function does not use yet."""
        self.named += 1
        return f"{hint}{self.named}"

    def say(self, line: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {line}")

    def op(self, kind: str, text: str) -> Value:
        """Append the instruction ``text`` and return its result, which has the type ``kind``."""
        value = Value(self, kind, f"%{self.fresh()}")
        self.say(f"{value.name} = {text}")
        return value

    def start(self, label: str) -> None:
        """Begin a basic block with this label."""
        self.lines.append(f"{label}:")
        self.block = label

    def call(self, name: str, /, *arguments: Value | int, **values: Value | int) -> None:
        """Call a function of the same module. Named values go to its last parameters; those without one are ignored."""
        left = [*self.module.functions[name].parameters][len(arguments) :] if values else ()
        named = [values[parameter] for parameter in left]
        self.say(f"call void @{name}({', '.join(str(self.value(a)) for a in (*arguments, *named))})")

    def intrinsic(self, kind: str, name: str, *arguments: Value | str) -> Value:
        """Call an LLVM intrinsic with the result type ``kind``; the module declares it at its first use."""
        types = [str(a).rsplit(" ", 1)[0] if isinstance(a, str) else a.type for a in arguments]
        self.module.declare(f"declare {kind} @{name}({', '.join(types)})")
        text = f"call {kind} @{name}({', '.join(map(str, arguments))})"
        if kind == "void":
            self.say(text)
            return Value(self, "void", "")
        return self.op(kind, text)

    # -- integers --

    def value(self, what: Value | int) -> Value:
        """Return a Python integer as an i64 constant; return a value as it is."""
        return what if isinstance(what, Value) else Value(self, "i64", str(what))

    def arithmetic(self, what: str, a: Value, b: Value | int) -> Value:
        """Return the result of an integer instruction, such as "add"; x + 0, x * 1 and the like emit nothing."""
        if isinstance(b, int) and b == {"mul": 1, "and": -1}.get(what, 0):
            return a
        return self.op(a.type, f"{what} {a}, {b.name if isinstance(b, Value) else b}")

    def compare(self, how: str, a: Value, b: Value | int) -> Value:
        """Return whether the comparison ``how``, such as "slt", of integers or of vectors of integers is true."""
        kind = f"{a.type.split(' x ')[0]} x i1>" if a.type[0] == "<" else "i1"
        return self.op(kind, f"icmp {how} {a}, {b.name if isinstance(b, Value) else b}")

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        """Return ``a`` if the condition is true, else ``b``; lane by lane if the condition is a vector."""
        return self.op(a.type, f"select {condition}, {a}, {b}")

    def min(self, a: Value, b: Value | int) -> Value:
        """Return the smaller of two signed integers."""
        return self.intrinsic("i64", "llvm.smin.i64", a, self.value(b))

    def max(self, a: Value, b: Value | int) -> Value:
        """Return the larger of two signed integers."""
        return self.intrinsic("i64", "llvm.smax.i64", a, self.value(b))

    def divided(self, a: Value, b: Value | int) -> tuple[Value, Value]:
        """Return the quotient and the remainder of two non-negative integers."""
        by = b.name if isinstance(b, Value) else b
        return self.op(a.type, f"udiv {a}, {by}"), self.op(a.type, f"urem {a}, {by}")

    def opaque(self, value: Value) -> Value:
        """Return the same integer in a way that stops LLVM from using how it was computed."""
        return self.op("i64", f'call i64 asm "", "=r,0"({value})')

    # -- memory --

    def at(self, pointer: Value, offset: Value | int) -> Value:
        """Return the address ``offset`` bytes after a pointer."""
        if isinstance(offset, int) and offset == 0:
            return pointer
        return self.op("ptr", f"getelementptr i8, {pointer}, {self.value(offset)}")

    def distance(self, pointer: Value, start: Value) -> Value:
        """Return the distance from ``start`` to ``pointer`` in bytes."""
        ends = [self.op("i64", f"ptrtoint {address} to i64") for address in (pointer, start)]
        return ends[0] - ends[1]

    def load(self, kind: str, pointer: Value, offset: Value | int = 0) -> Value:
        """Load a value of type ``kind`` from an address of any alignment."""
        return self.op(kind, f"load {kind}, {self.at(pointer, offset)}, align 1")

    def store(self, value: Value, pointer: Value, offset: int = 0) -> None:
        """Store a value to an address of any alignment."""
        self.say(f"store {value}, {self.at(pointer, offset)}, align 1")

    def alloca(self, kind: str, count: int) -> Value:
        """Return the address of stack memory for ``count`` values, aligned to 64 bytes."""
        return self.op("ptr", f"alloca {kind}, i64 {count}, align 64")

    def prefetch(self, pointer: Value, locality: int = 3, write: bool = False) -> None:
        """Prefetch a cache line into L1, or L2 if ``locality`` is 2; for stores if ``write``. It may be invalid."""
        self.intrinsic("void", "llvm.prefetch.p0", pointer, f"i32 {int(write)}", f"i32 {locality}", "i32 1")

    def prefetch_all(self, pointer: Value, size: Value | int, locality: int = 3, write: bool = False) -> None:
        """Prefetch the cache lines of ``size`` bytes: in a loop, or unrolled if ``size`` is an int."""
        if isinstance(size, int):
            for offset in range(0, size, LINE_BYTES):
                self.prefetch(self.at(pointer, offset), locality, write)
            return
        with self.loop(size + (LINE_BYTES - 1) >> LINE_BYTES.bit_length() - 1, to=pointer) as line:
            self.prefetch(line.to, locality, write)
            line.next(to=self.at(line.to, LINE_BYTES))

    # -- vectors --

    def splat(self, scalar: Value, lanes: int) -> Value:
        """Return a vector with the same value in all lanes."""
        kind = f"<{lanes} x {scalar.type}>"
        inserted = self.op(kind, f"insertelement {kind} poison, {scalar}, i64 0")
        return self.op(kind, f"shufflevector {inserted}, {kind} poison, <{lanes} x i32> zeroinitializer")

    def everywhere(self, kind: str, number: float) -> Value:
        """Return a constant vector with the same number in all lanes: an integer, an f64, or a float that f32 has."""
        lanes, element = kind[1:-1].split(" x ")
        text = f"0x{pack('>d', number).hex().upper()}" if element in ("float", "double") else str(number)
        return Value(self, kind, "<" + ", ".join([f"{element} {text}"] * int(lanes)) + ">")

    def numbers(self, element: str, numbers: range) -> Value:
        """Return a constant vector of the integers ``numbers``, one per lane."""
        return Value(self, f"<{len(numbers)} x {element}>", f"<{', '.join(f'{element} {n}' for n in numbers)}>")

    def any_of(self, masks: list[Value]) -> Value:
        """Return whether any lane of any mask is set."""
        while len(masks) > 1:
            first, other, *others = masks
            masks = [*others, self.op(first.type, f"or {first}, {other.name}")]
        lanes = masks[0].type[1:].split(" x ")[0]
        return self.op("i1", f"icmp ne {self.op(f'i{lanes}', f'bitcast {masks[0]} to i{lanes}')}, 0")

    def shuffle(self, a: Value, b: Value, lanes: list[int]) -> Value:
        """Return lanes of ``a`` and ``b``, by number: those of ``b`` follow those of ``a``, and -1 is undefined."""
        element = a.type.split(" x ")[1][:-1]
        picks = ", ".join(f"i32 {lane}" if lane >= 0 else "i32 poison" for lane in lanes)
        return self.op(f"<{len(lanes)} x {element}>", f"shufflevector {a}, {b}, <{len(lanes)} x i32> <{picks}>")

    def transposed(self, rows: list[Value], lanes: int) -> list[Value]:
        """Return the columns of a square matrix of ``lanes`` rows, which are vectors. Missing rows are undefined."""
        square = rows + [Value(self, f"<{lanes} x float>", "poison")] * (lanes - len(rows))
        distance = 1
        while distance < lanes:  # exchange the off-diagonal quarters of squares of 2 * distance rows
            for i in (i for i in range(lanes) if not i & distance):
                a, b = square[i], square[i + distance]
                low = [j if not j & distance else lanes + j - distance for j in range(lanes)]
                high = [j + distance if not j & distance else lanes + j for j in range(lanes)]
                square[i], square[i + distance] = self.shuffle(a, b, low), self.shuffle(a, b, high)
            distance *= 2
        return square

    def zeros(self, kind: str) -> Value:
        """Return the constant zero of a type, or a vector of zeros."""
        return Value(self, kind, "zeroinitializer" if kind[0] == "<" else "0.0")

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """Return a * b + c with one rounding."""
        return self.intrinsic(a.type, f"llvm.fma.{_suffix(a.type)}", a, b, c)

    def add(self, a: Value, b: Value) -> Value:
        """Return the sum of two floating-point values or vectors."""
        return self.op(a.type, f"fadd {a}, {b.name}")

    def mask(self, count: Value, lanes: int) -> Value:
        """Return a mask in which the first ``count`` lanes are set."""
        numbers = self.numbers("i64", range(lanes))
        return self.op(f"<{lanes} x i1>", f"icmp sgt {self.splat(count, lanes)}, {numbers.name}")

    def masked_load(self, kind: str, pointer: Value, mask: Value) -> Value:
        """Load the lanes of a mask, each from its own address if ``pointer`` is a vector of addresses.

        Other lanes become zero, and their memory is not accessed.
        """
        name = f"llvm.masked.{_either(pointer, 'load', 'gather')}.{_suffix(kind)}.{_suffix(pointer.type)}"
        return self.intrinsic(kind, name, pointer, "i32 1", mask, f"{kind} zeroinitializer")

    def masked_store(self, value: Value, pointer: Value, mask: Value) -> None:
        """Store the lanes of a mask, each to its own address if ``pointer`` is a vector of addresses."""
        name = f"llvm.masked.{_either(pointer, 'store', 'scatter')}.{_suffix(value.type)}.{_suffix(pointer.type)}"
        self.intrinsic("void", name, value, pointer, "i32 1", mask)

    def store_first(self, value: Value, count: int, pointer: Value, offset: int = 0) -> None:
        """Store the first ``count`` lanes of a vector."""
        lanes = int(value.type[1:].split(" x ")[0])
        if count == lanes:
            self.store(value, pointer, offset)
            return
        bits = ", ".join(f"i1 {int(i < count)}" for i in range(lanes))
        self.masked_store(value, self.at(pointer, offset), Value(self, f"<{lanes} x i1>", f"<{bits}>"))

    # -- control --

    @contextmanager
    def loop(self, count: Value | int, **carried: Value) -> Iterator[Loop]:
        """Repeat the block ``count`` times. After it, the loop's carried values are those of the last ``next``."""
        assert "index" not in carried, "a loop has an index of its own"
        name, before, rounds = self.fresh("loop"), self.block, self.value(count)
        self.say(f"br label %{name}")
        self.start(name)
        first = {"index": self.value(0), **carried}
        phis = {n: Value(self, v.type, f"%{name}.{n}") for n, v in first.items()}
        place = len(self.lines)
        self.lines.append("")
        self.say(f"%{name}.more = icmp slt {phis['index']}, {rounds.name}")
        self.say(f"br i1 %{name}.more, label %{name}.body, label %{name}.end")
        self.start(f"{name}.body")
        index = phis.pop("index")
        loop = Loop(index, phis)
        yield loop
        following = {"index": index + 1, **loop.following}
        after = self.block
        self.say(f"br label %{name}")
        self.lines[place] = "\n".join(
            f"  %{name}.{n} = phi {v.type} [ {v.name}, %{before} ], [ {following[n].name}, %{after} ]"
            for n, v in first.items()
        )
        self.start(f"{name}.end")

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Run the block only if the i1 ``condition`` is true."""
        name = self.fresh("when")
        self.say(f"br {condition}, label %{name}, label %{name}.end")
        self.start(name)
        yield
        self.say(f"br label %{name}.end")
        self.start(f"{name}.end")

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """Run the block only if the condition of the directly preceding ``when`` is false."""
        end = self.block
        name = end.removesuffix(".end")
        assert self.lines[-1] == f"{end}:", "otherwise follows its when directly"
        self.lines.pop()
        branch = next(i for i, line in enumerate(self.lines) if line.endswith(f"label %{name}, label %{end}"))
        self.lines[branch] = self.lines[branch].replace(f"label %{end}", f"label %{name}.else")
        self.start(f"{name}.else")
        yield
        self.say(f"br label %{end}")
        self.start(end)

    def done(self) -> None:
        """Return from the function, and end it."""
        self.say("ret void")


class Module:
    """A module that is being emitted: its functions and the declarations of the intrinsics that they call."""

    def __init__(self) -> None:
        self.functions: dict[str, Function] = {}
        self.declared: dict[str, None] = {}

    def function(self, name: str, public: bool = False, **parameters: str) -> Function:
        """Begin a function with parameters of these types, and return it. Functions that Python calls are public."""
        function = self.functions[name] = Function(self, name, parameters, public)
        return function

    def declare(self, line: str) -> None:
        """Add the declaration of an intrinsic, unless the module already has it."""
        self.declared[line] = None

    def __str__(self) -> str:
        attributes = "attributes #0 = { nounwind }"
        return "\n\n".join([*map(str, self.functions.values()), "\n".join(self.declared), attributes, ""])


def separate(ir: str) -> list[str]:
    """Return one module per function of a module. Each declares the functions that its own function calls.

    So a function that occurs in several modules has the same text each time, and is compiled once.
    """
    blocks = [block.strip("\n") for block in ir.split("\n\n")]
    defined = [block for block in blocks if block.startswith("define ")]
    others = [line for block in blocks for line in block.splitlines() if line.startswith(("declare ", "attributes "))]
    heads = [block.partition(" {")[0].replace("internal ", "").replace("define", "declare") for block in defined]
    declared = {_NAMES.findall(line)[0]: line for line in (*heads, *others) if line.startswith("declare ")}
    attributes = [line for line in others if line.startswith("attributes ")]
    modules = []
    for block in defined:
        own, *called = dict.fromkeys(_NAMES.findall(block))
        needed = sorted(declared[name] for name in called if name != own)
        modules.append("\n".join([block.replace("define internal", "define", 1), *needed, *attributes, ""]))
    return modules


_NAMES = re.compile(r"@[\w.]+")


def _either(pointer: Value, single: str, several: str) -> str:
    """Return the word ``single`` for a single address, or ``several`` for a vector of addresses."""
    return several if pointer.type[0] == "<" else single


def _suffix(kind: str) -> str:
    """Return the suffix of an intrinsic's name for a type, such as v16f32 for <16 x float>."""
    names = {"double": "f64", "float": "f32", "half": "f16", "ptr": "p0"}
    if kind[0] != "<":
        return names.get(kind, kind)
    lanes, element = kind[1:-1].split(" x ")
    return f"v{lanes}{names.get(element, element)}"
