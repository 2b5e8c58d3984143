"""Kernels of tiles of AMX: the specified bits, by the instructions where this machine has them, and by their model."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import convgrad
from convgrad.engines.llvm import amx, isas, jit, tiles, tried
from convgrad.engines.llvm.driver import module_of
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.intrinsics import high_sum, low_sum
from convgrad.engines.llvm.tiles import MODELLED, TileProduct, configuration
from convgrad.formats import F32
from convgrad.notation import problem as problem_of
from convgrad.plan.gemm.spec import GemmPlan, GemmSpec
from convgrad.plan.machine import ISAS, Isa
from convgrad.plan.pairs import MIN_EXPONENT_SUM
from convgrad.plan.recipe import CHANNELS, STRIDED, Operand
from convgrad.plan.tiling import tile_rows
from convgrad.spec.geometry import Conv
from convgrad.spec.ordered import evaluate_in_order
from convgrad.spec.problem import Problem, canonical_shape
from tests.engines.guarded import Placed, run_guarded
from tests.engines.test_pairs import assert_sharp, cancelling
from tests.support.children import in_child
from tests.support.engine_helpers import HOST, KINDS, PERMITTED, Array, digest, empty, lying, run_plan, tiled
from tests.support.forward_problems import along, plans_of, posed, recut
from tests.support.hash_problems import operands_of, shape_of, values
from tests.support.helpers import assert_same_bits
from tests.support.tiers import tiers

pytestmark = pytest.mark.skipif(not HOST, reason="no generated kernels run here")

needs_amx = pytest.mark.skipif(not PERMITTED, reason="this machine has no AMX")
LAYOUTS = ("NXC XIO", "NXC OIX", "NCX OIX", "NCX XIO")
CONVS = {
    "lines of two tiles": Conv(2, 1, 64, 33, (along(37, 3, pads=(1, 1)),)),
    "two lines": Conv(1, 1, 32, 70, (along(11, 3, pads=(1, 1)), along(9, 3, pads=(1, 1)))),
    "odd lines of images": Conv(3, 1, 64, 16, (along(5, 2), along(3, 1))),
    "17 blocks": Conv(1, 1, 544, 40, (along(20, 1),)),
    "groups": Conv(2, 3, 96, 3 * 20, (along(19, 2, 2, 1),)),
    "no tap": Conv(1, 1, 32, 8, (along(6, 2, 1, 9, pads=(4, 4)), along(4, 1))),
    "incomplete blocks": Conv(2, 1, 49, 35, (along(11, 3, pads=(1, 1)),)),
    "incomplete blocks, one tap": Conv(2, 1, 40, 35, (along(6, 1), along(7, 1))),
    "incomplete blocks, two axes of taps": Conv(2, 2, 72, 2 * 18, (along(5, 3, 2), along(9, 2, pads=(1, 0)))),
    "one position": Conv(1, 1, 288, 48, (along(1, 1),)),
}
ROLES = ("dst", "src")
TYPES = (("bf16", "bf16"), ("bf16", "f32"), ("bf16", "f16"))
DATA = ("normal", "tiny", "not finite")
TINY = 2.0**-110  # a factor with which vectors multiply, because exponents are too small for tiles


class Recorded:
    """Tiles that record whether they hold values, and how many of A and B do."""

    def __init__(self, f: Function) -> None:
        self.held: set[int] = set()
        self.most = self.products = 0

    def load(self, tile: int, place: Value, step: Value) -> None:
        assert tile not in self.held
        self.held.add(tile)
        self.most = max(self.most, len(self.held))

    def multiply(self, c: int, a: int, b: int) -> None:
        assert {a, b} <= self.held
        self.products += 1

    def zero(self, tile: int) -> None:
        self.held.remove(tile)


@pytest.mark.parametrize(("of_a", "of_b", "most"), [(1, 1, 2), (1, 2, 2), (2, 1, 2), (2, 2, 3)])
def test_a_tile_is_free_after_its_last_use(monkeypatch: pytest.MonkeyPatch, of_a: int, of_b: int, most: int) -> None:
    monkeypatch.setitem(tiles.TILES, "recorded", Recorded)
    f = Module().function("f", a="ptr", b="ptr")
    product = TileProduct(f, "recorded", (16,) * of_a, of_b)
    product.multiply([f.a] * of_a, f.value(64), f.b, 64)
    assert (product.tiles.held, product.tiles.most, product.tiles.products) == (set(), most, of_a * of_b)


def of_tiles(problem: Problem, operands: Sequence[Array], out: Array, isa: Isa) -> list[GemmPlan]:
    """The plans whose micro-tiles are tiles, the cheapest first."""
    _, found = plans_of(problem, operands, out, isa)
    return [plan for plan in found if isinstance(plan, GemmPlan) and plan.spec.amx_tiles]


def case_of(name: str, role: str, types: tuple[str, str], data: str, number: int) -> tuple[Problem, list[Array], Array]:
    """A problem, its operands and old values; ``number`` deals a layout, a bias, an activation and special values."""
    conv = CONVS[name]
    if role == "src":  # the summed channels are those of dst
        conv = replace(conv, src_channels=conv.dst_channels, dst_channels=conv.src_channels)
    problem = posed(conv, role, False, types, LAYOUTS[number % 4], number % 2 == 0, bias=number % 3 == 0)
    if number % 5 == 0:
        problem = replace(problem, activation="relu")
    bits = np.random.PCG64(number)
    operands = operands_of(problem, bits, subnormal=False)
    if data == "tiny":
        operands[0] = (operands[0].astype(np.float32) * np.float32(TINY)).astype(operands[0].dtype)
    if data == "not finite":
        operands[number % 2].flat[:: 37 + number] = (np.inf, -np.inf, np.nan)[number % 3]
    return problem, operands, values(shape_of(problem, problem.output), problem.output_format, bits)


@tiers("name, role, types, data, kind", list(CONVS), ROLES, TYPES, DATA, KINDS, every=119)
def test_specified_bits(name: str, role: str, types: tuple[str, str], data: str, kind: str) -> None:
    """Any layout, with old values, a bias and an activation, for each height, in every cut, among guard pages."""
    number = list(CONVS).index(name) + 3 * ROLES.index(role) + 5 * TYPES.index(types) + DATA.index(data)
    problem, operands, old = case_of(name, role, types, data, number)
    expected = np.ascontiguousarray(evaluate_in_order(problem, operands, old))
    found = of_tiles(problem, operands, old, tiled(kind))
    assert found
    heights = list({(plan.spec.mr, plan.spec.padded): plan for plan in found[number % 3 :]}.values())
    transposed = [plan for plan in found if plan.spec.bias_per_row][number % 5 :: 32]
    for plan in [*(heights[number % 7 :: 11] or found[:1]), *transposed]:
        cuts = [plan, *recut(plan, plans_of(problem, operands, old, tiled(kind))[0])]
        cuts += [replace(plan, packed_once=True)] if plan.spec.packs_once else []
        for at, cut in enumerate(cuts):
            if at % 5 not in (0, number % 5) and not cut.packed_once:
                continue
            out = Placed(old, old.strides, at % 2 == 0)
            if not problem.accumulate:
                out.array[...] = np.nan
            run_guarded(cut, problem, operands, out.array, at % 2 == 0)
            assert_same_bits(np.ascontiguousarray(out.array), expected, (name, str(cut)))
            assert out.intact()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "layout", "factor", "has_part", "pass_chains"),
    [
        ("two lines", "NXC XIO", 1, lambda spec: spec.two_lines(9) or spec.two_lines(8), 0),
        ("17 blocks", "NXC XIO", 1, lambda spec: spec.nr == 2, 5),  # a pass begins within a node
        ("two lines", "NXC XIO", TINY, lambda spec: spec.two_lines(9) or spec.two_lines(8), 0),
        ("17 blocks", "NCX OIX", TINY, lambda spec: spec.bias_per_row, 0),  # rows with biases, by vectors
        ("no tap", "NXC XIO", 1, lambda spec: not spec.padded, 0),
    ],
    ids=["two lines", "passes", "two lines by vectors", "biases of rows", "no tap"],
)
def test_parts_of_a_micro_tile(
    name: str, layout: str, factor: float, has_part: Callable[[GemmSpec], bool], pass_chains: int, kind: str
) -> None:
    """Each part of the kernel on its own, because the quick tier has few of the cases above."""
    problem = posed(CONVS[name], "dst", False, TYPES[1], layout, bias=True)
    operands = operands_of(problem, np.random.PCG64(3), subnormal=False)
    for at in (0, 2):  # data and bias
        operands[at] = (operands[at].astype(np.float32) * np.float32(factor)).astype(operands[at].dtype)
    expected = np.ascontiguousarray(evaluate_in_order(problem, operands))
    found = [plan for plan in of_tiles(problem, operands, empty(problem), tiled(kind)) if has_part(plan.spec)]
    out = run_plan(replace(found[0], pass_chains=pass_chains), problem, operands, empty(problem))
    assert_same_bits(np.ascontiguousarray(out), expected, str(found[0]))


@pytest.mark.every(5)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("role", "transposed", "number"), [("dst", False, np.nan), ("dst", True, np.inf), ("src", True, 1)]
)
def test_padding_with_groups_and_dilations(role: str, transposed: bool, number: float, kind: str) -> None:
    """Padded A, also if a weight of one group is not finite: its products with padding are no terms."""
    conv = Conv(2, 2, 96, 96, (along(9, 3, pads=(1, 1)), along(15, 3, 1, 2, pads=(2, 2))))
    problem = replace(posed(conv, role, transposed, TYPES[0], "NXC XIO", bias=True), activation="relu")
    operands = operands_of(problem, np.random.PCG64(5), subnormal=False)
    operands[1].flat[0] = number
    expected = np.ascontiguousarray(evaluate_in_order(problem, operands))
    padded = next(plan for plan in of_tiles(problem, operands, empty(problem), tiled(kind)) if plan.spec.padded)
    out = run_plan(padded, problem, operands, empty(problem))
    assert_same_bits(np.ascontiguousarray(out), expected, str(padded))


@needs_amx
@pytest.mark.parametrize("line", ["FWD_D bf16 NXC mb2ic64ih9oc40oh9kh3ph1n", "BWD_D bf16 NXC mb2ic40ih9oc64oh9kh3ph1n"])
def test_the_limit_is_sharp(line: str) -> None:
    """The instruction flushes denormals: sums of least exponents of 142 run by tiles, of 141 do not."""
    problem = replace(problem_of(line), output_format=F32)
    summed = {"dst": 1, "src": 0}[problem.solves_for]
    shapes = [canonical_shape(problem.geometry, tensor) for tensor in problem.operands]
    for low, there in ((MIN_EXPONENT_SUM // 2, True), (MIN_EXPONENT_SUM // 2 - 1, False)):
        data = np.moveaxis(cancelling((*np.delete(shapes[0], 1), shapes[0][1]), low, (129, 128), 2), -1, 1)
        rest = np.delete(shapes[1], summed)
        signs = cancelling((*rest, shapes[1][summed]), MIN_EXPONENT_SUM // 2, (129, -130), 2)
        weights = np.moveaxis(signs, -1, summed)
        operands = [lying(each, layout) for each, layout in zip((data, weights), problem.layouts, strict=False)]
        found = of_tiles(problem, operands, empty(problem), ISAS["amx"])
        wanted = np.ascontiguousarray(evaluate_in_order(problem, operands)).tobytes()
        assert_sharp(found[:2], problem, operands, wanted, there)


def test_what_is_not_tiled() -> None:
    """Sums in pairs, of few channels, are left to vectors."""
    for layout in ("NCX", "NXC"):
        problem = problem_of(f"FWD_D bf16 {layout} mb2ic16ih9oc40oh9kh3ph1n")
        operands = [np.zeros(canonical_shape(problem.geometry, each), np.float32) for each in problem.operands]
        assert not of_tiles(problem, operands, empty(problem), tiled(MODELLED))


def test_the_inner_loop_is_ideal() -> None:
    """Four products of tiles take two tiles of A and two of B, each loaded once, before its first product."""
    spec = GemmSpec(
        ISAS["amx"], "bf16", "bf16", 32, 2, True, 2, Operand(CHANNELS), Operand(STRIDED), CHANNELS,
        k_per_add=2, chains=2, amx_tiles=True,
    )  # fmt: skip
    text = jit.assembly(module_of(spec), ISAS["amx"])
    body = text[text.index("tile32_2:") :].split("tdpbf16ps")
    assert len(body) > 4
    assert [piece.count("tileload") for piece in body[1:4]] == [1, 1, 0]
    assert "vmovups" not in body[1] + body[2] + body[3]


def test_configuration_names_rows_and_bytes() -> None:
    """Bytes 16 to 31 are 16-bit numbers of bytes, and bytes 48 to 55 are numbers of rows."""
    made = configuration({0: 16, 6: 3})
    assert len(made) == 64
    assert made[0] == 1
    assert np.frombuffer(made, np.uint16)[8:16].tolist() == [64, 0, 0, 0, 0, 0, 64, 0]
    assert list(made[48:56]) == [16, 0, 0, 0, 0, 0, 3, 0]


@pytest.mark.parametrize("rows", range(1, 33))
def test_rows_are_divided_among_at_most_two_tiles(rows: int) -> None:
    heights = tile_rows(rows)
    assert sum(heights) == rows
    assert max(heights) <= 16
    assert len(heights) == (1 if rows <= 16 else 2)


def hashed() -> str:
    """The hash of a layer of 64 channels."""
    rng = np.random.default_rng(5)
    src, weights = (rng.normal(size=shape).astype(np.float32) for shape in ((2, 9, 9, 64), (3, 3, 64, 40)))
    bf16 = np.dtype(ml_dtypes.bfloat16)
    ones = {"strides": [1, 1], "dilations": [1, 1], "pads_begin": [1, 1], "pads_end": [1, 1]}
    return digest(np.asarray(convgrad.convolution(src.astype(bf16), weights.astype(bf16), **ones)))


def of_child(reader: int, writer: int) -> list[str]:
    """The hashes of a child that is forked after a call, and of its parent; the child writes to a pipe."""
    wanted = hashed()
    if os.fork() == 0:
        os.write(writer, hashed().encode())
        os._exit(0)
    found = os.read(reader, 100).decode()
    os.wait()
    return [wanted, found]


def test_threads_have_tiles_of_their_own() -> None:
    wanted, found = hashed(), list[str]()
    threads = [threading.Thread(target=lambda: found.append(hashed())) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [wanted] * 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_forked_children_may_use_tiles() -> None:
    wanted, found = in_child("tests.engines.test_tiles", "print_forked")
    assert wanted == found == hashed()


def print_forked() -> None:
    """Print the hashes of a parent and its child, as JSON."""
    print(json.dumps(of_child(*os.pipe())))


def test_a_refusal_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the permission, kernels use the next instruction set."""
    monkeypatch.setattr(amx, "why_not_permitted", lambda: "Linux does not permit the use of tiles (error 95)")
    isa = replace(tiled(MODELLED), name="tiles refused", tiles="amx")
    assert tried.why_not.__wrapped__(isa) == "Linux does not permit the use of tiles (error 95)"
    monkeypatch.setattr(isas, "host_isas", lambda: (ISAS["avx512bf16"],))
    assert isas.isa() is ISAS["avx512bf16"]


def test_sums_in_another_order_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """All terms in one chain have other bits. The order of two chains does not matter."""
    isa = tiled(MODELLED)
    assert tried.why_not.__wrapped__(isa) == ""
    monkeypatch.setattr(tiles, "low_sum", lambda *given: high_sum(given[0], low_sum(*given), *given[2:]))
    monkeypatch.setattr(tiles, "high_sum", lambda f, sums, *pairs: sums)
    assert "differ from the specified ones" in tried.why_not.__wrapped__(replace(isa, name="one chain"))
