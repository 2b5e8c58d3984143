"""Pairs of bf16 terms in forwards and data gradients: the same bits, whatever the data, and loops without spills."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from convgrad.engines.llvm import jit
from convgrad.engines.llvm.driver import module_of
from convgrad.formats import F32
from convgrad.notation import problem as problem_of
from convgrad.plan.forward.recipe import ForwardPlan
from convgrad.plan.machine import ISAS
from convgrad.plan.pairs import MIN_EXPONENT_SUM
from convgrad.spec.problem import canonical_shape
from tests.engines.test_compile import data_spec, inner_loops
from tests.engines.test_pairs import assert_sharp, cancelling, with_pairs
from tests.support.engine_helpers import HOST, empty, run_plan
from tests.support.forward_problems import plans_of
from tests.support.tiers import tiers

PROBLEMS = (
    "FWD_D bf16 NXC:XIO mb2ic34ih9oc40oh9kh3ph1n", "FWD_D bf16 NCX:OIX mb2ic33ih9oc40oh9kh3ph1n",
    "FWD_D bf16 NCX:OIX mb3ic35ih12oc29oh12kh1n", "FWD_D bf16 NXC:OIX mb2ic19ih13oc70oh7kh3sh2ph1n",
    "BWD_D bf16 NXC:XIO mb2ic40ih9oc37oh9kh3ph1n", "BWD_D bf16 NXC:OIX g2mb2ic40ih13oc74oh7kh3sh2ph1n",
)  # fmt: skip


@tiers("line", PROBLEMS, every=2)
def test_the_limit_is_sharp(line: str) -> None:
    """Sums of least exponents of 142 run by pairs, of 141 do not; were they taken so, there would be other bits."""
    problem = replace(problem_of(line), output_format=F32)  # which keeps what is lost
    summed = {"dst": 1, "src": 0}[problem.solves_for]  # the axis of weights, (o, i, taps), that terms run along
    shapes = [canonical_shape(problem.geometry, tensor) for tensor in problem.operands]
    for low, there in ((MIN_EXPONENT_SUM // 2, True), (MIN_EXPONENT_SUM // 2 - 1, False)):
        data = np.moveaxis(cancelling((*np.delete(shapes[0], 1), shapes[0][1]), low, (129, 128)), -1, 1)
        rest = np.delete(shapes[1], summed)
        weights = np.moveaxis(cancelling((*rest, shapes[1][summed]), MIN_EXPONENT_SUM // 2, (129, -130)), -1, summed)
        operands = [data, weights]
        _, (plain, *_) = plans_of(problem, operands, empty(problem), ISAS[HOST[-1]])
        wanted = run_plan(plain, problem, operands, empty(problem)).tobytes()
        _, found = plans_of(problem, operands, empty(problem), with_pairs("flushed", PROBLEMS.index(line) % 2))
        plans = [plan for plan in found if isinstance(plan, ForwardPlan) and plan.spec.step == 2]
        plans.sort(key=lambda plan: plan.spec.mr * plan.spec.nr)  # small ones compile soon
        assert_sharp(plans[:2], problem, operands, wanted, there)


@pytest.mark.parametrize(("rows", "vectors"), ISAS["avx512bf16"].micro_tiles_of(2))
@pytest.mark.parametrize("place", [False, True])
def test_the_inner_loop_of_pairs_is_ideal(rows: int, vectors: int, place: bool) -> None:
    """As many dot products as sums, none of them spilt."""
    isa = ISAS["avx512bf16"]
    spec = replace(data_spec("avx512bf16", rows, vectors, fmt="bf16"), step=2, a_in_place=place)
    text = jit.assembly(module_of(spec), isa).replace("vdpbf16ps", "vfmadd.dpbf16ps")
    for height in spec.mr_sizes:
        pairs, *_ = inner_loops(text, f"tile{height}_{vectors}")
        assert sum("dpbf16ps" in line for line in pairs) == height * vectors
        assert not [line for line in pairs if "(%rsp)" in line and "zmm" in line], (height, "spills")
