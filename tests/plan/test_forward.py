"""Tables of forwards and data gradients are as long as axes have parts and slabs, and planning takes as little.

What grew with taps times positions would grow sixteen-fold where kernel and image double; counts are held, not times.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import islice, product
from math import ceil, prod

import numpy as np
import pytest

from convgrad.notation import problem
from convgrad.plan.forward_nest import ForwardNest
from convgrad.plan.gemm.constants import PACK_ONCE_LINES, PACK_TOGETHER
from convgrad.plan.gemm.cuts import _output_block, max_tiles, parts_of
from convgrad.plan.gemm.schedule import (
    ALONG,
    CHAIN,
    LINE,
    OUTPUT_BLOCK,
    PART,
    SEGMENT,
    TABLES,
    TASK,
)
from convgrad.plan.gemm.spec import GemmPlan
from convgrad.plan.kernels import FAMILIES, KERNELS
from convgrad.plan.kn2row.schedule import TABLES as PRODUCTS_TABLES
from convgrad.plan.kn2row.spec import Kn2rowPlan
from convgrad.plan.machine import ISAS, Machine
from convgrad.plan.passes import dense_view, plan, plans, tables
from convgrad.plan.stencils import grouped_schedule
from convgrad.plan.stencils.grouped import GroupedStencilPlan
from convgrad.plan.stencils.spatial import SpatialStencilPlan
from convgrad.plan.tables import Schedule
from convgrad.plan.tiling import SIDE
from convgrad.spec.geometry import Conv
from convgrad.spec.problem import Problem
from tests.support.classes import CLASSES, draw
from tests.support.forward_problems import LIES, MIXED, ROLES, AnyPlan, posed
from tests.support.tiers import tiers

LARGE = (
    "FWD_D f32 NXC mb1ic16ih100oc16oh100kh70ph35",
    "BWD_D f32 NCX mb1ic16ih100oc16oh100kh70ph35",
    "FWD_D bf16 NXC mb1ic1ih100oc1oh100kh70ph35",
    "BWD_D f32 NXC mb2ic64ih100oc64oh50kh70sh2ph35",
    "FWD_D f16 NXC g16mb1ic16ih100oc16oh100kh70ph35",
    "deconv FWD_D f32 NXC mb1ic16ih100oc16oh400kh70sh4ph33",
    "BWD_D f32 NXC mb1ic3ih100oc16oh100kh60ph30",
)
ORDINARY = (
    "mb8ic64ih56oc64oh56kh3ph1",
    "mb8ic64ih56oc256oh56kh1ph0",
    "mb8ic128ih28oc256oh14kh3sh2ph1",
    "g96mb8ic96ih112oc96oh56kh3sh2ph1",
)
THREADS = (1, 2, 8)
TABLE_BYTES = 64 << 10
CALLS = 40_000  # of functions, built-in ones too: some milliseconds; taps times positions are 49,000,000
ORDINARY_CALLS = 22_000  # a few milliseconds
PROBLEMS = 20  # of a class


def planned(one: Problem, isa: str, threads: int) -> tuple[ForwardNest, AnyPlan, Schedule]:
    """Return a dense problem's view as the plan's kernel sees it, its plan, its tables."""
    view = dense_view(one)
    chosen = plan(one, view, Machine(ISAS[isa]), threads)
    assert isinstance(chosen, AnyPlan)
    return FAMILIES[chosen.spec.body].nest(view), chosen, tables(one, view, chosen)


def most_rows(view: ForwardNest, chosen: GemmPlan) -> dict[str, int]:
    """Return how many rows tables may have: parts of each axis are cut by its slabs, each phase of it."""
    slabs = [ceil(axis.extent / size) for axis, size in zip(view.axes, chosen.output_block, strict=True)]
    phases = [max(part.positions.step for part in axis.parts) for axis in view.axes]
    parts = sum(
        len(axis.parts) + phase * (many - 1) for axis, phase, many in zip(view.axes, phases, slabs, strict=True)
    )
    return {"tasks": chosen.tasks, "output_blocks": sum(slabs), "parts": parts}


def most_rows_of_products(view: ForwardNest, chosen: Kn2rowPlan) -> dict[str, int]:
    """Return the same for kn2row, whose last axis has phases instead of parts."""
    *axes, last = view.axes[chosen.spec.line :]
    *slabs, ends = (ceil(axis.extent / size) for axis, size in zip([*axes, last], chosen.output_block, strict=True))
    blocks = view.order.blocks_a_line
    return {
        "tasks": chosen.tasks, "output_blocks": sum(slabs), "inner_blocks": ends, "phases": ends * len(last.phases),
        "parts": sum(len(one.parts) + len(one.phases) * (many - 1) for one, many in zip(axes, slabs, strict=True)),
        "segments": blocks, "chains": blocks + 1,
    }  # fmt: skip


def assert_short(view: ForwardNest, chosen: AnyPlan, made: Schedule) -> None:
    """Assert that tables have no more rows than axes explain, and are all there is."""
    if isinstance(chosen, SpatialStencilPlan):  # as tests/engines/test_spatial_stencil.py has them
        assert len(made.tables["parts"]) <= sum(len(axis.parts) for axis in view.axes)
        return
    if isinstance(chosen, Kn2rowPlan):
        assert set(made.tables) - {"paths"} == {*TABLES.columns, *PRODUCTS_TABLES.columns}
        for name, most in most_rows_of_products(view, chosen).items():
            assert len(made.tables[name]) <= most, (name, most)
        return
    widths = {"tasks": len(TASK.columns), "output_blocks": len(OUTPUT_BLOCK.columns), "parts": len(PART.columns)}
    if chosen.packed_once:
        widths["packing"] = len(LINE.columns)
        met = view.groups * prod(axis.inputs for axis in view.axes)
        assert len(made.tables["packing"]) <= PACK_ONCE_LINES + met // PACK_TOGETHER
    assert set(made.tables) - {"paths"} == set(widths)
    for name, most in most_rows(view, chosen).items():
        rows, width = made.tables[name].shape
        assert rows <= most, (name, rows, most)
        assert width == widths[name], name
    assert made.table_bytes == sum(table.nbytes for table in made.tables.values())
    assert len([name for name in made.numbers if name.startswith("axis")]) == len(ALONG.columns) * len(view.axes)
    assert all(np.ndim(number) == 0 for number in made.numbers.values())


def calls_of(one: Problem, threads: int) -> int:
    """Return how many functions are called while a problem is planned, and its tables are made."""
    count = 0

    def seen(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        view = dense_view(one)
        tables(one, view, plan(one, view, Machine(ISAS["avx512"]), threads))
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.every(4)
@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("line", LARGE)
def test_a_large_kernel_is_planned_in_little(line: str, threads: int) -> None:
    one = problem(line)
    for isa in ISAS:
        view, chosen, made = planned(one, isa, threads)
        assert_short(view, chosen, made)
        assert made.table_bytes < TABLE_BYTES, (line, isa)
    assert calls_of(one, threads) < CALLS


@pytest.mark.parametrize("layout", ["NXC", "NCX"])
@pytest.mark.parametrize("role", ["FWD_D", "BWD_D", "BWD_W"])
def test_an_ordinary_layer_is_planned_in_little(role: str, layout: str) -> None:
    for layer in ORDINARY:
        one = problem(f"{role} f32 {layout} {layer}")
        _, calls = calls_of(one, 2), calls_of(one, 2)  # the first may meet what a process does once
        assert calls < ORDINARY_CALLS, layer


@pytest.mark.parametrize(
    "line",
    [
        "FWD_D f32 NXC mb1ic3iw1oc{0}00ow1kw1",
        "FWD_D f32 NXC mb1ic1iw{0}oc8ow{0}kw3pw1",
        "BWD_D f32 NXC g2mb1ic2iw{0}oc2ow1kw1sw{0}pw0",
        "BWD_D f32 NXC mb1ic2iw{0}oc16ow1kw1sw{0}pw0",
    ],
)
def test_no_extent_takes_more_calls(line: str) -> None:
    """Panels of a million channels and phases of a large stride are counted, not listed."""
    few, many = (calls_of(problem(line.format(extent)), 2) for extent in (2_000, 100_000))
    assert many <= few + ORDINARY_CALLS // 2


@pytest.mark.parametrize("layout", ["NXC", "NCX"])
@pytest.mark.parametrize("role", ["FWD_D", "BWD_D"])
def test_threads_share_uneven_work(role: str, layout: str) -> None:
    """Of 3 images, and of 41 channels in panels of 32, one of two threads would compute two thirds."""
    _, chosen, made = planned(problem(f"{role} f32 {layout} mb3ic41ih29oc41oh29kh5ph2"), "avx512", 2)
    tasks = dict(zip(TASK.columns, made.tables["tasks"].T, strict=True))
    assert isinstance(chosen, GemmPlan)
    assert chosen.output_block[-3] != 2
    assert len(set(tasks["panels"])) == 1
    assert chosen.parts[1] == 1 or chosen.parts[2] > 1


@pytest.mark.parametrize(("layout", "results"), [("NCX", 1), ("NXC", 1), ("NXC", 4), ("NCX", 4)])
def test_scratch_of_many_channels(layout: str, results: int) -> None:
    """Few results of one position meet 4 million channels: no more is packed than the weights of a vector."""
    one = problem(f"FWD_D f32 {layout} mb1ic4000000iw1oc{results}ow1kw1pw0")
    for isa, lanes in (("avx512", 16), ("avx2", 8)):
        _, chosen, made = planned(one, isa, 2)
        neighbours = results == 1 or layout == "NXC"
        most = (0 if neighbours else 4 * 4_000_000 * lanes) + (1 << 20)
        assert made.scratch_bytes < most, chosen


@pytest.mark.parametrize("line", LARGE[:2])
def test_what_planning_takes_grows_no_faster_than_axes(line: str) -> None:
    """Kernel and image twice as long along both axes: 16 times as many pairs of a tap and a position."""
    small, large = (problem(text) for text in (line, line.replace("100", "200").replace("kh70ph35", "kh140ph70")))
    (*_, less), (*_, more) = (planned(one, "avx512", 1) for one in (small, large))
    assert more.table_bytes < 2.5 * less.table_bytes
    assert calls_of(large, 1) < 3 * calls_of(small, 1)


@pytest.mark.every(2)
@pytest.mark.parametrize("channels", [(1, 1), (16, 16), (64, 2), (16, 1)])
@pytest.mark.parametrize("role", ["FWD_D", "BWD_D"])
def test_many_taps_on_few_positions(role: str, channels: tuple[int, int]) -> None:
    """Each output position of a forward is a part of its own, and planning calls no function for each part."""
    src, dst = channels
    for kernel in (3000, 30_000):
        one = problem(f"{role} f32 NCX mb1ic{src}iw9oc{dst}ow{kernel + 8}kw{kernel}pw{kernel - 1}")
        assert_short(*planned(one, "avx512", 2))
        assert calls_of(one, 2) < CALLS


def test_a_long_row_has_tables_of_its_edges() -> None:
    one = problem("BWD_D f32 NXC mb1ic16iw100000oc16ow100000kw255pw127")
    for threads in THREADS:
        view, chosen, made = planned(one, "avx512", threads)
        assert_short(view, chosen, made)
        assert made.table_bytes < TABLE_BYTES
        assert calls_of(one, threads) < CALLS


@tiers("name", list(CLASSES), every=7)
def test_tables_are_as_long_as_axes(name: str) -> None:
    rng = np.random.default_rng(95)
    for number, conv in enumerate(islice(draw(CLASSES[name], rng, 1 << 26), PROBLEMS)):
        assert isinstance(conv, Conv)
        one = posed(conv, ROLES[number % 2], number % 3 == 0, MIXED[number % 9], LIES[number % 4])
        assert_short(*planned(one, list(ISAS)[number % 3], THREADS[number // 2 % 3]))


@pytest.mark.parametrize(("layouts", "channels", "taps"), [("NCX:OIX", 512, 49), ("NXC:XIO", 512, 49), ("NCX", 600, 1)])
def test_taps_are_channels_where_dst_has_one_position(layouts: str, channels: int, taps: int) -> None:
    """Not if a tap has three chains: nodes of the tree would then add others than those of the specified order."""
    view = dense_view(problem(f"BWD_D f32 {layouts} mb4ic64ih7oc{channels}oh1kh7"))
    assert (view.n, view.taps) == (64 * taps, 49 // taps)


def test_lists_of_runs_are_as_long_as_taps() -> None:
    """What a tile reads is listed once for all tiles of a box: a kernel's taps, each in blocks, are all."""
    for line in LARGE:
        one = problem(line)
        view, chosen, made = planned(one, "avx512", 2)
        listed = made.numbers["b_at"] - made.numbers["chains_at"]
        blocks = view.order.blocks_a_line
        run = grouped_schedule.SEGMENT if isinstance(chosen, GroupedStencilPlan) else SEGMENT
        assert listed <= (view.taps * blocks + 2) * (CHAIN.bytes + run.bytes) + 128, line


@pytest.mark.parametrize("role", ["FWD_D", "BWD_D", "BWD_W"])
def test_help_is_asked_for_where_it_helps(role: str) -> None:
    """A plan for more threads is never the slower one, and the same where there is too little to share."""
    alone = 0
    for layout, channels, extent in product(("NXC", "NCX"), (8, 32), (4, 8, 16)):
        one = problem(f"{role} f32 {layout} mb1ic{channels}ih{extent}oc{channels}oh{extent}kh3ph1")
        single, *others = (plan(one, dense_view(one), Machine(ISAS["avx512"]), threads) for threads in THREADS)
        for chosen in others:
            same = replace(chosen, rejected=single.rejected) == single
            assert chosen.time_ms < single.time_ms or same, (layout, channels, extent)
            alone += same
    assert 0 < alone < 24


@pytest.mark.parametrize("role", ["FWD_D", "BWD_D"])
def test_large_copies_are_not_made(role: str) -> None:
    """A is packed once only if its copy needs at most as much memory as scratch of other plans may."""
    for batch, once in ((8, True), (64, False)):
        one = problem(f"{role} f32 NCX mb{batch}ic512ih56oc512oh56kh3ph1")
        _, chosen, made = planned(one, "avx512", 2)
        assert isinstance(chosen, GemmPlan)
        assert chosen.packed_once == once
        assert made.packed_bytes == once * batch * (512 + 16) * 56 * 56 * 4  # a line more per position


def test_a_stride_of_one_position_has_no_effect() -> None:
    one = problem("FWD_D f32 NCX mb2ic64ih3iw8oc64oh1ow8kh1kw1sh3ph0")
    rows, columns = one.geometry.axes
    huge = replace(one, geometry=replace(one.geometry, axes=(replace(rows, stride=1 << 60), columns)))
    found = [
        tables(each, dense_view(each), plan(each, dense_view(each), Machine(ISAS["avx512"]), 1)) for each in (one, huge)
    ]
    assert found[0].numbers == found[1].numbers


BLOCKS = {  # of micro-tiles of six rows, by the bytes of the cache and the wanted number of blocks
    ("mb1ic8ih13oc16oh13kh3ph1", 1 << 20, 1): (1, 1, 13, 13),  # in the cache: not rounded up to whole micro-tiles
    ("mb1ic512ih2iw64oc16oh2ow64kh3kw3ph1pw1", 1 << 18, 1): (1, 1, 1, 36),  # two rows are cut too
    ("mb1ic64ih64oc16oh64kh1", 1 << 15, 1): (1, 1, 1, 36),  # the only axis, so that its room is not doubled
    ("mb1ic8id3ih4iw400oc16od3oh4ow400kd1kh3kw3ph1pw1", 1 << 20, 12): (1, 1, 1, 400),  # planes and rows suffice
    ("mb1ic8id3ih4iw400oc16od3oh4ow400kd1kh3kw3ph1pw1", 1 << 20, 16): (1, 1, 1, 204),  # twice as many with two cuts
    ("mb1ic1024iw4096oc16ow4096kw1", 1 << 10, 1): (1, 1, 1, 24),  # at most 16 MiB of A: at least four micro-tiles
}


@pytest.mark.parametrize(("line", "l2_bytes", "wanted"), BLOCKS)
def test_sizes_of_output_blocks(line: str, l2_bytes: int, wanted: int) -> None:
    one, machine = problem(f"FWD_D f32 NXC {line}"), Machine(ISAS["avx2"], l2_bytes=l2_bytes)
    view = dense_view(one)
    kernels = [each.spec for each in plans(one, view, machine, 1) if type(each) is GemmPlan]
    spec = next(spec for spec in kernels if spec.mr == 6 and not spec.collects)
    assert _output_block(view, machine, spec, wanted, len(view.axes) - 1) == BLOCKS[line, l2_bytes, wanted]


@pytest.mark.parametrize("isa", ["amx", "avx512", "avx2", "neon"])
@pytest.mark.parametrize("line", ["f32 NXC mb15ic64id9oc16od7kd3pd0", "bf16 NXC mb13ic64id8oc33od8kd3pd1"])
@tiers("step", [7], long=[1])
def test_no_region_has_more_micro_tiles_than_the_maximum(step: int, line: str, isa: str) -> None:
    """A line of 7 positions may take two micro-tiles of 4, where a longer one of 8 takes one; 8 comes with 7."""
    one = problem(f"FWD_D {line}")
    view, every = dense_view(one), plans(one, dense_view(one), Machine(ISAS[isa]), 1)
    chosen = [plan.spec for plan in every if type(plan) is GemmPlan]
    specs = {(spec.amx_tiles, spec.padded): spec for spec in chosen}.values()
    blocks = list(product(*(sorted({1, 2, ceil(axis.extent / 2), axis.extent}) for axis in view.axes)))
    for spec, mr, block in islice(product(specs, (4, 6, 8, 12, 15, 24), blocks), 0, None, step):
        tall = replace(spec, mr=mr)
        for padded in {False, spec.padded}:
            axes = [parts_of(axis, size, padded) for axis, size in zip(view.axes, block, strict=True)]
            for region in product(*({*parts.count.tolist()} for parts in axes)):
                besides = [size < prod(block) for size in block]  # as plans have them, also for the last, smaller block
                heights = [tall.tiling(count, beside=each) for count, each in zip(region, besides, strict=True)]
                many = [prod(region) // count * tiles for count, (_, tiles, _) in zip(region, heights, strict=True)]
                assert max(many) <= max_tiles(view, block, tall)


def test_calls_of_planning_do_not_grow_with_the_stride() -> None:
    """A data gradient has as many phases as the stride is long, but few of them are cut differently."""
    assert calls_of(problem("BWD_D f32 NXC mb1ic16iw80001oc16ow5kw20001sw20000pw0"), 2) < CALLS


@pytest.mark.every(5)
@pytest.mark.parametrize("isa", ["avx512", "neon"])
@pytest.mark.parametrize("line", ["g4mb1ic512ih28oc4oh28kh3ph1", "mb1ic1iw4000000oc32ow4000kw1sw1000pw0", *ORDINARY])
def test_a_plan_names_every_kernel_that_it_does_not_take(line: str, isa: str) -> None:
    """Some kernels support a problem, but none of their micro-tiles or blocks fits it."""
    for role in ("FWD_D", "BWD_D"):
        _, chosen, _ = planned(problem(f"{role} f32 NXC {line}"), isa, 16)
        told = {rejected.strategy.partition(":")[0] for rejected in chosen.rejected} | {chosen.strategy}
        assert told == {kernel.name for kernel in KERNELS["dst"]}


def test_blocks_of_kn2row_have_room_for_their_outputs() -> None:
    """With a thousand outputs per input position, each thread took 24 MB."""
    _, _, schedule = planned(problem("BWD_D f32 NXC mb1ic1iw3000000oc32ow3000kw1sw1000pw0"), "avx512", 16)
    assert schedule.scratch_bytes < 16 << 20


@pytest.mark.parametrize(
    ("layer", "is_tall"), [("ih14iw16oh14ow16kh1kw1", True), ("ih14iw16oh14ow16kh3kw3ph1pw1", False)]
)
def test_tiles_of_amx_share_those_of_b(layer: str, is_tall: bool) -> None:
    """Micro-tiles of 16 rows use each tile of B twice only if they take two lines; a 1x1 kernel has one line."""
    _, chosen, made = planned(problem(f"FWD_D bf16 NXC mb1ic1024oc256{layer}"), "amx", 1)
    assert isinstance(chosen, GemmPlan)
    assert chosen.spec.amx_tiles
    rows = made.tables["parts"][:, PART.columns.index("mr")]
    assert (max(rows) > SIDE) == is_tall
