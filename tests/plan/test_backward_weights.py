"""Plans as data, on made-up machines; schedules as tables."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from convgrad.notation import problem
from convgrad.plan.choose import plan
from convgrad.plan.machine import ISAS, Machine
from convgrad.plan.passes import dense_strides
from convgrad.plan.split_k.constants import PREFETCH_TRANSPOSE_BYTES
from convgrad.plan.split_k.nest import WeightsNest, segments_of, weights_nest
from convgrad.plan.split_k.recipe import SplitKPlan
from convgrad.plan.split_k.schedule import schedule
from convgrad.plan.tree import DIGIT_BITS, chains, chains_of_leaves, levels_of
from convgrad.spec.chains import tree
from convgrad.spec.geometry import Conv
from convgrad.spec.order import height_of, over_positions
from convgrad.spec.ordered import evaluate_in_order
from tests.support.engine_helpers import HOST, Array, empty, plans_for, run_plan
from tests.support.helpers import assert_same_bits
from tests.support.tiers import tiers

AVX512, AVX2 = Machine(ISAS["avx512"]), Machine(ISAS["avx2"])


def best(line: str, machine: Machine = AVX512, threads: int = 1) -> tuple[SplitKPlan, WeightsNest]:
    one = problem(line)
    assert isinstance(one.geometry, Conv)
    seen = weights_nest(one.geometry, *dense_strides(one))
    return plan(one, seen, machine, threads), seen


def test_a_plan_is_a_value_that_explains_itself() -> None:
    line = "BWD_W f32 NXC mb8ic64ih56oc64oh56kh3ph1"
    one, _ = best(line)
    assert one == best(line)[0]
    assert hash(one.spec) == hash(best("BWD_W f32 NXC mb4ic64ih28oc64oh28kh3ph1")[0].spec)
    text = str(one)
    assert text.startswith("dense: f32 to f32, micro-tile 13x2 of avx512")
    assert "slower dense: f32 to f32, micro-tile" in text
    assert f"rounding depth {height_of(problem(line))}" in text


def test_rows_are_the_wider_operand_of_a_pointwise_layer() -> None:
    for shape, rows in (("ic256ih56oc64oh56", "src"), ("ic64ih56oc256oh56", "dst")):
        one, _ = best(f"BWD_W f32 NXC mb8{shape}kh1ph0")
        assert (one.operands[0], one.spec.a.in_place) == (rows, True)


@pytest.mark.parametrize(("rows", "in_place"), [(14, True), (64, True), (128, False)])
def test_lanes_that_few_tiles_read_are_read_in_place(rows: int, in_place: bool) -> None:
    one, _ = best(f"BWD_W f32 NXC mb8ic64ih56oc{rows}oh56kh1ph0")
    assert (one.spec.a.in_place, one.spec.b.in_place) == (True, in_place)


@pytest.mark.parametrize(
    ("extent", "asks"), [(56, True), (28, False), (64, False)], ids=["far apart", "near", "in few sets of a cache"]
)
@pytest.mark.parametrize("shape", ["g64mb2ic64oc64", "mb2ic64oc64"])
def test_a_pack_that_transposes_asks_ahead_where_items_are_far_apart(extent: int, asks: bool, shape: str) -> None:
    sizes = f"{shape.replace('oc', f'ih{extent}oc')}oh{extent}kh3ph1"
    one, seen = best(f"BWD_W f32 NCX {sizes}")
    numbers = schedule(seen, one, accumulate=False).numbers
    for name, operand in (("a", one.spec.a), ("b", one.spec.b)):
        ahead, items = numbers[f"{name}.prefetch"], 16 if one.spec.groups_in_lanes else operand.width
        assert ahead * items in range(PREFETCH_TRANSPOSE_BYTES // 2 * asks, PREFETCH_TRANSPOSE_BYTES * asks + 1)


@pytest.mark.every(3)
@pytest.mark.parametrize("layout", ["NXC", "NCX"])
@pytest.mark.parametrize(
    "line", ["ic10000000iw9oc3ow9kw1", "ic3iw9oc30000000ow9kw3pw1", "ic3iw9oc10000000ow9kw1", "ic2iw1oc90000000ow1kw1"]
)
def test_scratch_of_millions_of_channels(line: str, layout: str) -> None:
    """A task has some of the channels, although the other operand has one panel, and room for 3 images, not for 28."""
    for threads, machine in ((1, AVX512), (2, AVX2)):
        one, seen = best(f"BWD_W f32 {layout} mb3{line}", machine, threads)
        assert schedule(seen, one, False).scratch_bytes <= 64 << 20


@pytest.mark.parametrize("threads", [1, 2, 8, 64])
@pytest.mark.parametrize("machine", [AVX512, AVX2, Machine(ISAS["neon"], l2_bytes=1 << 18)])
def test_scratch_is_bounded_and_threads_have_tasks(threads: int, machine: Machine) -> None:
    for line in ("mb8ic64ih56oc64oh56kh3ph1", "mb8ic512ih7oc2048oh7kh1ph0", "mb1ic1024ih128oc1024oh128kh3ph1"):
        one, seen = best(f"BWD_W f32 NXC {line}", machine, threads)
        assert one.threads <= threads
        assert one.tasks >= one.threads
        assert one.threads * schedule(seen, one, False).scratch_bytes <= 64 << 20


def test_a_small_call_stays_on_one_thread() -> None:
    assert best("BWD_W f32 NXC mb1ic8ih8oc8oh8kh3ph1", threads=8)[0].threads == 1


@pytest.mark.parametrize(("blocks", "units"), [(1, 1), (1, 5), (3, 1), (16, 17), (17, 3), (300, 2), (1, 300)])
def test_chains_make_the_tree_of_the_order(blocks: int, units: int) -> None:
    """The driver's numbers, executed on leaves, against the order's own tree."""
    rng = np.random.default_rng(blocks)
    leaves = rng.standard_normal(blocks * units).astype(np.float32)
    table, levels = chains(blocks, units)
    expected = tree([tree(list(unit)) for unit in leaves.reshape(units, blocks)])
    assert pushed(leaves, table, levels)[0] == expected
    assert levels == max(1, levels_of(blocks) + levels_of(units))
    apart, levels = chains_of_leaves(blocks, units)
    _, stored = pushed(leaves, apart, levels)
    assert sorted(stored) == list(range(units))
    assert pushed(np.array([stored[u] for u in range(units)]), *chains(units, 1))[0] == expected


def pushed(leaves: Array, table: Array, levels: int) -> tuple[np.float32, dict[int, np.float32]]:
    """The sum of leaves as the numbers say, and the sums of units that are stored."""
    sums, stored = np.full(levels, np.nan, np.float32), {}
    for leaf, (number, following, unit) in zip(leaves, table.tolist(), strict=True):
        value = leaf
        for level in range(levels):
            sums[level] = value if number >> DIGIT_BITS * level & 15 == 0 else sums[level] + value
            value = sums[level]
            if (number ^ following) >> DIGIT_BITS * (level + 1) == 0:
                break
        if unit >= 0:
            stored[unit] = sums[-1]
    return sums[-1], stored


@pytest.mark.parametrize("extents", [(7, 7), (16, 16), (56, 56), (700,), (2, 300), (5, 20, 20), (256,), (257,)])
@pytest.mark.parametrize("kernel", [1, 3])
def test_pieces_are_cut_as_the_order_says(extents: tuple[int, ...], kernel: int) -> None:
    axes = "".join(
        f"i{a}{n}o{a}{n}k{a}{kernel}p{a}{kernel // 2}" for a, n in zip("dhw"[-len(extents) :], extents, strict=True)
    )
    conv = problem(f"BWD_W f32 NXC mb3ic2oc2{axes}").geometry
    assert isinstance(conv, Conv)
    seen = weights_nest(conv, (0,) * (2 + len(extents)), (0,) * (2 + len(extents)), (0,) * (2 + len(extents)))
    cut = segments_of(seen)
    sizes = np.bincount(cut.chain, weights=cut.end - cut.first).astype(int).tolist()
    order = over_positions(3, extents)
    whole = seen.images_a_chain
    assert len(sizes) == seen.chains
    if order.units == 3:
        assert np.cumsum([0, *sizes[:-1]]).tolist() == order.begins().tolist()
    else:
        assert np.arange(0, 3, whole).tolist() == (order.begins() // conv.positions).tolist()


def test_plans_load_no_compiler() -> None:
    code = (
        "import sys, convgrad.plan.choose, convgrad.plan.passes, convgrad.engines;"
        "assert not any(m.startswith('llvmlite') for m in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@tiers("isa, step", [(isa, 27) for isa in HOST], every=2, long=[(isa, 9) for isa in HOST])
def test_slices_of_an_image_that_lie_on_padding(isa: str, step: int) -> None:
    """From the second position on nothing is met, at distances beyond 64 bits of bytes."""
    one = problem("BWD_W f32 NXC mb1ic600iw5oc32ow600kw3sw1125899906842624pw0")
    operands = [np.moveaxis(np.ones(shape, np.float32), -1, 1) for shape in ((1, 5, 600), (1, 600, 32))]
    expected = evaluate_in_order(one, operands)
    for each in plans_for(one, operands, empty(one), ISAS[isa], l2_bytes=1 << 12)[::step]:
        assert_same_bits(run_plan(each, one, operands, empty(one)), expected, str(each))


@pytest.mark.skipif(not HOST, reason="no instruction set of ours")
def test_a_call_loads_nothing_of_numpys_but_what_is_there() -> None:
    """A fork by another thread in the middle of an import would leave a child half a module."""
    code = (
        "import sys, numpy, convgrad; x = numpy.ones((1, 9, 9, 4), numpy.float32); before = set(sys.modules);"
        "convgrad.convolution_backward_weights(x, x, (3, 3, 4, 4), pads_begin=1, pads_end=1);"
        "print(*sorted(m for m in set(sys.modules) - before if m.startswith('numpy.')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "\n"
