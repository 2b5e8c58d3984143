"""Every kernel gives the bits of the specified order: a table of problems, crossed with the ways to run a plan.

A row of ``plan_rows`` is a problem and the kernel that it is about. An axis is a choice that must not matter: the
instruction set, layouts, strides, guard pages, threads, the cache, the cut of the work, types, and the end of a sum.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from convgrad import engines
from convgrad.engines import pool
from convgrad.engines.llvm import isas
from convgrad.formats import FORMATS
from convgrad.functional.call import prepare
from convgrad.plan.gemm.spec import POSITIONS_GEMM, TRANSPOSED, GemmPlan, GemmSpec
from convgrad.plan.kn2row.spec import KN2ROW
from convgrad.plan.machine import ISAS, Isa, Machine
from convgrad.plan.passes import dense_view, plans
from convgrad.plan.recipe import SPATIAL
from convgrad.plan.split_k.recipe import SplitKPlan
from convgrad.plan.stencils.grouped import GROUPED_STENCIL
from convgrad.plan.stencils.spatial import SPATIAL_STENCIL
from convgrad.spec.geometry import Conv
from convgrad.spec.layouts import from_canonical
from convgrad.spec.ordered import evaluate_in_order
from convgrad.spec.problem import Problem
from tests.engines.guarded import Placed, lying, run_guarded
from tests.engines.plan_rows import KERNELS, PAIRED, Row, rows
from tests.support.classes import ALL_TYPES
from tests.support.engine_helpers import HOST, Array, empty, made, modelled, plans_for, run_plan
from tests.support.forward_problems import PROBLEMS, ROLES, along, plans_of, posed, recut
from tests.support.hash_problems import operands_of, shape_of, values
from tests.support.helpers import assert_same_bits
from tests.support.pairs import Way, covering
from tests.support.tiers import tiers

pytestmark = [
    pytest.mark.skipif(not HOST, reason="no generated kernels run here"),
    pytest.mark.usefixtures("eight_cores"),
]

AXES = {
    "operand": ALL_TYPES,
    "output": ALL_TYPES,
    "strides": ("dense", "turned", "random", "gaps after lines", "gaps after images", "zero"),
    "cut": range(6),
    "threads": (1, 2, 3, 8),
    "layouts": ("NXC XIO", "NCX OIX", "NXC OIX", "NCX XIO"),
    "end": ("", "onto", "relu", "onto, relu"),
    "isa": (*HOST, "fused", "flushed", *(isa.name for isa in isas.host_isas() if isa.pairs)),  # others have pairs
    "cache": (1 << 10, 1 << 14, 1 << 20),
    "guard": ("after", "before"),
    "transposed": (False, True),
    "infinite": (False, True),
    "subnormal": (False, True),
}
DEALT = {True: 18, False: 6}  # ways of a row of any layout, and of others, in which all plans are run
ROWS = list(rows())
Case = tuple[Row, int]  # and the number of a way
COVERING = list(covering(AXES)) if HOST else []
FEW = 3  # ways of a kernel in the quick tier, each of which compiles a kernel: an axis has at most six choices


def dealt() -> Iterator[list[Way]]:
    """Yield the ways of each kernel, with the choices that the kernel before did not meet first.

    Kernels that share code are next to one another. Choices meet by chance, for each kernel others.
    """
    rng, left = random.Random(0), {name: list(some) for name, some in AXES.items()}
    for _ in KERNELS:
        decks = {}
        for name, some in AXES.items():
            others = [choice for choice in some if choice not in left[name]]
            met = (left[name] + rng.sample(others, len(others)))[:FEW]
            left[name] = [choice for choice in some if choice not in met]
            decks[name] = rng.sample((met * FEW)[:FEW], FEW)
        yield [{name: deck[number] for name, deck in decks.items()} for number in range(FEW)]


def quick_cases() -> Iterator[tuple[Row, Way]]:
    """Yield each kernel with its ways, and its rows in turn."""
    for kernel, ways in zip(KERNELS, dealt(), strict=True) if HOST else ():
        some = [row for row in ROWS if row.kernel == kernel]
        for number, way in enumerate(ways):
            yield some[number * 5 % len(some)], way


DRAWN = list(quick_cases())
WAYS = [*COVERING, *(way for _, way in DRAWN)]
QUICK = [(row, len(COVERING) + number) for number, (row, _) in enumerate(DRAWN)]
LONG = [(row, number * 5 % len(COVERING)) for row in ROWS for number in range(DEALT[row.any_layout] if HOST else 0)]


def problem_in(row: Row, way: Way) -> Problem:
    """Return the problem of a row with the types, the layouts and the end of a way."""
    one, types = row.problem, (way["operand"], way["output"])
    if row.any_layout and one.solves_for == "weights":
        data, weights = way["layouts"].split()
        one = replace(one, layouts=(data, data, weights))
    elif row.any_layout:
        assert isinstance(one.geometry, Conv)
        one = posed(one.geometry, one.solves_for, way["transposed"], types, way["layouts"], bias=True)
    activation = "relu" if "relu" in way["end"] and one.solves_for in ("dst", "src") else ""
    return replace(
        one, operand_format=FORMATS[types[0]], output_format=FORMATS[types[1]], accumulate="onto" in way["end"],
        activation=activation,
    )  # fmt: skip


def strides_of(array: Array, name: str, seed: int) -> tuple[int, ...]:
    """Return strides for an array: rows and images backwards, with gaps, repeated along axes, or any."""
    if name == "random":
        return lying(np.random.default_rng(seed), array, strided=True)
    if name == "turned":
        return tuple(step if axis == 1 else -step for axis, step in enumerate(array.strides))
    if name == "zero":
        axes = {seed % (array.ndim + 1)} if seed % (array.ndim + 1) < array.ndim else {*range(array.ndim)}
        return tuple(0 if axis in axes else step for axis, step in enumerate(array.strides))
    strides, step = [0] * array.ndim, array.itemsize
    for number, axis in enumerate(sorted(range(array.ndim), key=array.strides.__getitem__)):
        strides[axis] = step
        step *= array.shape[axis]
        if name == "gaps after " + {0: "lines", array.ndim - 2: "images"}.get(number, ""):
            step += (3 + number) * array.itemsize
    return tuple(strides)


def isa_of(name: str) -> Isa:
    return ISAS[name] if name in ISAS else modelled(ISAS[HOST[-1]], name)


def cut_in(way: Way, plan: Any, view: Any) -> list[Any]:
    """Return a plan, and the same one cut in another way, on the threads of a way."""
    threads, cut = way["threads"], way["cut"]
    if isinstance(plan, SplitKPlan):
        first = (1 + cut % 2, 1, 1, 1) if plan.strategy == "depthwise" else plan.parts[:-1]
        return [plan, replace(plan, parts=(*first, (1, 2, 3, 8, 100, 2)[cut]), threads=max(2, threads))]
    others = list(recut(plan, view, threads))
    found = [plan, others[cut * len(others) // len(AXES["cut"])]]
    return found + [replace(each, packed_once=True) for each in found[cut % 2 :] if may_pack_once(each)]


def may_pack_once(plan: Any) -> bool:
    """Return whether all of A may be packed before the first task."""
    return type(plan) is GemmPlan and plan.spec.packs_once


def placed(row: Row, way: Way, number: int) -> tuple[Problem, list[Array], Placed, Array]:
    """Return a problem, operands and output with the strides of a way, among guard pages, and old values."""
    one, at_end, bits = problem_in(row, way), way["guard"] == "after", np.random.PCG64(number)
    operands = [
        Placed(array, strides_of(array, way["strides"] if array.ndim > 2 else "dense", number + at), at_end).array
        for at, array in enumerate(operands_of(one, bits, way["subnormal"]))
    ]
    old = values(shape_of(one, one.output), one.output_format, bits)
    if way["infinite"]:  # its products with padding are not computed
        last = operands[len(operands) > 1]
        last[(number % 2 - 1,) * last.ndim] = (np.nan, np.inf)[number // 2 % 2]
    strides = "dense" if way["strides"] == "zero" else way["strides"]
    return one, operands, Placed(empty(one), strides_of(empty(one), strides, number), at_end), old


def assert_way(row: Row, way: Way, number: int, all_plans: bool) -> None:
    """Assert the bits of a row in a way: of a plan that a number deals, or of all. Memory around out is not written."""
    one, operands, out, old = placed(row, way, number)
    expected = np.ascontiguousarray(evaluate_in_order(one, operands, old))
    view, found = plans_of(one, operands, out.array, isa_of(way["isa"]), way["threads"], way["cache"])
    of_kernel = [plan for plan in found if KERNELS[row.kernel](plan)]
    own = way["strides"] == "dense" and one.operand_format is row.problem.operand_format
    assert of_kernel or not own or (way["isa"] in HOST) == (row.kernel == PAIRED), "the row has plans of its kernel"
    chosen = of_kernel or found
    runs: list[Any] = [partial(run_guarded, at_end=way["guard"] == "after"), run_plan][: way["threads"]]
    for plan in chosen if all_plans else [chosen[number * 13 % len(chosen)]]:
        for each, run in product(cut_in(way, plan, view), runs):
            out.array[...] = old if one.accumulate else np.nan
            run(each, one, operands, out.array)
            assert_same_bits(np.ascontiguousarray(out.array), expected, (row.words, way, str(each)))
    assert out.intact()


@tiers("row, number", QUICK, ids=[f"{row.kernel}-{row.words}-{number}" for row, number in QUICK])
def test_bits_of_a_plan(row: Row, number: int) -> None:
    assert_way(row, WAYS[number], number, all_plans=False)


@pytest.mark.long
@tiers("row, number", LONG, ids=[f"{row.kernel}-{row.words}-{number}" for row, number in LONG])
def test_bits_of_all_plans(row: Row, number: int) -> None:
    assert_way(row, WAYS[number], number, all_plans=True)


def test_the_pool_is_used() -> None:
    one, operands = made("BWD_W f32 NXC mb4ic64ih28oc64oh28kh3ph1")
    plan = plans_for(one, operands, empty(one), ISAS[HOST[0]], 3)[0]
    assert plan.threads == 3
    run_plan(plan, one, operands, empty(one))
    assert pool.size() >= 2


@pytest.mark.parametrize("number", range(2))
def test_the_stride_of_one_channel_is_of_no_meaning(number: int) -> None:
    """Even where it is that of positions, so that the terms of neighbouring taps seem to follow one another."""
    one = posed(PROBLEMS["1 and 1 channels"], ROLES[number], False, ("f32", "f32"), "NCX OIX")
    size = shape_of(one, one.operands[0])[-1]
    apart = np.random.default_rng(number).integers(-4, 5, (3, size, 3)).astype(np.float32)
    data = np.lib.stride_tricks.as_strided(apart, (3, 1, size), (apart.strides[0], 12, 12))
    weights = np.arange(1, 5, dtype=np.float32).reshape(1, 1, 4)
    expected = np.ascontiguousarray(evaluate_in_order(one, [data, weights]))
    for plan in plans_of(one, [data, weights], empty(one), ISAS[HOST[0]])[1][number::6]:
        got = run_plan(plan, one, [data, weights], empty(one))
        assert_same_bits(np.ascontiguousarray(got), expected, str(plan))


@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
def test_bias_gradients_without_positions(data_format: str) -> None:
    shape = from_canonical((3, 67, 3, 0), data_format)
    prepared = prepare("BiasAddBackward", (np.ones(shape, np.float32),), {"data_format": data_format})
    out = np.full(67, np.nan, np.float32)
    assert engines.execute(prepared.problem, prepared.operands, out, 2).engine == "numpy"
    assert_same_bits(out, np.zeros(67, np.float32), shape)


@pytest.mark.parametrize("stride", [2, 3, 4, 5])
def test_positions_are_transposed_up_to_a_stride_of_four(stride: int) -> None:
    for positions, isa in product((2, 16, 37), HOST):
        one = posed(Conv(2, 1, 19, 18, (along(positions, 1, stride),)), "dst", False, ("f32", "f32"), "NCX OIX")
        found = plans(one, dense_view(one), Machine(ISAS[isa]), 1)
        operands = [plan.spec.a for plan in found if isinstance(plan, GemmPlan)]
        assert {a.stride for a in operands if a.contiguous == SPATIAL} == {stride if stride < 5 else 1}


def test_quick_cases_meet_all_choices() -> None:
    """Each kernel meets three choices of an axis, or all; two kernels next to one another meet all."""
    met = {(row.kernel, *choice) for row, number in QUICK for choice in WAYS[number].items()}
    for name, some in AXES.items():
        of_kernels = [{choice for choice in some if (kernel, name, choice) in met} for kernel in KERNELS]
        assert {len(each) for each in of_kernels} == {min(FEW, len(some))}
        assert all(one | other == {*some} for one, other in pairwise(of_kernels))


@pytest.mark.long
def test_rows_have_all_kernels() -> None:
    """All kernels of forward and backward data, and all that their specifications distinguish."""
    specs = list[Any]()
    for number, row in enumerate(row for row in ROWS if row.problem.solves_for in ("dst", "src")):
        one, operands, out, _ = placed(row, COVERING[number % len(COVERING)], number)
        specs += [plan.spec for plan in plans_of(one, operands, out.array, ISAS[HOST[0]])[1]]
    assert {spec.body for spec in specs} == {POSITIONS_GEMM, TRANSPOSED, GROUPED_STENCIL, SPATIAL_STENCIL, KN2ROW}
    specs = [spec for spec in specs if isinstance(spec, GemmSpec)]
    for axes in zip(*((spec.a.contiguous, spec.b.contiguous, spec.out) for spec in specs), strict=True):
        assert len(set(axes)) >= 3
    for name in ("single_vector", "bias_per_row", "masked"):
        assert {getattr(spec, name) for spec in specs} == {True, False}, name
    for operand in ("a", "b"):
        assert {getattr(spec, operand).in_place for spec in specs} == {True, False}, operand
