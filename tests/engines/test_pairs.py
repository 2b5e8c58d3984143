"""Pairs of bf16 terms: the same bits as single terms, whatever the data; counted by how they were taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import ml_dtypes
import numpy as np
import pytest

from convgrad.engines.llvm import jit
from convgrad.engines.llvm.driver import module_of
from convgrad.engines.llvm.execute import executable_of
from convgrad.formats import F32
from convgrad.plan.machine import ISAS, Isa
from convgrad.plan.pairs import MIN_EXPONENT_SUM
from convgrad.plan.recipe import Chosen
from convgrad.spec.ordered import evaluate_in_order
from convgrad.spec.problem import Problem
from tests.engines.pair_hashes import ALWAYS, NEVER
from tests.engines.test_compile import inner_loops, spec_of
from tests.support.engine_helpers import HOST, Array, empty, made, modelled, plans_for, run_plan
from tests.support.helpers import assert_same_bits
from tests.support.tiers import tiers


@cache
def with_pairs(word: str, wide: int = 0) -> Isa:
    """An instruction set of this machine with a word for pairs, or a wide one as AVX512_BF16 is, which LLVM splits.

    "flushed" is what the instruction does.
    """
    ours = ISAS[HOST[-1]]
    if not wide or ours.triple != ISAS["avx512bf16"].triple:
        return modelled(ours, word)
    return replace(ISAS["avx512bf16"], name=f"sixteen lanes, pairs {word}", features=ours.features, pairs=word)


def cancelling(shape: Sequence[int], exponent: int, significands: tuple[int, int], stride: int = 1) -> Array:
    """Values of bf16 of one biased exponent that alternate along the last axis, the odd ones' sign too."""
    turn = np.broadcast_to(np.arange(shape[-1]) // stride % 2, shape)
    found = np.where(turn, significands[1], significands[0])
    words = (found < 0) << 15 | exponent << 7 | abs(found) - 128
    return words.astype(np.uint16).view(ml_dtypes.bfloat16)


def taken(plan: Chosen, problem: Problem, operands: Sequence[Array], limit: int) -> tuple[bytes, list[int]]:
    """The bytes of a result, and how many panels were taken in pairs and how many not, under a limit."""
    out = empty(problem)
    one = executable_of(plan, problem, operands, out)
    one = replace(one, arguments=type(one.arguments).from_buffer_copy(one.arguments), free=[])
    one.arguments[one.names.index("min_sum")] = limit
    one.execute(operands, out)
    return np.ascontiguousarray(out).tobytes(), one.paths.tolist()


def assert_sharp(
    plans: Sequence[Chosen], problem: Problem, operands: Sequence[Array], wanted: bytes, there: bool
) -> None:
    """Assert that plans give some bytes: in pairs where these have all, and where they have not, not in pairs."""
    assert plans
    for plan in plans:
        bits, paths = taken(plan, problem, operands, MIN_EXPONENT_SUM)
        assert bits == wanted, plan
        assert (paths[0] > 0) == there != (paths[1] > 0)
        bits, paths = taken(plan, problem, operands, ALWAYS)
        assert (bits == wanted) == there, plan
        assert taken(plan, problem, operands, NEVER) == (wanted, [0, sum(paths)])


PROBLEMS = (
    "BWD_W bf16 NXC:XIO mb3ic28ih17oc35oh17kh3ph1n", "BWD_W bf16 NXC:XIO mb2ic28ih31oc64oh16kh3sh2ph1n",
    "BWD_W bf16 NXC:XIO mb3ic29ih9oc33oh9kh1n", "BWD_W bf16 NXC:XIO mb2ic3ih20oc20oh20kh3ph1n",
    "BWD_W bf16 NXC:XIO g32mb2ic32ih20oc32oh20kh3ph1n", "BWD_W bf16 NXC:XIO mb2ic7ih21oc9oh15kh4dh1n",
)  # fmt: skip


@tiers("line", PROBLEMS, every=5)
def test_the_limit_is_sharp(line: str) -> None:
    """Sums of least exponents of 142 run by pairs, of 141 do not; were they taken so, there would be other bits."""
    problem, (src, dst) = made(line)
    problem = replace(problem, output_format=F32)  # which keeps what is lost
    for low, there in ((MIN_EXPONENT_SUM // 2, True), (MIN_EXPONENT_SUM // 2 - 1, False)):
        # 129 * 129 - 128 * 130 = 1: a sum of two terms of the least size that there is
        operands = [
            cancelling(src.shape, low, (129, 128), problem.geometry.axes[-1].stride),
            cancelling(dst.shape, MIN_EXPONENT_SUM // 2, (129, -130)),
        ]
        plain = plans_for(problem, operands, empty(problem), ISAS[HOST[-1]])[0]
        wanted = run_plan(plain, problem, operands, empty(problem)).tobytes()
        found = plans_for(problem, operands, empty(problem), with_pairs("flushed", PROBLEMS.index(line) % 2))
        found.sort(key=lambda plan: -plan.spec.micro_tile.mr * plan.spec.micro_tile.nr)  # small ones compile soon
        kinds = {plan.spec.compact: plan for plan in found if plan.spec.k_per_add == 2}
        assert_sharp(list(kinds.values()), problem, operands, wanted, there)


@pytest.mark.every(3)
@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("shape", ISAS["avx512bf16"].micro_tiles)
def test_the_inner_loop_of_pairs_is_ideal(shape: tuple[int, int], compact: bool) -> None:
    """As many dot products as sums, none of them spilt."""
    rows, vectors = shape
    isa = ISAS["avx512bf16"]
    text = jit.assembly(
        module_of(replace(spec_of("avx512bf16", rows, vectors, fmt="bf16"), k_per_add=2, compact=compact)), isa
    )
    loops = inner_loops(text.replace("vdpbf16ps", "vfmadd.dpbf16ps"), f"tile{vectors}")
    pairs, *_, singles = loops
    assert sum("dpbf16ps" in line for line in pairs) == rows * vectors
    assert sum("vfmadd231ps" in line for line in singles) == rows * vectors
    assert not [line for line in pairs if "(%rsp)" in line], "spills"


@pytest.mark.skipif(not HOST, reason="no generated kernels run here")
@pytest.mark.parametrize("channels", ["ic8oc17", "ic3oc17", "g16ic16oc16"])
def test_positions_far_apart_are_no_pairs(channels: str) -> None:
    """Their distance in bytes, modulo 2**64, may be anything: packing would write beyond its panel."""
    for stride in (2**31, 2**59 - 1, 2**59 - 2**30):
        one, operands = made(f"BWD_W bf16 NXC {channels}mb2iw2ow2kw2sw{stride}pw{stride}")
        expected = evaluate_in_order(one, operands)
        found = plans_for(one, operands, empty(one), with_pairs("flushed"))
        assert not any(plan.in_pairs for plan in found)
        assert_same_bits(run_plan(found[0], one, operands, empty(one)), expected, found[0])
