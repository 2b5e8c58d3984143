"""Every kernel that adds leaves in the 16-ary tree has the executed bits: with 1 to 300 leaves, and about 4,096."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product

import numpy as np
import pytest

from convgrad import engines
from convgrad.engines.llvm import jit
from convgrad.engines.llvm.winograd import sums
from convgrad.functional.call import prepare
from convgrad.notation import problem
from convgrad.plan.gemm.spec import GemmPlan
from convgrad.plan.kn2row.spec import Kn2rowPlan
from convgrad.plan.machine import ISAS, Machine
from convgrad.plan.winograd import schedule
from convgrad.plan.winograd.plans import plan_positions
from convgrad.spec import order
from convgrad.spec.order import FAN_IN, order_of
from convgrad.spec.ordered import evaluate_in_order
from convgrad.spec.problem import Problem, canonical_shapes
from convgrad.spec.winograd import tile_order as tiles
from tests.support.engine_helpers import HOST, Array, empty, plans_for, run_plan
from tests.support.forward_problems import plans_of
from tests.support.helpers import assert_same_bits
from tests.support.tiers import Test, tiers
from tests.support.winograd_problems import computed, drawn, posed

pytestmark = pytest.mark.skipif(not HOST, reason="no generated kernels run here")

LEAVES = (16, 17, 18, 255, 256, 257, 273, 274)  # with 274 leaves, the second parent has two children
ALL = range(1, 301)
MANY = (4080, 4096, 4097, 4114, 4369, 4626)  # the same numbers of nodes of 16 leaves

WEIGHTS = {
    "images that are units": "BWD_W f32 NXC mb{n}ic2iw257oc3ow257kw1pw0",
    "images that are blocks": "BWD_W f32 NCX mb{n}ic2iw129oc3ow129kw1pw0",
    "rows that are blocks": "BWD_W f32 NXC mb1ic2ih{n}iw129oc3oh{n}ow129kh1kw1ph0pw0",
    "parts of a row": "BWD_W f32 NCX mb1ic1iw{whole}oc2ow{whole}kw1pw0",
}
DATA = {
    "channels of a forward": "FWD_D f32 NXC mb1ic{whole}iw2oc5ow2kw1pw0",
    "channels of a data gradient": "BWD_D f32 NCX mb1ic5iw2oc{whole}ow2kw1pw0",
    "taps of a forward": "FWD_D f32 NXC mb1ic129iw{n}oc5ow1kw{n}pw0",
    "taps of a data gradient": "BWD_D f32 NCX mb1ic6iw1oc129ow{n}kw{n}pw{less}",
    "taps of grouped rows": "FWD_D f32 NCX g2mb1ic8ih{n}iw65oc8oh1ow2kh{n}kw64ph0pw0",
    "taps apart": "FWD_D f32 NXC mb1ic16iw{n}oc2ow1kw{n}pw0",
}


def line_of(text: str, leaves: int) -> str:
    """Return a problem line whose sums have so many leaves; the last leaf is not full."""
    return text.format(n=leaves, whole=256 * leaves - 5, less=leaves - 1)


def operands_of(line: str) -> list[Array]:
    rng, one = np.random.default_rng(len(line)), problem(line)
    return [rng.standard_normal(shape, np.float32) for shape in canonical_shapes(one)[:-1]]


def cases(names: Iterable[str], every: int) -> Callable[[Test], Test]:
    """Some leaves on each instruction set, of which every so many are quick; all leaves on one in the long tier."""
    rest = product([leaves for leaves in (*ALL, *MANY) if leaves not in LEAVES], names, HOST[:1])
    return tiers("leaves, name, isa", LEAVES, names, HOST, every=every, long=rest)


@cases(WEIGHTS, every=9)
def test_trees_of_weight_gradients(leaves: int, name: str, isa: str) -> None:
    """With one thread, and with several, whose units are kept and joined at the end."""
    line = line_of(WEIGHTS[name], leaves)
    one, operands = problem(line), operands_of(line)
    assert leaves in (order_of(one).units, order_of(one).blocks)
    expected = evaluate_in_order(one, operands)
    for threads in (1, 3):
        plan = plans_for(one, operands, empty(one), ISAS[isa], threads)[0]
        assert_same_bits(run_plan(plan, one, operands, empty(one)), expected, (line, str(plan)))


@cases(DATA, every=31)
def test_trees_of_data(leaves: int, name: str, isa: str) -> None:
    """By a plan of each kernel body that there is."""
    line = line_of(DATA[name], leaves)
    one, operands = problem(line), operands_of(line)
    expected = evaluate_in_order(one, operands)
    _, found = plans_of(one, operands, empty(one), ISAS[isa])
    for each in {type(plan): plan for plan in reversed(found)}.values():
        assert_same_bits(run_plan(each, one, operands, empty(one)), expected, (line, str(each)))


@pytest.mark.parametrize("channels", [16, 5000])
def test_trees_of_taps_and_channels(channels: int) -> None:
    """By the GEMM, whose chains have numbers of a tap and of a block: one block of a tap, and more than 16."""
    line = f"FWD_D f32 NXC mb1ic{channels}iw3oc2ow3kw3pw1"
    one, operands = problem(line), operands_of(line)
    assert order_of(one).units == 3
    found = plans_of(one, operands, empty(one), ISAS[HOST[0]])[1]
    each = next(plan for plan in found if isinstance(plan, GemmPlan))
    assert_same_bits(run_plan(each, one, operands, empty(one)), evaluate_in_order(one, operands), str(each))


@pytest.mark.parametrize(("taps", "there"), [(4096, True), (4097, False)])
def test_gathered_taps_have_three_levels(taps: int, there: bool) -> None:
    """More would need a fourth: there are no such plans, though few of the taps exist at a position."""
    one = problem(f"FWD_D f32 NXC mb1ic16iw9oc2ow9kw{taps}pw{taps - 1}")
    _, found = plans_of(
        one, [np.zeros(shape, np.float32) for shape in canonical_shapes(one)[:-1]], empty(one), ISAS[HOST[0]]
    )
    assert any(isinstance(plan, Kn2rowPlan) for plan in found) == there


@tiers("leaves", [*LEAVES, *MANY], every=6)
def test_trees_of_bias_gradients(leaves: int) -> None:
    dst = np.random.default_rng(leaves).standard_normal((leaves, 257, 2), np.float32)
    prepared = prepare("BiasAddBackward", (dst,), {"data_format": "NXC"})
    out = np.full(2, np.nan, np.float32)
    assert engines.execute(prepared.problem, prepared.operands, out, 2).engine == "generated"
    assert_same_bits(out, evaluate_in_order(prepared.problem, prepared.operands), leaves)


@tiers("leaves, direction, isa", LEAVES, ["FWD_D", "BWD_D"], HOST, every=11)
def test_trees_of_tiles_over_channels(leaves: int, direction: str, isa: str) -> None:
    channels = 64 * leaves - 5
    src, dst = (channels, 32) if direction == "FWD_D" else (32, channels)
    tiles_are_executed(posed(f"mb1ic{src}ih2oc{dst}oh2kh3ph1", "2x2", direction=direction), isa)


@pytest.mark.parametrize(("images", "nodes", "by_rows"), [(1, 258, False), (128, 18, True)])
def test_trees_of_tiles_in_small(images: int, nodes: int, by_rows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of chains of two channels, by blocks of results and by rows of tiles."""
    monkeypatch.setenv("CONVGRAD_CACHE_DIR", "off")  # its keys do not know of other constants
    for module, name in ((sums, "BLOCK"), (schedule, "BLOCK"), (order, "TILES_BLOCK")):
        monkeypatch.setattr(module, name, 2)
    monkeypatch.setattr(jit._linker, "kernels", {})
    one = posed(f"mb{images}ic{2 * FAN_IN * nodes - 3}ih2oc32oh2kh3ph1", "2x2", direction="FWD_D")
    assert plan_positions(one, Machine(ISAS[HOST[0]]), 1).by_rows == by_rows
    tiles_are_executed(one, HOST[0])


def tiles_are_executed(one: Problem, isa: str) -> None:
    operands = drawn(one, 3)
    got = computed(one, operands, empty(one), isa, 1)
    assert_same_bits(np.ascontiguousarray(got), np.ascontiguousarray(evaluate_in_order(one, operands)), one)


@tiers("units", LEAVES, every=4)
def test_trees_of_tiles_over_units(units: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Units of one block of two tiles."""
    monkeypatch.setenv("CONVGRAD_CACHE_DIR", "off")
    for module, name, number in ((tiles, "BLOCK", 2), (tiles, "MAX_BLOCKS", 1), (order, "TILES_BLOCK", 2)):
        monkeypatch.setattr(module, name, number)
    one = posed(f"mb{units}ic32ih2iw4oc32oh2ow4kh3kw3ph1pw1", "2x2")
    assert order_of(one).units == units
    tiles_are_executed(one, HOST[0])
