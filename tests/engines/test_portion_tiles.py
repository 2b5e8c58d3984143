"""Micro-tiles of vectors for portions of two chains: nodes in registers or in memory, in any number of passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from convgrad.engines.llvm import isas
from convgrad.notation import problem as problem_of
from convgrad.plan.gemm.cost import rows_in_cache
from convgrad.plan.gemm.spec import GemmPlan
from convgrad.plan.machine import ISAS, Isa, Machine
from convgrad.plan.passes import dense_view, plan
from convgrad.plan.recipe import CHANNELS
from convgrad.plan.stencils.grouped import GroupedStencilPlan
from convgrad.spec.ordered import evaluate_in_order
from convgrad.spec.problem import Problem
from tests.engines.guarded import Placed, run_guarded
from tests.engines.test_tiles import CONVS, DATA, LAYOUTS, ROLES, TYPES, case_of
from tests.support.engine_helpers import HOST, Array, empty, modelled, run_plan
from tests.support.forward_problems import plans_of, posed
from tests.support.hash_problems import operands_of
from tests.support.helpers import assert_same_bits
from tests.support.tiers import tiers

pytestmark = pytest.mark.skipif(not HOST, reason="no generated kernels run here")

PASSES = (0, 1, 5, 16, 17)  # portions; a node has 16
ISA_NAMES = (*HOST, "fused", "flushed", *(isa.name for isa in isas.host_isas() if isa.pairs and not isa.tiles))


def isa_of(name: str) -> Isa:
    """An instruction set of this machine, or one with modelled pairs."""
    return ISAS[name] if name in ISAS else modelled(ISAS[HOST[-1]], name)


def of_portions(problem: Problem, operands: Sequence[Array], out: Array, isa: Isa) -> list[GemmPlan]:
    """A plan of each micro-tile of vectors that adds portions."""
    _, found = plans_of(problem, operands, out, isa)
    of_vectors = [plan for plan in found if isinstance(plan, GemmPlan) and not plan.spec.amx_tiles]
    return list({(plan.spec.mr, plan.spec.nr, plan.spec.k_per_add): plan for plan in of_vectors}.values())


@tiers("name, role, data, chains, isa", list(CONVS), ROLES, DATA, PASSES, ISA_NAMES, every=139)
def test_specified_bits(name: str, role: str, data: str, chains: int, isa: str) -> None:
    number = list(CONVS).index(name) + 3 * ROLES.index(role) + 5 * PASSES.index(chains) + DATA.index(data)
    problem, operands, old = case_of(name, role, TYPES[number % 3], data, number)
    expected = np.ascontiguousarray(evaluate_in_order(problem, operands, old))
    found = of_portions(problem, operands, old, isa_of(isa))
    assert found
    assert {plan.spec.chains for plan in found} == {2}
    for at, chosen in enumerate(found[number % len(found) :: 6]):
        out = Placed(old, old.strides, at % 2 == 0)
        if not problem.accumulate:
            out.array[...] = np.nan
        run_guarded(replace(chosen, pass_chains=chains), problem, operands, out.array, at % 2 == 0)
        assert_same_bits(np.ascontiguousarray(out.array), expected, (name, str(chosen)))
        assert out.intact()


@pytest.mark.parametrize("isa", ISA_NAMES)
def test_sums_of_no_terms_are_positive_zeros(isa: str) -> None:
    """An empty node is -0 in registers."""
    problem = posed(replace(CONVS["no tap"], dst_channels=64), "dst", False, TYPES[0], LAYOUTS[0], False, bias=False)
    operands = operands_of(problem, np.random.PCG64(1), subnormal=False)
    expected = np.ascontiguousarray(evaluate_in_order(problem, operands))
    assert (expected == 0).any()
    for chosen in of_portions(problem, operands, empty(problem), isa_of(isa))[::9]:
        out = run_plan(chosen, problem, operands, empty(problem))
        assert_same_bits(np.ascontiguousarray(out), expected, str(chosen))


def test_which_micro_tiles_hold_a_node() -> None:
    """Those whose three sums of each result fit: with pairs all, with fused multiply-adds in 16 registers some."""
    problem = problem_of("FWD_D bf16 NXC mb2ic64ih9oc96oh9kh3ph1n")
    operands = operands_of(problem, np.random.PCG64(1), subnormal=False)
    out = np.empty(problem.output_shape, problem.output_format.dtype).transpose(problem.output_order)
    for name, k_per_add, held in (
        ("avx512bf16", 2, {True}),
        ("avx512bf16", 1, {True, False}),
        ("avx2", 1, {True, False}),
    ):
        specs = [plan.spec for plan in of_portions(problem, operands, out, ISAS[name])]
        some = {spec.holds_node(spec.mr, spec.nr) for spec in specs if spec.k_per_add == k_per_add}
        assert some <= held
        assert (True in held) == (True in some) or k_per_add == 1


@pytest.mark.parametrize(
    ("line", "passes"),
    [
        ("FWD_D bf16 NXC mb2ic256ih14oc256oh14kh3ph1", True),  # a panel of 72 portions takes 288 KB
        ("FWD_D bf16 NXC mb2ic128ih14oc256oh14kh1ph0", False),  # four portions
        ("FWD_D bf16 NXC mb1ic512ih7oc256oh1kh7ph0", False),  # one position reads each panel once
    ],
)
def test_panels_are_read_from_the_first_cache(line: str, passes: bool) -> None:
    problem = problem_of(line)
    chosen = plan(problem, dense_view(problem), Machine(ISAS["avx512bf16"]), 1)
    assert isinstance(chosen, GemmPlan)
    panel = chosen.pass_chains * chosen.spec.pitch * chosen.spec.packed_k_bytes(chosen.spec.leaf_terms)
    assert 0 < panel <= Machine(ISAS["avx512bf16"]).l1_bytes if passes else panel == 0


@pytest.mark.parametrize("channels", [96, 500, 512, 1000, 1024, 2048, 3072])
@pytest.mark.parametrize("results", [10, 128])
def test_rows_in_place_stay_in_the_first_cache(channels: int, results: int) -> None:
    """Rows whose distance is a multiple of 4 KiB share a set of the cache, which has a line for 8 of them."""
    problem = problem_of(f"FWD_D f32 NXC mb2ic{channels}ih14oc{results}oh14kh1ph0")
    chosen = plan(problem, dense_view(problem), Machine(ISAS["avx512"]), 1)
    assert isinstance(chosen, GemmPlan)
    if chosen.spec.a.in_place and chosen.spec.a.contiguous == CHANNELS:
        assert chosen.spec.mr <= rows_in_cache(4 * channels)
    assert chosen.spec.mr <= 8 or channels % 1024 or not chosen.spec.a.in_place


@pytest.mark.parametrize("batch", [1, 4])
def test_lines_without_common_inputs_are_cut(batch: int) -> None:
    """A panel of a depthwise 1-D layer reads 128 bytes of a position; the other panels find its lines in the cache."""
    problem = problem_of(f"FWD_D f32 NXC g768mb{batch}ic768iw1024oc768ow1024kw4pw3")
    machine = Machine(ISAS["avx512"])
    chosen = plan(problem, dense_view(problem), machine, 2)
    assert isinstance(chosen, GroupedStencilPlan)
    *lines, positions = chosen.output_block
    assert set(lines) == {1}
    assert 2 * positions * 768 * 4 <= machine.l2_bytes / 4
