"""Kernels for GPUs, run on the CPU: the bits of the CPU's kernels, with operands and results among guard pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from convgrad import engines
from convgrad.engines.addresses import address_of, array_at
from convgrad.engines.llvm import isas
from convgrad.formats import F32
from convgrad.functional.call import prepare
from convgrad.notation import problem as problem_of
from convgrad.plan.cuda.nest import count_of_products, products_of
from convgrad.plan.cuda.plan import TILES, plan, refusal
from convgrad.plan.cuda.recipe import ROWS, SingleSpec, TileSpec
from convgrad.plan.cuda.tables import chains_of
from convgrad.plan.cuda.vectors import width_of_a
from convgrad.plan.passes import dense_strides
from convgrad.spec.activation import activated
from convgrad.spec.order import SPLIT_TERMS, order_of
from convgrad.spec.ordered import evaluate_in_order
from convgrad.spec.problem import Problem
from tests.engines.guarded import Placed
from tests.support import emulated
from tests.support.engine_helpers import Array, empty, made
from tests.support.helpers import assert_same_bits
from tests.support.tiers import tiers

pytestmark = pytest.mark.skipif(not isas.host_isas(), reason="no generated kernels run here")

EDGES = [f"FWD_D f32 {lies} mb1ic8ih9oc{oc}oh9kh3ph1" for lies in ("NXC", "NCX") for oc in (16, 63, 64, 65, 127, 129)]
TERMS = [f"FWD_D f32 NXC mb1ic{ic}ih4oc32oh4kh1" for ic in (1, 7, 8, 9, 255, 256, 257)]
CHAINS = [f"FWD_D f32 NCX mb1ic{256 * chains}ih4oc16oh4kh1" for chains in (15, 16, 17, 33)]
CHAINS += ["BWD_D f32 NXC mb1ic24ih4oc66048oh4kh1"]  # 258 chains
IMAGES = [f"BWD_W f32 {lies} mb{mb}ic16ih17oc16oh17kh1" for lies in ("NXC", "NCX") for mb in (1, 2, 16, 17)]
IMAGES += ["BWD_W f32 NXC mb90ic16ih7oc16oh7kh3ph1", "BWD_W f32 NXC mb2ic16iw4400oc16ow4400kw1"]
PHASES = [
    "BWD_D f32 NXC mb2ic24ih11oc16oh6kh3ph1sh2", "BWD_D f32 NCX mb2ic24ih12iw13oc16oh4ow13kh2kw3sh3pw1",
    "BWD_D f32 NXC mb1ic16ih13oc24oh5kh3sh3dh2", "deconv FWD_D f32 NCX mb1ic16ih5oc20oh11kh3sh2",
    "deconv BWD_W f32 NXC mb2ic16ih5oc20oh11kh3sh2", "deconv BWD_D f32 NXC mb1ic16ih5oc20oh11kh3sh2",
]  # fmt: skip
RANKS = [
    "FWD_D f32 NXC mb2ic16iw40oc24ow38kw3", "BWD_W f32 NCX mb2ic16iw40oc24ow40kw3pw1",
    "FWD_D f32 NXC mb1ic8id5ih6iw7oc16od5oh6ow7kd3kh3kw3pd1ph1pw1",
    "BWD_D f32 NCX mb1ic16id5ih6iw7oc16od5oh6ow7kd3kh3kw3pd1ph1pw1",
    "BWD_W f32 NXC mb1ic16id5ih6iw7oc16od5oh6ow7kd3kh3kw3pd1ph1pw1",
]  # fmt: skip
GROUPS = [
    "FWD_D f32 NXC g3mb2ic48ih7oc72oh7kh3ph1", "BWD_D f32 NCX g2mb2ic64ih7oc64oh7kh3ph1",
    "BWD_W f32 NXC g2mb2ic64ih7oc64oh7kh3ph1", "FWD_D f32 NCX g24mb2ic24ih9oc24oh9kh3ph1",
    "BWD_D f32 NXC g24mb2ic24ih9oc24oh5kh3ph1sh2", "BWD_W f32 NCX g24mb2ic24ih17oc24oh17kh3ph1",
    "FWD_D f32 NXC mb1ic48ih9oc3oh9kh3ph1",
]  # fmt: skip
FORMATS = [
    f"{direction} {operand} {lies} mb2ic{ic}ih9oc24oh9kh3ph1"
    for direction in ("FWD_D", "BWD_D", "BWD_W") for operand in ("bf16", "f16") for lies in ("NXC", "NCX")
    for ic in (16, 17)
]  # fmt: skip
LINES = [*EDGES, *TERMS, *CHAINS, *IMAGES, *PHASES, *RANKS, *GROUPS, *FORMATS]
SPLIT = [
    f"{line} bf16 {lies} {shape}"
    for channels in (16, 17, 31, 32, 33, 48, 64, 100) for lies in ("NXC", "NCX")
    for line, shape in (
        ("FWD_D", f"mb1ic{channels}ih5oc20oh5kh3ph1"),  # tiles
        ("FWD_D", f"g2mb1ic{2 * channels}ih6oc10oh3kh3ph1sh2"),  # outputs one by one
        ("FWD_D", f"mb1ic{channels}ih6oc3oh6kh3ph1"),  # tap by tap
        ("BWD_D", f"mb2ic20ih8oc{channels}oh4kh3ph1sh2"),
        ("BWD_D", f"mb1ic2ih9oc{channels}oh5kh3ph1sh2"),
        ("BWD_D", f"mb1ic16ih13oc{channels}oh5kh3sh3dh2"),  # results without terms
    )
]  # fmt: skip
SPLIT += ["FWD_D bf16 NXC mb1ic550ih5oc20oh5kh1", "FWD_D bf16 NCX mb1ic260ih5oc3oh5kh3ph1"]  # trees of several levels
WEIGHTS = [
    f"{line} {lies} {shape}"
    for lies in ("NXC", "NCX")
    for line, shape in (
        ("BWD_W bf16", "mb2ic16ih6oc16oh3kh3ph1sh2"),  # one portion, with the terms of both images
        ("BWD_W bf16", "mb12ic17ih7oc20oh7kh3ph1"),  # five images per chain
        ("BWD_W bf16", "mb3ic20ih9oc70oh9kh3ph1"),
        ("BWD_W bf16", "mb3ic16ih17iw15oc18kh3kw2sh2sw2dh2dw1ph1pw1"),
        ("BWD_W bf16", "mb2ic16ih17iw19oc16oh17ow20kh3kw2ph1pw1"),  # rows of images that are units
        ("BWD_W bf16", "mb2ic16iw523oc16ow523kw3pw1"),  # rows of several chains
        ("BWD_W bf16", "mb1ic16ih3iw301oc16oh3kh3kw2ph1"),
        ("BWD_W bf16", "mb1ic16iw4400oc16ow4400kw1"),  # nodes of nodes
        ("BWD_W bf16", "mb33ic24ih17oc16oh9kh1sh2"),
        ("BWD_W bf16", "g3mb4ic48ih9oc51oh9kh3ph1"),
        ("BWD_W bf16", "mb2ic16id5ih6iw7oc16od5oh6ow7kd3kh3kw3pd1ph1pw1"),
        ("BWD_W bf16", "mb2ic15ih9oc24oh9kh3ph1"),  # one chain
        ("deconv BWD_W bf16", "mb2ic16ih5oc20oh11kh3sh2"),
        ("deconv BWD_W bf16", "g2mb3ic32ih9oc34oh17kh3sh2ph1"),
    )
]  # fmt: skip
ODD = (np.inf, -np.inf, np.nan)


def expected_of(problem: Problem, operands: Sequence[Array], old: Array) -> Array:
    out = old.copy(order="K")
    engines.execute(problem, operands, out)
    return out


def assert_same(problem: Problem, operands: Sequence[Array], old: Array | None = None, what: str = "") -> None:
    """Run a problem on both processors, with operands and output of the emulated one among guard pages."""
    before = empty(problem) if old is None else old
    expected = expected_of(problem, operands, before)
    placed = [Placed(array, array.strides, at_end) for at_end in (True, False) for array in (*operands, before)]
    for some in (placed[: len(placed) // 2], placed[len(placed) // 2 :]):
        *given, out = (each.array for each in some)
        emulated.run(problem, given, out)
        assert_same_bits(np.ascontiguousarray(out), np.ascontiguousarray(expected), f"{problem} {what}")
        assert all(each.memory.intact() for each in some)


@tiers("line", LINES, every=19)
def test_bits_are_those_of_the_cpu(line: str) -> None:
    problem, operands = made(line)
    assert refusal(problem) == ""
    assert_same(problem, operands)


@tiers("kernel", ["tile", "single"])
@tiers("nodes", [False, True])
@tiers("line", [*SPLIT, *WEIGHTS], every=67)
def test_split_chains(line: str, nodes: bool, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves that are chains and leaves that are nodes have the specified bits, also if numbers are not finite.

    Results are f32, because the rounding to bf16 hides nearly all differences. Some problems have only one kernel.
    """
    prefer(nodes, monkeypatch)
    if kernel == "single":
        monkeypatch.setattr("convgrad.plan.cuda.plan.MIN_ROWS", 1 << 31)
    problem, operands = made(line)
    problem, order = replace(problem, output_format=F32), order_of(problem)
    specs = product_specs(problem)
    longest = min(order.block, order.length * min(order.lines, order.lines_a_block))
    split = order.chains == 2
    assert {(spec.split, spec.portions) for spec in specs} == {(split, split and longest > SPLIT_TERMS)}
    assert kernel == "tile" or {spec.name for spec in specs} == {kernel}
    many = [product.chains > 1 for product in products_of(problem, dense_strides(problem))]
    assert [spec.nodes for spec in specs] == [nodes and some for some in many]
    assert_in_order(problem, operands)
    for array in operands:
        array[(0,) * array.ndim] = np.inf
    assert_in_order(problem, operands)


@pytest.mark.every(3)
@pytest.mark.parametrize("tile", TILES)
def test_nodes_of_portions_in_all_tiles(tile: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums of both levels are too large for the shared memory of the largest tile."""
    prefer(True, monkeypatch)
    monkeypatch.setattr("convgrad.plan.cuda.plan.TILES", (tile,))
    problem, operands = made("BWD_W bf16 NXC mb12ic33ih7oc80oh7kh3ph1")
    problem = replace(problem, output_format=F32)
    found = [(spec.rows, spec.columns, spec.nodes) for spec in product_specs(problem) if isinstance(spec, TileSpec)]
    assert found == [(*tile, tile != (128, 128))]
    assert_in_order(problem, operands)


def prefer(nodes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose leaves that are nodes, or chains."""
    monkeypatch.setattr("convgrad.plan.cuda.plan._time", lambda _, leaves, spec, number: spec.nodes != nodes)


def product_specs(problem: Problem) -> list[TileSpec | SingleSpec]:
    """Return the specifications of the kernels that compute products."""
    launches = plan(problem, dense_strides(problem), emulated.PROCESSORS).launches
    return [launch.spec for launch in launches if isinstance(launch.spec, TileSpec | SingleSpec)]


def assert_in_order(problem: Problem, operands: Sequence[Array]) -> None:
    out = empty(problem)
    emulated.run(problem, operands, out)
    expected = evaluate_in_order(problem, operands)
    assert_same_bits(np.ascontiguousarray(out), np.ascontiguousarray(expected), str(problem))


def test_absent_terms_after_terms_at_decreasing_positions() -> None:
    """All elements of A exist, and the sum of 4 terms is padded to 8. The distance from a term to the next is -1."""
    assert_same(*made("BWD_D f32 NCX mb1ic16iw16oc1ow19kw4pw3"))


def test_results_without_terms_next_to_others() -> None:
    """No tap meets the second row. A has two elements, fewer than a vector."""
    problem, operands = made("BWD_D f32 NCX mb1ic16ih2iw16oc1oh1ow2kh1kw15sh2")
    assert_same(problem, operands)
    _, second = products_of(problem, dense_strides(problem))
    assert width_of_a(second, chains_of(second), ROWS) == 1


@pytest.mark.every(4)
@pytest.mark.parametrize("step", [-6, 3, 1 << 50, (1 << 63) - 1])
@pytest.mark.parametrize("direction", ["FWD_D", "BWD_D", "BWD_W"])
@pytest.mark.parametrize("shape", ["mb1ic1ih1iw17oc16oh3ow17kh3kw3ph2pw1", "mb1ic16ih5iw9oc1oh1ow9kh5kw1"])
def test_strides_of_axes_with_one_element(direction: str, shape: str, step: int) -> None:
    """Any stride is legal, because there is no second element."""
    problem, operands = made(f"{direction} f32 NCX {shape}")
    out, expected = empty(problem), empty(problem)
    engines.execute(problem, operands, expected)
    *given, to = (array_at(address_of(one), one.shape, _stepped(one, step), one.dtype) for one in (*operands, out))
    assert refusal(problem, [array.strides for array in (*given, to)]) == ""
    emulated.run(problem, given, to)
    assert_same_bits(out, expected, problem.operator)


def _stepped(array: Array, step: int) -> tuple[int, ...]:
    """Return the strides of an array, with a step along the axes that have one element."""
    return tuple(step if extent == 1 else stride for extent, stride in zip(array.shape, array.strides, strict=True))


def test_offsets_of_padding_that_exceed_32_bits() -> None:
    assert_same(*made("FWD_D f32 NCX mb1ic4ih1iw16oc16oh1ow16kh3kw1dh268435456ph268435456"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("FWD_D f32 NCX mb1ic1iw5oc16ow5kw3dw4294967296pw4294967296", "has 2^30 positions or more"),
        ("FWD_D f32 NCX mb1ic1iw1200000000oc1ow1200000000kw1", "has 2^30 positions or more"),
        ("BWD_W f32 NCX mb65536ic1iw257oc1ow257kw1", "more than 65535 nodes of 16 chains; use a smaller batch."),
        ("FWD_D f32 NXC mb1ic64ih300oc1oh1kh300ph0", "more than 65535 nodes of 16 chains."),
        ("BWD_W f32 NCX mb1ic1iw67108865oc1ow67108865kw1", "a sum has 67108865 terms, more than 67108864"),
        ("BWD_W f32 NCX mb2ic1ih9000oc1oh9000kh1", "a sum has 81000000 terms, more than 67108864"),
        ("FWD_D f32 NCX mb1ic67108865iw1oc1ow1kw1", "a sum has 67108865 terms, more than 67108864"),
        ("BWD_D f32 NCX mb1ic1ih65oc1oh1kh65sh65", "cut a result into 4225 parts, more than 4096"),
        ("BWD_D f32 NCX mb1ic1iw1000000000oc1ow2kw1pw1sw1000000000", "cut a result into 1000000000 parts"),
    ],
)
def test_refused_sizes(line: str, words: str) -> None:
    assert words in f"{refusal(problem_of(line))}."


def test_most_terms() -> None:
    """The images of a weight gradient have a table together."""
    assert refusal(problem_of("BWD_W f32 NCX mb3ic1iw67108864oc1ow67108864kw1")) == ""
    assert refusal(problem_of("FWD_D f32 NCX mb1ic67108864iw1oc1ow1kw1")) == ""


@pytest.mark.parametrize("line", [*EDGES[:1], *IMAGES[:1], *PHASES, *RANKS[2:], "BWD_D f32 NCX mb1ic1iw3oc1ow1kw3sw7"])
def test_count_of_products(line: str) -> None:
    problem = problem_of(line)
    assert count_of_products(problem) == len(products_of(problem, dense_strides(problem)))


@pytest.mark.every(3)
@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("line", [EDGES[9], FORMATS[0]])
def test_all_tiles_have_the_same_bits(tile: tuple[int, int], line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convgrad.plan.cuda.plan.TILES", (tile,))
    problem, operands = made(line)
    strides = (*(each.strides for each in operands), empty(problem).strides)
    specs = [launch.spec for launch in plan(problem, strides, emulated.PROCESSORS).launches]
    assert [(spec.rows, spec.columns) for spec in specs if isinstance(spec, TileSpec)] == [tile]
    assert_same(problem, operands)


@tiers("line", [*EDGES[:2], *PHASES, *GROUPS, *FORMATS[:4], *RANKS], every=11)
def test_numbers_that_are_not_finite(line: str) -> None:
    """Padding times infinity is no term, so that it gives no NaN."""
    problem, operands = made(line)
    rng = np.random.default_rng(5)
    for array in operands:
        flat = array.reshape(-1)  # a copy, unless the operand is in canonical order
        flat[rng.integers(flat.size, size=3)] = ODD
        array[...] = flat.reshape(array.shape)
    assert_same(problem, operands)


@tiers("lies, ic, oc, operand", ["NXC", "NCX"], [8, 300], [24, 17, 4], ["f32", "bf16"], every=17)
def test_biases_old_values_and_activations(lies: str, ic: int, oc: int, operand: str) -> None:
    problem, operands = made(f"FWD_B {operand} {lies} mb2ic{ic}ih8oc{oc}oh8kh3ph1")
    assert "bias" in problem.operands
    assert_same(problem, operands)
    assert_same(activated(problem, "relu"), operands)
    old = empty(problem)
    old[...] = np.random.default_rng(3).standard_normal(old.shape)
    assert_same(replace(problem, accumulate=True), operands, old)


def test_bias_gradients() -> None:
    for shape, lies in (((3, 20, 9, 9), "NCX"), ((40, 33, 17), "NXC")):
        values = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        problem, operands = bias_gradient(values, lies)
        assert_same(problem, operands)


def bias_gradient(values: Array, lies: str) -> tuple[Problem, list[Array]]:
    given = values if lies == "NCX" else np.ascontiguousarray(np.moveaxis(values, 1, -1))
    prepared = prepare("BiasAddBackward", (given,), {"data_format": lies})
    return prepared.problem, list(prepared.operands)
