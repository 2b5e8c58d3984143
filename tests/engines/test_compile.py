"""What is generated: IR that reads like its loops, no symbol from outside, no spill where it counts."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from itertools import chain, product

import pytest

from convgrad.engines.llvm import jit
from convgrad.engines.llvm.driver import module_of
from convgrad.engines.llvm.emit import Module, separate
from convgrad.engines.llvm.gemm.micro_tile import store_panel
from convgrad.engines.llvm.gemm.portion_tile import tile as tile_of_positions
from convgrad.engines.llvm.split_k.stencil import depthwise
from convgrad.engines.llvm.split_k.tile import tile
from convgrad.plan.gemm.spec import GemmSpec, TransposedGemmSpec
from convgrad.plan.kn2row.spec import Kn2rowSpec
from convgrad.plan.machine import ISAS
from convgrad.plan.recipe import CHANNELS, CHANNELS_IN, CHANNELS_OUT, SPATIAL, STRIDED, Operand
from convgrad.plan.split_k.recipe import DEPTHWISE, GROUPS, OUTER_PRODUCTS, MicroTileShape, SplitKOperand, SplitKSpec
from convgrad.plan.stencils.spatial import Footprint, PhaseTaps, SpatialStencilSpec
from tests.support.engine_helpers import HOST
from tests.support.places import GOLDEN
from tests.support.tiers import tiers


def spec_of(
    isa: str, rows: int, vectors: int, fmt: str = "f32", axis: str = CHANNELS, place: bool = False
) -> SplitKSpec:
    x = SplitKOperand(axis, 1, place, width=rows, moves=True)
    y = SplitKOperand(axis, width=vectors * ISAS[isa].lanes)
    return SplitKSpec(ISAS[isa], fmt, fmt, OUTER_PRODUCTS, MicroTileShape(rows, vectors), x, y)


def spec_under(isa: str, tile: MicroTileShape, lanes: str, fmt: str = "f32", axis: str = CHANNELS) -> SplitKSpec:
    """The kernel of a tile of some taps; of groups, as many channels of each as the tile has."""
    width = tile.nr if lanes == GROUPS else tile.nr * ISAS[isa].lanes
    x, y = SplitKOperand(axis, width=tile.mr, moves=True), SplitKOperand(axis, width=width)
    return SplitKSpec(ISAS[isa], fmt, fmt, OUTER_PRODUCTS, tile, x, y, lanes)


WEIGHTS = {CHANNELS: CHANNELS_OUT, SPATIAL: CHANNELS_IN, STRIDED: STRIDED}


def data_spec(
    isa: str, rows: int, vectors: int, fmt: str = "f32", axis: str = CHANNELS, b_in_place: bool = False
) -> GemmSpec:
    """The kernel of a forward or a data gradient whose operands and output lie alike."""
    place = fmt == "f32" and axis == CHANNELS
    a, b = Operand(axis, in_place=place), Operand(WEIGHTS[axis], in_place=b_in_place)
    return GemmSpec(ISAS[isa], fmt, fmt, rows, vectors, True, 4, a, b, axis)


def products_spec(isa: str, fmt: str, axis: str) -> Kn2rowSpec:
    """The kernel of few results whose operands and output lie alike."""
    product = TransposedGemmSpec(ISAS[isa], fmt, "f32", 5, 2, True, 1, Operand(axis), Operand(WEIGHTS[axis]), CHANNELS)
    return Kn2rowSpec(product, fmt, 4, 2, axis)


def depthwise_of(isa: str, tile: MicroTileShape, slide: int, fmt: str = "f32") -> SplitKSpec:
    x, y = (SplitKOperand(CHANNELS, in_place=True, width=1, moves=moves) for moves in (True, False))
    return SplitKSpec(ISAS[isa], fmt, fmt, DEPTHWISE, tile, x, y, GROUPS, slide=slide)


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


def positions(module: Module, spec: GemmSpec) -> None:
    """Emit a micro-tile, and the function that it calls."""
    store_panel(module, spec)
    tile_of_positions(module, spec, 2, 1)


FUNCTIONS: dict[str, Callable[[Module], None]] = {
    "tile": lambda module: tile(module, spec_of("neon", 2, 1), 1),
    "tile_of_positions": lambda module: positions(module, data_spec("neon", 2, 1)),
    "depthwise": lambda module: depthwise(module, depthwise_of("neon", MicroTileShape(1, 1, 1, 2), 1)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_golden_functions(name: str) -> None:
    module = Module()
    FUNCTIONS[name](module)
    assert str(module) == (GOLDEN / f"{name}.ll").read_text()


# Masked stores of what a vector has no mask for become branches, conversions instructions: none calls a function.
OURS = re.compile(
    r"(task|tile\d+(_\d)?|depthwise|combine|reduce|store_panel|pack_(a|b)(_channel)?|clear|_GLOBAL_OFFSET_TABLE_"
    r"|region|segments|tiles|micro_tiles|combine_up|pack_(weights|line|line_of_b|bias)"
    r"|pair|minimum|maximum|tap_sums|output_block|lines?|list_taps|phase|order|store|(micro_)?tile_[a-z_\d]+|compute|plane)"
)


PLAIN = [name for name, isa in ISAS.items() if not isa.pairs]  # what differs where there are pairs: test_pairs.py


@tiers("isa, fmt, first", PLAIN, ["f32", "bf16", "f16"], range(7), every=32)
def test_no_symbol_from_outside(isa: str, fmt: str, first: int) -> None:
    """Of every seventh kernel from the ``first`` on."""
    ways = product((CHANNELS, SPATIAL, STRIDED), (MicroTileShape(5, 2), MicroTileShape(2, 1, 2, 3)), (CHANNELS, GROUPS))
    packed = (spec_under(isa, shape, lanes, fmt, axis) for axis, shape, lanes in ways)
    stencils = (depthwise_of(isa, MicroTileShape(1, 1, 3, 3), slide, fmt) for slide in (0, 1))
    positions = (data_spec(isa, 5, 2, fmt, axis) for axis in (CHANNELS, SPATIAL, STRIDED))
    products = (products_spec(isa, fmt, axis) for axis in (CHANNELS, SPATIAL, STRIDED))
    footprint = Footprint(
        (PhaseTaps(0, 1, 3, 0, 1, 1),), (PhaseTaps(0, 2, 2, 0, 1, 1), PhaseTaps(1, 2, 1, 0, 1, 1)), (1, 3, 3), 2
    )
    planes = (SpatialStencilSpec(ISAS[isa], fmt, fmt, 4, 2, 2, 1, footprint),)
    for spec in list(chain(packed, stencils, positions, products, planes))[first::7]:
        text = jit.assembly(module_of(spec), ISAS[isa])
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


@pytest.mark.every(4)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("k", [3, 8])
def test_the_spatial_stencil_spills_few_vectors(k: int, stride: int) -> None:
    """If a row of taps is one block of IR, LLVM spills a vector per five or six multiply-adds with stride 2."""
    taps = PhaseTaps(0, 1, 3, 0, stride, 1)
    spec = SpatialStencilSpec(ISAS["avx512"], "f32", "f32", 4, 8, 1, 2, Footprint((taps,), (taps,), (1, 3, 3), k))
    text = jit.assembly(module_of(spec), ISAS["avx512"], "znver5")
    multiply_adds, spills = (len(re.findall(e, text)) for e in (r"vfmadd\w+", r"\(%rsp\).*%zmm|%zmm\d+, .*\(%rsp\)"))
    assert multiply_adds == 3 * 16 * 9 * k
    assert spills <= (multiply_adds // 30 if stride == 2 else 0)


TILES = [(isa, tile) for isa in PLAIN for tile in ISAS[isa].micro_tiles]


@pytest.mark.every(5)
@pytest.mark.parametrize(("isa", "shape"), TILES)
@pytest.mark.parametrize("place", [False, True])
def test_the_inner_loop_is_ideal(isa: str, shape: tuple[int, int], place: bool) -> None:
    rows, vectors = shape
    text = jit.assembly(module_of(spec_of(isa, rows, vectors, place=place)), ISAS[isa])
    (loop,) = inner_loops(text, f"tile{vectors}")
    multiplies = sum("fmadd" in line or "fmla" in line for line in loop)
    assert multiplies == rows * vectors
    assert not [line for line in loop if "(%rsp)" in line or "[sp" in line], "spills"
    limit = {"avx512": 14, "avx2": 14, "neon": 14}[isa]
    assert len(loop) - multiplies - rows - vectors <= limit, loop


@tiers(
    "isa, shape, b_in_place", [(*tile, place) for tile in TILES if tile[1][1] <= 2 for place in (False, True)], every=5
)
def test_the_inner_loop_of_positions_is_ideal(isa: str, shape: tuple[int, int], b_in_place: bool) -> None:
    """Rows are a step apart that is told at run time: its multiples take few registers, and no sum leaves its own."""
    rows, vectors = shape
    spec = data_spec(isa, rows, vectors, b_in_place=b_in_place)
    text = jit.assembly(module_of(spec), ISAS[isa])
    for height in spec.mr_sizes:
        (loop,) = inner_loops(text, f"tile{height}_{vectors}")
        assert sum("fmadd" in line or "fmla" in line for line in loop) == height * vectors
        assert not [line for line in loop if "(%rsp)" in line or "[sp" in line], (height, "spills")


SEVERAL_TAPS = [
    ("avx512", MicroTileShape(1, 1, 1, 7), GROUPS), ("avx512", MicroTileShape(1, 1, 3, 3), GROUPS),
    ("avx512", MicroTileShape(4, 2, 1, 3), GROUPS),
    ("avx512", MicroTileShape(3, 4, 1, 2), CHANNELS), ("avx512", MicroTileShape(3, 1, 3, 3), CHANNELS),
    ("avx512", MicroTileShape(1, 2, 1, 12), CHANNELS),
    ("avx2", MicroTileShape(1, 1, 1, 7), GROUPS), ("avx2", MicroTileShape(1, 1, 3, 3), GROUPS),
    ("avx2", MicroTileShape(3, 2, 1, 2), CHANNELS),
    ("neon", MicroTileShape(1, 1, 1, 7), GROUPS), ("neon", MicroTileShape(1, 1, 3, 3), GROUPS),
]  # fmt: skip


@pytest.mark.every(4)
@pytest.mark.parametrize(("isa", "tile", "lanes"), SEVERAL_TAPS)
def test_the_loop_of_several_taps(isa: str, tile: MicroTileShape, lanes: str) -> None:
    """Where all taps exist: as many multiplies as sums, none of them spilt."""
    loops = inner_loops(jit.assembly(module_of(spec_under(isa, tile, lanes)), ISAS[isa]), f"tile{tile.nr}")
    sums = tile.taps * tile.mr * tile.nr
    counts = [sum("fmadd" in line or "fmla" in line for line in loop) for loop in loops]
    assert counts[0] == sums
    assert not [line for line in loops[0] if "(%rsp)" in line or "[sp" in line], "spills"


# Processors by the names LLVM has for them, under the instruction set that they would be given.
CPU_NAMES = {
    "avx512": (
        "x86-64-v4", "skylake-avx512", "cascadelake", "icelake-server",
        "sapphirerapids", "graniterapids", "znver4", "znver5",
    ),
    "avx2": (
        "x86-64-v3", "haswell", "broadwell", "skylake", "alderlake",
        "znver1", "znver2", "znver3",
    ),
    "neon": (
        "generic", "cortex-a72", "cortex-a76", "cortex-x2", "neoverse-n1",
        "neoverse-n2", "neoverse-v1", "neoverse-v2", "apple-m1", "apple-m2", "ampere1", "a64fx",
    ),
}  # fmt: skip
NAMED = [(isa, cpu) for isa, cpus in CPU_NAMES.items() for cpu in cpus]
PROGRAM_BITS_64, SYMBOL_TABLE = 2, 2


def undefined_symbols(elf: bytes) -> set[str]:
    """Return the names that an object file wants from elsewhere: symbols of its table that no section has."""
    assert elf[:6] == bytes([0x7F, *b"ELF", PROGRAM_BITS_64, 1])
    (sections_at,) = struct.unpack_from("<Q", elf, 0x28)
    size, count = struct.unpack_from("<HH", elf, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", elf, sections_at + n * size) for n in range(count)]
    (symbols,) = [s for s in sections if s[1] == SYMBOL_TABLE]
    names = sections[symbols[6]]
    strings = elf[names[4] : names[4] + names[5]]
    found = set()
    for name, _, _, section, _, _ in struct.iter_unpack("<IBBHQQ", elf[symbols[4] : symbols[4] + symbols[5]]):
        if section == 0:
            found.add(strings[name : strings.index(b"\0", name)].decode())
    return found - {""}


def spills(text: str, vectors: int) -> list[str]:
    """Return the instructions of a tile's inner loop that touch the stack: by its pointer, or the frame's if set."""
    (loop,) = inner_loops(text, f"tile{vectors}")
    frame = re.search(r"movq\s+%rsp, %rbp|(mov|add)\s+x29, sp", text)
    stack = r"\(%r[sb]p[,)]|\[(sp|x29)\b" if frame else r"\(%rsp[,)]|\[sp\b"
    return [line for line in loop if re.search(stack, line)]


def compiled_for(isa: str, cpu: str, spec: SplitKSpec, capfd: pytest.CaptureFixture[str]) -> tuple[str, set[str]]:
    """Return the tile's assembly, and what the whole object wants from outside; LLVM must know the processor."""
    machine = jit.target_machine(ISAS[isa], cpu)
    assert "not a recognized processor" not in capfd.readouterr().err, f"LLVM has no processor {cpu}"
    module = Module()
    tile(module, spec, spec.micro_tile.nr)
    text = jit.assembly(str(module), ISAS[isa], cpu)
    whole = jit.llvm().parse_assembly(f'target triple = "{ISAS[isa].triple}"\n{module_of(spec)}')
    return text, undefined_symbols(machine.emit_object(whole))


@tiers("named", NAMED, every=11)
def test_processors(named: tuple[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    """For each: it compiles, wants no symbol, and its inner loop keeps all sums in registers; types in turn."""
    isa, cpu = named
    rows, vectors = ISAS[isa].micro_tiles[0]
    fmt = ("f32", "bf16", "f16")[NAMED.index((isa, cpu)) % 3]
    axis = (CHANNELS, SPATIAL)[NAMED.index((isa, cpu)) % 2]
    text, wanted = compiled_for(isa, cpu, spec_of(isa, rows, vectors, fmt, axis), capfd)
    assert wanted <= {"_GLOBAL_OFFSET_TABLE_"}
    (loop,) = inner_loops(text, f"tile{vectors}")
    assert sum("fmadd" in line or "fmla" in line for line in loop) == rows * vectors
    assert spills(text, vectors) == []


@pytest.mark.every(3)
@pytest.mark.parametrize(("isa", "cpu"), [("avx512", "znver5"), ("avx2", "haswell"), ("neon", "neoverse-v2")])
def test_every_tile_of_a_processor(isa: str, cpu: str, capfd: pytest.CaptureFixture[str]) -> None:
    for rows, vectors in ISAS[isa].micro_tiles:
        for place in (False, True):
            text, wanted = compiled_for(isa, cpu, spec_of(isa, rows, vectors, place=place), capfd)
            assert wanted <= {"_GLOBAL_OFFSET_TABLE_"}
            assert spills(text, vectors) == [], (rows, vectors, place)


def test_a_processor_that_llvm_does_not_know_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AssertionError, match="LLVM has no processor znver99"):
        compiled_for("avx2", "znver99", spec_of("avx2", 1, 1), capfd)


def test_a_spill_is_seen() -> None:
    """More sums than there are registers."""
    module = Module()
    tile(module, spec_of("avx2", 10, 2), 2)
    assert spills(jit.assembly(str(module), ISAS["avx2"], "haswell"), 2) != []


def test_an_undefined_symbol_is_seen() -> None:
    module = Module()
    module.declare("declare void @elsewhere()")
    f = module.function("here", public=True)
    f.call("elsewhere")
    f.done()
    whole = jit.llvm().parse_assembly(f'target triple = "{ISAS["neon"].triple}"\n{module}')
    assert undefined_symbols(jit.target_machine(ISAS["neon"]).emit_object(whole)) == {"elsewhere"}


@tiers("isa", ISAS, every=3)
def test_functions_are_compiled_one_by_one(isa: str) -> None:
    """Each wants nothing but the others, and looks the same in any module; those that two kernels share are many."""
    machine, texts = jit.target_machine(ISAS[isa]), []
    for rows in (3, 4):
        whole = module_of(spec_of(isa, rows, 1, "bf16", STRIDED))
        modules = [
            jit.llvm().parse_assembly(f'target triple = "{ISAS[isa].triple}"\n{text}') for text in separate(whole)
        ]
        defined = [next(f.name for f in module.functions if not f.is_declaration) for module in modules]
        assert [f"@{name}(" for name in defined] == re.findall(r"^define .*?(@\w+\()", whole, re.MULTILINE)
        for module in modules:
            assert undefined_symbols(machine.emit_object(module)) <= {*defined, "_GLOBAL_OFFSET_TABLE_"}
        texts.append(set(separate(whole)))
    assert len(texts[0] & texts[1]) >= len(texts[0]) / 3


def test_an_error_while_generating_reaches_the_caller_and_is_not_kept() -> None:
    spec = spec_of(HOST[0], 4, 1, "f16", STRIDED)

    def fail(_: SplitKSpec) -> str:
        raise RuntimeError("no text")

    with pytest.raises(RuntimeError, match="no text"):
        jit.compile(spec, fail)
    assert jit.compile(spec, module_of)


def test_two_generators_make_two_kernels_of_one_specification() -> None:
    spec = spec_of(HOST[0], 2, 1, "bf16", STRIDED)

    def same(given: SplitKSpec) -> str:
        return module_of(given)

    assert jit.compile(spec, same) is not jit.compile(spec, module_of)
    assert jit.compile(spec, same) is jit.compile(spec, same)
