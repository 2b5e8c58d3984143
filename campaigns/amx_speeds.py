"""How fast one core computes bf16 products with TDPBF16PS, VDPBF16PS and FMA, and the order of TDPBF16PS without it.

``python -m campaigns amx_speeds`` times one micro-kernel per row, with operands in the L1 cache and 256 terms per sum.
It prints the highest speed and the median, because another virtual machine may use the core too. A row whose sums have
the order of TDPBF16PS must have the bits of its model. Otherwise the exit code is 1.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from campaigns.command import parser_of
from campaigns.tdpbf16ps import AMX, F32, SIDE, U16, by_halves, configuration, why_no_amx
from convgrad.arrays import aligned
from convgrad.engines.addresses import address_of
from convgrad.engines.llvm import isas, jit
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.intrinsics import PAIR_SUMS
from convgrad.engines.llvm.microkernel import Values, multiply_add, outer_product, sum_names
from convgrad.host import cpu_model
from convgrad.plan.machine import Isa

K, TILE_K, UNROLLED, CALLS = 256, 2 * SIDE, 4, 2000
CHAIN, IN_TURN, TOGETHER, NODE = "one chain", "halves in turn", "halves together", "halves and C"


class Kernel(NamedTuple):
    """A micro-kernel: its sums in registers, whether it adds pairs, and the order of each sum.

    ``CHAIN`` is one chain. The others compute the order of TDPBF16PS for each 32 K: ``IN_TURN`` has one of both chains
    in registers, ``TOGETHER`` has both, and ``NODE`` also has C.
    """

    isa: Isa
    rows: int
    vectors: int
    order: str
    pairs: bool = False

    @property
    def names(self) -> list[str]:
        """The names of the sums."""
        return sum_names(self.rows, self.vectors)


class Tiles(NamedTuple):
    """The micro-kernel of TDPBF16PS, and whether it sets tiles of A and B to 0 after their last use."""

    freed: bool


def panel(f: Function, one: Kernel, a: Value, b: Value, steps: int, chains: int) -> list[Values]:
    """Return the sums of ``steps`` words of K, for one or two chains. The words of a chain are 1 or 2 apart."""
    lanes, element = one.isa.lanes, "i32" if one.pairs else "float"
    kind, apart = f"<{lanes} x {element}>", 1 if one.order == CHAIN else 2
    add = PAIR_SUMS["dpbf16ps"] if one.pairs else multiply_add
    zeros = {f"{name}_{h}": f.zeros(f"<{lanes} x float>") for h in range(chains) for name in one.names}
    with f.loop(steps // UNROLLED, a=a, b=b, **zeros) as loop:
        sums = [{name: loop.carried[f"{name}_{h}"] for name in one.names} for h in range(chains)]
        for word in range(UNROLLED):
            for h, mine in enumerate(sums):
                at = word * apart + h
                vectors = [f.load(kind, loop.b, 4 * lanes * (at * one.vectors + v)) for v in range(one.vectors)]
                rows = (f.splat(f.load(element, loop.a, 4 * (at * one.rows + r)), lanes) for r in range(one.rows))
                outer_product(mine, rows, vectors, add)
        moved = 4 * UNROLLED * apart
        following = {f"{name}_{h}": mine[name] for h, mine in enumerate(sums) for name in one.names}
        loop.next(a=f.at(loop.a, moved * one.rows), b=f.at(loop.b, moved * lanes * one.vectors), **following)
    return [{name: loop.carried[f"{name}_{h}"] for name in one.names} for h in range(chains)]


def module_of(one: Kernel) -> str:
    """Return the IR of ``kernel``, which computes ``count`` times the same micro-tile C."""
    module = Module()
    f = module.function("kernel", public=True, a="ptr", b="ptr", c="ptr", count="i64")
    width, words = 4 * one.isa.lanes, K // 2 if one.pairs else K
    block = words * TILE_K // K
    scratch, kind = f.alloca("i8", len(one.names) * width), f"<{one.isa.lanes} x float>"
    with f.loop(f.count):
        if one.order == CHAIN:
            (sums,) = panel(f, one, f.a, f.b, words, 1)
            for place, total in enumerate(sums.values()):
                f.store(total, f.c, place * width)
        else:
            c = {f"{name}_c": f.zeros(kind) for name in one.names}
            for place, value in enumerate(c.values()):
                f.store(value, f.c, place * width)
            with f.loop(K // TILE_K, a=f.a, b=f.b, **(c if one.order == NODE else {})) as each:
                if one.order != IN_TURN:
                    even, odd = panel(f, one, each.a, each.b, block // 2, 2)
                else:
                    (first,) = panel(f, one, each.a, each.b, block // 2, 1)
                    for place, total in enumerate(first.values()):
                        f.store(total, scratch, place * width)
                    a, b = f.at(each.a, 4 * one.rows), f.at(each.b, width * one.vectors)
                    (odd,) = panel(f, one, a, b, block // 2, 1)
                    even = {name: f.load(kind, scratch, place * width) for place, name in enumerate(one.names)}
                for place, name in enumerate(one.names):
                    halves = f.add(even[name], odd[name])
                    if one.order == NODE:
                        each.next(**{f"{name}_c": f.add(each.carried[f"{name}_c"], halves)})
                    else:
                        f.store(f.add(f.load(kind, f.c, place * width), halves), f.c, place * width)
                each.next(a=f.at(each.a, 4 * block * one.rows), b=f.at(each.b, width * block * one.vectors))
            for place, name in enumerate(c if one.order == NODE else ()):
                f.store(each.carried[name], f.c, place * width)
    f.done()
    return str(module)


def tiles_module(one: Tiles) -> str:
    """Return the IR of ``kernel`` for TDPBF16PS: C has 2 x 2 tiles. Tiles of A and B are loaded for each 32 K."""
    last_uses = ((), (4,), (6,), (5, 7)) if one.freed else ((),) * 4
    module = Module()
    f = module.function("kernel", public=True, config="ptr", a="ptr", b="ptr", c="ptr", count="i64")
    f.intrinsic("void", "llvm.x86.ldtilecfg", f.config)
    with f.loop(f.count):
        for tile in range(4):
            f.intrinsic("void", "llvm.x86.tilezero", f"i8 {tile}")
        with f.loop(K // TILE_K, a=f.a, b=f.b) as each:
            places = {4: each.a, 6: each.b, 7: f.at(each.b, 1024), 5: f.at(each.a, 1024)}
            for tile, used in enumerate(last_uses):
                needed = (4 + tile // 2, 6 + tile % 2)
                for operand in [operand for operand in places if operand in needed]:
                    f.intrinsic("void", "llvm.x86.tileloadd64", f"i8 {operand}", places.pop(operand), f.value(64))
                f.intrinsic("void", "llvm.x86.tdpbf16ps", f"i8 {tile}", *(f"i8 {operand}" for operand in needed))
                for operand in used:
                    f.intrinsic("void", "llvm.x86.tilezero", f"i8 {operand}")
            each.next(a=f.at(each.a, 2048), b=f.at(each.b, 2048))
        for tile in range(4):
            f.intrinsic("void", "llvm.x86.tilestored64", f"i8 {tile}", f.at(f.c, 1024 * tile), f.value(64))
    f.intrinsic("void", "llvm.x86.tilerelease")
    f.done()
    return str(module)


def operands(rows: int, columns: int) -> tuple[U16, U16]:
    """Return random bf16 matrices of ``rows`` x K and K x ``columns``."""
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=shape).astype(np.float32).view(np.uint32) for shape in ((rows, K), (K, columns)))
    return (a >> np.uint32(16)).astype(np.uint16), (b >> np.uint32(16)).astype(np.uint16)


def modelled(a: U16, b: U16) -> F32:
    """Return A B in the order of TDPBF16PS, 32 K after 32 K."""
    c = np.zeros((1, len(a), b.shape[1]), np.float32)
    for first in range(0, K, TILE_K):
        c = by_halves(a[None, :, first : first + TILE_K], b[None, first : first + TILE_K], c)
    whole: F32 = c[0]
    return whole


class Row:
    """A row of the table: a compiled kernel with its operands."""

    def __init__(self, one: Kernel | Tiles) -> None:
        """Compile the kernel."""
        self.one, self.isa, (self.rows, self.columns) = one, AMX, (2 * SIDE, 2 * SIDE)
        if isinstance(one, Kernel):
            self.isa, (self.rows, self.columns) = one.isa, (one.rows, one.vectors * one.isa.lanes)
        self.a, self.b = operands(self.rows, self.columns)
        made: list[NDArray[Any]] = [] if isinstance(one, Kernel) else [configuration(SIDE)]
        packed: list[NDArray[Any]]
        if isinstance(one, Kernel):
            packed = [words(one, each) for each in (self.a.T, self.b)]
        else:
            tiled = self.b.reshape(-1, SIDE, 2, 2, SIDE).transpose(0, 3, 1, 4, 2)
            packed = [self.a.reshape(2, SIDE, -1, TILE_K).transpose(2, 0, 1, 3), tiled]
        self.arrays = [in_lines(each) for each in (*made, *packed, np.zeros((self.rows, self.columns), np.float32))]
        self.c = self.arrays[-1]
        prototype = (None, *(ctypes.c_void_p,) * len(self.arrays), ctypes.c_int64)
        module = module_of if isinstance(one, Kernel) else tiles_module
        (self.kernel,) = jit.functions(self.isa, module, one, kernel=prototype)

    def ns(self) -> float:
        """Return the time of one micro-tile."""
        begin = time.perf_counter()
        self.kernel(*(address_of(each) for each in self.arrays), CALLS)
        return (time.perf_counter() - begin) * 1e9 / CALLS

    def right(self) -> bool:
        """Return whether the sums have the bits of the model, if they have its order."""
        tiled, ordered = isinstance(self.one, Tiles), getattr(self.one, "order", NODE) != CHAIN
        found = self.c.reshape(2, 2, SIDE, SIDE).swapaxes(1, 2).reshape(self.c.shape) if tiled else self.c
        return not ordered or bool((found.view(np.uint32) == modelled(self.a, self.b).view(np.uint32)).all())

    def __str__(self) -> str:
        if isinstance(self.one, Tiles):
            return f"{'tdpbf16ps':12}{'32x32':8}{'tiles freed' if self.one.freed else 'tiles kept':16}"
        return f"{self.isa.name:12}{f'{self.one.rows}x{self.one.vectors}':8}{self.one.order:16}"


def in_lines(given: NDArray[Any]) -> NDArray[Any]:
    """Return a contiguous copy that begins at the start of a cache line: other tiles load at a sixth of the speed."""
    made = aligned(given.shape, given.dtype)
    made[...] = given
    return made


def words(one: Kernel, given: U16) -> NDArray[np.uint32]:
    """Return the words of an operand [K][column]: f32 numbers, or pairs of the same chain, the earlier K high."""
    bits = given.astype(np.uint32)
    if not one.pairs:
        return bits << np.uint32(16)
    apart = 1 if one.order == CHAIN else 2
    earlier = np.flatnonzero(np.arange(K) % (2 * apart) < apart)
    return bits[earlier] << np.uint32(16) | bits[earlier + apart]


def table() -> list[Row]:
    """Return the rows that this machine can run."""
    tiles = {"avx512bf16": (13, 6, (2, 4)), "avx512": (14, 7, (3, 3)), "avx2": (6, 3, (2, 2))}
    made: list[Kernel | Tiles] = [] if why_no_amx() else [Tiles(False), Tiles(True)]
    for isa in isas.host_isas():
        rows, fewer, fewest = tiles.get(isa.name, (12, 6, (4, 2)))
        shapes = {CHAIN: (rows, 2), IN_TURN: (rows, 2), TOGETHER: (fewer, 2), NODE: fewest}
        made += [Kernel(isa, *shape, order, isa.name == "avx512bf16") for order, shape in shapes.items()]
    return [Row(one) for one in made]


def main(arguments: Sequence[str] | None = None) -> int:
    """Time the kernels in turns, and print the highest speed of each and the median."""
    options = parser_of("amx_speeds", "Time TDPBF16PS, and its order by other instructions.", rounds=200)
    rows = table()
    times = np.array([[row.ns() for row in rows] for _ in range(options.parse_args(arguments).rounds)])
    print(f"{cpu_model()}; one core, in 10**9 multiply-adds per second")
    if why_no_amx():
        print(f"TDPBF16PS cannot run here: {why_no_amx()}")
    for row, ns in zip(rows, times.T, strict=True):
        speeds = row.rows * row.columns * K / np.array([ns.min(), np.median(ns)])
        print(f"{row!s}{speeds[0]:10.1f}{speeds[1]:10.1f}{'' if row.right() else '  wrong bits'}")
    return int(not all(row.right() for row in rows))
