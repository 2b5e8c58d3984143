"""What is generated: IR that reads like its loops, no symbol from outside, no spill where it counts."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from convgrad.engines.llvm import jit
from convgrad.engines.llvm.driver import weights_module
from convgrad.engines.llvm.emit import Module
from convgrad.engines.llvm.tile import tile
from convgrad.plan.machine import ISAS
from convgrad.plan.recipe import CHANNELS, IN_PLACE, POSITIONS, STRIDED, KernelSpec, Tile
from engine_helpers import HOST

GOLDEN = Path(__file__).parent / "golden"


def spec_of(
    isa: str, rows: int, vectors: int, fmt: str = "f32", rows_lie: str = CHANNELS, lanes_lie: str = CHANNELS
) -> KernelSpec:
    return KernelSpec(ISAS[isa], fmt, fmt, Tile(rows, vectors), rows_lie, lanes_lie)


def test_golden_loop() -> None:
    """A dot product in the emitter's words."""
    module = Module()
    f = module.function("dot", public=True, x="ptr", y="ptr", n="i64", to="ptr")
    with f.loop(f.n, x=f.x, sum=f.zeros("<4 x float>")) as loop:
        loop.next(x=f.at(loop.x, 16), sum=f.fma(f.load("<4 x float>", loop.x), f.load("<4 x float>", f.y), loop.sum))
    with f.when(f.n < 1):
        f.store(f.zeros("<4 x float>"), f.to)
    with f.otherwise():
        f.store(loop.sum, f.to)
    f.done()
    assert str(module) == (GOLDEN / "dot.ll").read_text()


def test_golden_tile() -> None:
    module = Module()
    tile(module, spec_of("neon", 2, 1), 1)
    assert str(module) == (GOLDEN / "tile.ll").read_text()


CPUS = [
    *(("avx512", cpu) for cpu in ("", "skylake-avx512", "sapphirerapids", "znver4")),
    *(("avx2", cpu) for cpu in ("", "haswell", "znver2")),
    ("neon", ""),
    ("neon", "neoverse-n1"),
]
# Masked stores of what a vector has no mask for become branches, conversions instructions: none calls a function.
OURS = re.compile(r"(task|tile\d|carry|finish|pack_rows|pack_lanes|_GLOBAL_OFFSET_TABLE_)")


@pytest.mark.parametrize(("isa", "cpu"), CPUS)
@pytest.mark.parametrize("fmt", ["f32", "bf16", "f16"])
def test_no_symbol_from_outside(isa: str, cpu: str, fmt: str) -> None:
    for lies in (CHANNELS, POSITIONS, STRIDED):
        text = jit.assembly(weights_module(spec_of(isa, 5, 2, fmt, lies, lies)), ISAS[isa], cpu)
        called = set(re.findall(r"^\s+(?:callq?|jmp|bl|b)\s+([A-Za-z_]\w*)", text, re.MULTILINE))
        named = set(re.findall(r"(?<![.\w])([A-Za-z_]\w*)@(?:PLT|GOT\w*)", text))
        assert {n for n in called | named if not OURS.fullmatch(n)} == set()


def inner_loops(text: str, function: str) -> list[list[str]]:
    """The instructions of each block that jumps back to its own label, with an FMA in it."""
    body = text[text.index(f"\n{function}:") :]
    body = body[: body.index("\n.Lfunc_end")]
    blocks = re.split(r"^(\.L\w+):", body, flags=re.MULTILINE)
    loops = []
    for label, block in zip(blocks[1::2], blocks[2::2], strict=True):
        lines = [line.strip() for line in block.splitlines() if line.startswith("\t") and not line.startswith("\t.")]
        if any(label in line for line in lines) and any("fmadd" in line or "fmla" in line for line in lines):
            loops.append(lines)
    return loops


TILES = [(isa, tile) for isa in ISAS for tile in ISAS[isa].tiles]


@pytest.mark.parametrize(("isa", "shape"), TILES)
@pytest.mark.parametrize("lies", [CHANNELS, IN_PLACE])
def test_the_inner_loop_is_ideal(isa: str, shape: tuple[int, int], lies: str) -> None:
    rows, vectors = shape
    text = jit.assembly(weights_module(spec_of(isa, rows, vectors, rows_lie=lies)), ISAS[isa])
    (loop,) = inner_loops(text, f"tile{vectors}")
    multiplies = sum("fmadd" in line or "fmla" in line for line in loop)
    assert multiplies == rows * vectors
    assert not [line for line in loop if "(%rsp)" in line or "[sp" in line], "spills"
    limit = {"avx512": 14, "avx2": 14, "neon": 14}[isa]
    assert len(loop) - multiplies - rows - vectors <= limit, loop


def test_a_kernel_is_compiled_once() -> None:
    made = []

    def generate(spec: KernelSpec) -> str:
        made.append(spec)
        return weights_module(spec)

    spec = spec_of(HOST[0], 3, 1, "bf16", STRIDED, POSITIONS)
    kernels: list[object] = []
    callers = [threading.Thread(target=lambda: kernels.append(jit.compile(spec, generate))) for _ in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert made == [spec]
    assert len({id(k) for k in kernels}) == 1


def test_an_error_while_generating_reaches_the_caller_and_is_not_kept() -> None:
    spec = spec_of(HOST[0], 4, 1, "f16", STRIDED, STRIDED)

    def fail(_: KernelSpec) -> str:
        raise RuntimeError("no text")

    with pytest.raises(RuntimeError, match="no text"):
        jit.compile(spec, fail)
    assert jit.compile(spec, weights_module)
