"""Pairs of bf16 in forwards and data gradients: the bits of single terms, whatever the data; loops without spills."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from convgrad.engines.llvm import isas, jit
from convgrad.engines.llvm.driver import module_of
from convgrad.formats import BF16, F32
from convgrad.notation import problem as problem_of
from convgrad.plan.constants import PAIR_ADDS
from convgrad.plan.gemm.spec import GemmPlan, GemmSpec
from convgrad.plan.kn2row.spec import Kn2rowPlan
from convgrad.plan.machine import ISAS, Isa, Machine
from convgrad.plan.pairs import MIN_EXPONENT_SUM
from convgrad.plan.passes import dense_view, plan, plans
from convgrad.plan.recipe import CHANNELS, Operand
from convgrad.spec.geometry import Conv
from convgrad.spec.order import order_of
from convgrad.spec.problem import Problem, canonical_shape
from tests.engines.pair_hashes import KINDS, operands_of
from tests.engines.test_compile import data_spec, inner_loops
from tests.engines.test_pairs import assert_sharp, cancelling, taken, with_pairs
from tests.support.engine_helpers import HOST, Array, empty, lying, run_plan
from tests.support.forward_problems import AnyPlan, along, plans_of, posed, sums_of
from tests.support.tiers import tiers

DENSE = (
    "FWD_D bf16 NXC:XIO mb2ic36ih9oc40oh9kh3ph1n", "FWD_D bf16 NCX:OIX mb2ic29ih9oc40oh9kh3ph1n",
    "FWD_D bf16 NCX:OIX mb3ic27ih12oc29oh12kh1n", "FWD_D bf16 NXC:OIX mb2ic19ih13oc70oh7kh3sh2ph1n",
    "BWD_D bf16 NXC:XIO mb2ic40ih9oc36oh9kh3ph1n", "BWD_D bf16 NXC:OIX g2mb2ic40ih13oc72oh7kh3sh2ph1n",
)  # fmt: skip
GROUPED = (
    "FWD_D bf16 NXC:XIO g5mb2ic40ih9oc40oh9kh3ph1n", "BWD_D bf16 NXC:OIX g7mb2ic14ih13oc28oh7kh3sh2ph1n",
    "FWD_D bf16 NCX:OIX g4mb2ic24ih9oc28oh9kh3ph1n", "BWD_D bf16 NCX:XIO g9mb1ic90ih8oc54oh8kh3dh2ph2n",
    "FWD_D bf16 NXC:OIX g3mb2ic48ih12oc24oh6kh4sh2ph1n", "FWD_D bf16 NXC:XIO g40mb1ic80ih30oc160oh30kh5ph2n",
)  # fmt: skip
FEW = (
    "BWD_D bf16 NXC:XIO mb2ic3ih23oc29oh12kh7sh2ph3n", "BWD_D bf16 NXC:OIX mb2ic3ih16oc300oh8kh4sh2ph1n",
    "FWD_D bf16 NCX:OIX mb3ic36ih9oc3oh9kh3ph1n", "BWD_D bf16 NCX:XIO mb1ic2ih20oc64oh20kh5dh2ph4n",
    "FWD_D bf16 NCX:OIX mb2ic3ih40oc24oh20kh3sh2ph1n",
)  # fmt: skip
LINES = (*DENSE, *GROUPED, *FEW)
QUICK = (*DENSE[::2], GROUPED[0], FEW[1], FEW[-1])
LAYOUTS = ("NXC XIO", "NCX OIX", "NXC OIX", "NCX XIO")


def of_pairs(found: Sequence[AnyPlan], few: bool = True) -> list[AnyPlan]:
    """The plans of kernels of few channels, or all, that take pairs, the smallest first, which compile soon."""
    some = [plan for plan in found if plan.in_pairs]
    chosen = [plan for plan in some if not few or type(plan) is not GemmPlan]
    return sorted(chosen, key=sums_of)


def tile_of(plan: AnyPlan) -> GemmSpec:
    """The kernel of a plan's tiles."""
    assert isinstance(plan, GemmPlan | Kn2rowPlan)
    return plan.spec.product if isinstance(plan, Kn2rowPlan) else plan.spec


def without_pairs(problem: Problem, operands: Sequence[Array]) -> bytes:
    """A result of fused multiply-adds alone."""
    _, (plain, *_) = plans_of(problem, operands, empty(problem), ISAS[HOST[-1]])
    return run_plan(plain, problem, operands, empty(problem)).tobytes()


@pytest.mark.every(3)
@tiers("line", QUICK, long=[line for line in LINES if line not in QUICK])
def test_the_limit_is_sharp(line: str) -> None:
    """Sums of least exponents of 142 run by pairs, of 141 do not; were they taken so, there would be other bits."""
    problem = replace(problem_of(line), output_format=F32)  # which keeps what is lost
    summed = {"dst": 1, "src": 0}[problem.solves_for]  # the axis of weights, (o, i, taps), that terms run along
    shapes = [canonical_shape(problem.geometry, tensor) for tensor in problem.operands]
    apart = order_of(problem).chains  # the distance of the terms of a pair
    for low, there in ((MIN_EXPONENT_SUM // 2, True), (MIN_EXPONENT_SUM // 2 - 1, False)):
        data = np.moveaxis(cancelling((*np.delete(shapes[0], 1), shapes[0][1]), low, (129, 128), apart), -1, 1)
        rest = np.delete(shapes[1], summed)
        weights = np.moveaxis(
            cancelling((*rest, shapes[1][summed]), MIN_EXPONENT_SUM // 2, (129, -130), apart), -1, summed
        )
        operands = [lying(each, layout) for each, layout in zip((data, weights), problem.layouts, strict=False)]
        _, found = plans_of(problem, operands, empty(problem), with_pairs("flushed", LINES.index(line) % 2))
        chosen = of_pairs(found, few=line not in DENSE)[:2]
        assert_sharp(chosen, problem, operands, without_pairs(problem, operands), there)


def drawn(number: int) -> Problem:
    """A problem of small groups of an even number of channels that are summed, or of few results; any borders."""
    rng = np.random.default_rng([117, number])
    role, groups = ("dst", "src")[number % 2], int(rng.integers(2, 12))
    summed, results = groups * 2 * int(rng.integers(1, 9)), groups * int(rng.integers(1, 17))
    few = number % 3 == 2
    if few:
        groups, summed, results = 1, int(rng.integers(17, 300)), int(rng.integers(1, 4))
    axes = []
    for _ in range(int(rng.integers(1, 3))):
        kernel, stride, dilation = (int(rng.integers(1, most)) for most in (5, 4, 3))
        if few and role == "dst":
            stride = 1  # neighbours meet neighbours
        reach = (kernel - 1) * dilation
        pads = tuple(int(each) for each in rng.integers(0, reach + 2, 2))
        least = max(1, 1 - (reach - sum(pads)) // stride)
        axes.append(along(least + int(rng.integers(0, 12)), kernel, stride, dilation, pads, int(rng.integers(stride))))
    channels = (summed, results) if role == "dst" else (results, summed)
    output = ("f32", "bf16", "f16")[int(rng.integers(3))]
    layout = LAYOUTS[int(rng.integers(len(LAYOUTS)))]
    conv = Conv(int(rng.integers(1, 4)), groups, *channels, tuple(axes))
    return posed(conv, role, bool(rng.integers(2)), ("bf16", output), layout, bias=bool(rng.integers(2)))


SMALL = (11, 20)  # any bits, and denormals, which the instruction takes for zeros; their kernels are compiled soon


@tiers("number", SMALL, long=[number for number in range(400) if number not in SMALL])
def test_any_data_has_the_same_bits(number: int) -> None:
    """Tiny numbers, subnormal ones, infinities and NaN too, by what the instruction does and by two multiply-adds."""
    problem = drawn(number)
    given, _ = operands_of(problem, str(number), number // 2 % len(KINDS))
    operands = [lying(array, layout) for array, layout in zip(given, problem.layouts, strict=False)]
    wanted = without_pairs(problem, operands)
    word = with_pairs(("flushed", "fused")[number // 2 % 2], number % 2)
    for isa in (word, *(isa for isa in isas.host_isas() if isa.pairs)):
        _, found = plans_of(problem, operands, empty(problem), isa, 1 + number % 2)
        for one in of_pairs(found)[number % 3 :: 3][:1]:
            bits, paths = taken(one, problem, operands, MIN_EXPONENT_SUM)
            assert bits == wanted, (one, paths)


@tiers("first, isa", range(19), [isa for isa in isas.host_isas() if isa.pairs], every=19)
def test_sums_of_pairs_have_a_bias(first: int, isa: Isa) -> None:
    """Sums without one are rounded in another way."""
    for layout in LAYOUTS[:2]:
        problem = posed(Conv(1, 1, 32, 64, (along(20, 1),)), "dst", False, ("bf16", "bf16"), layout, bias=True)
        given, _ = operands_of(problem, layout, 0)
        operands = [lying(array, layout) for array, layout in zip(given, problem.layouts, strict=False)]
        _, found = plans_of(problem, operands, empty(problem), isa)
        for one in of_pairs(found, few=False)[first::19]:
            bits, (pairs, _) = taken(one, problem, operands, MIN_EXPONENT_SUM)
            assert pairs
            assert bits == without_pairs(problem, operands), one


def test_pairs_of_an_odd_group_are_not_taken() -> None:
    """The last K of a group has no other of its own group beside it."""
    for line, pairs in (("FWD_D bf16 NXC g4mb1ic20ih9oc16oh9kh3ph1n", False), (GROUPED[0], True)):
        problem = problem_of(line)
        operands = [np.zeros(canonical_shape(problem.geometry, tensor), BF16.dtype) for tensor in problem.operands]
        operands = [lying(array, layout) for array, layout in zip(operands, problem.layouts, strict=False)]
        _, found = plans_of(problem, operands, empty(problem), with_pairs("fused"))
        assert bool(of_pairs(found)) == pairs


@pytest.mark.parametrize(
    "line",
    [
        "FWD_D bf16 NXC mb2ic64ih56oc64oh56kh3ph1n", "BWD_D bf16 NXC mb2ic256ih14oc256oh14kh3ph1n",
        "BWD_W bf16 NXC mb2ic64ih56oc64oh56kh3ph1n", "FWD_D bf16 NXC g32mb4ic256ih28oc256oh28kh3ph1n",
        "BWD_D bf16 NXC mb2ic3ih224oc64oh112kh7sh2ph3n",
    ],
)  # fmt: skip
def test_slow_pairs_are_not_taken(line: str) -> None:
    """A pair that takes as long as four multiply-adds saves none; if it takes as long as one, it saves half."""
    problem, fast = problem_of(line), Machine(ISAS["avx512bf16"])
    for machine, step in ((fast, 2), (replace(fast, pair_adds=float(PAIR_ADDS)), 1)):
        assert plan(problem, dense_view(problem), machine, 1).spec.k_per_add == step


@tiers("channels", [8, 4, 16], every=3)
def test_pairs_are_half_as_many(channels: int) -> None:
    """A kernel of pairs beside that of single K, which adds in two places: inside and at borders."""
    isa = ISAS["avx512bf16"]
    problem = problem_of(f"FWD_D bf16 NXC g32mb2ic{32 * channels}ih14oc{32 * channels}oh14kh3ph1n")
    found = plans(problem, dense_view(problem), Machine(isa), 1)
    spec = max((tile_of(plan) for plan in of_pairs(found) if tile_of(plan).nr == 1), key=lambda each: each.mr)
    pairs, single = (_tile(each) for each in (spec, replace(spec, k_per_add=1)))
    added = [sum(word in line for line in pairs) for word in ("dpbf16ps", "vfmadd")]
    assert added == [sum("vfmadd" in line for line in single) // 2] * 2
    blocks = [block for block in re.split(r"^\.L\w+:", "\n".join(pairs), flags=re.MULTILINE) if "dpbf16ps" in block]
    lines = [line for block in blocks for line in block.splitlines()]
    assert sum("(%rsp)" in line and "zmm" in line for line in lines) <= (8 if channels == 8 else 0)


def _tile(spec: GemmSpec) -> list[str]:
    """The instructions of the highest tile."""
    text = jit.assembly(module_of(spec), spec.isa)
    body = text[text.index(f"\ntile{spec.mr}_{spec.nr}:") :]
    return body[: body.index("\n.Lfunc_end")].splitlines()


@pytest.mark.every(3)
@pytest.mark.parametrize(("rows", "vectors"), ISAS["avx512bf16"].micro_tiles_of(2))
@pytest.mark.parametrize("place", [False, True])
def test_the_inner_loop_of_pairs_is_ideal(rows: int, vectors: int, place: bool) -> None:
    """As many dot products as sums, none of them spilt."""
    isa = ISAS["avx512bf16"]
    spec = replace(data_spec("avx512bf16", rows, vectors, fmt="bf16"), k_per_add=2, a=Operand(CHANNELS, in_place=place))
    text = jit.assembly(module_of(spec), isa).replace("vdpbf16ps", "vfmadd.dpbf16ps")
    for height in spec.mr_sizes:
        pairs, *_ = inner_loops(text, f"tile{height}_{vectors}")
        assert sum("dpbf16ps" in line for line in pairs) == height * vectors
        assert not [line for line in pairs if "(%rsp)" in line and "zmm" in line], (height, "spills")
