"""No byte outside operands, output and scratch is touched: random problems of every class among guard pages.

Each problem runs flush with the page behind and with the page before, in another process, which names it first.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from convgrad.plan.machine import ISAS
from convgrad.spec.ordered import evaluate_in_order
from tests.engines.guarded import CACHE_LINE, Guarded, Placed, run_guarded
from tests.support.children import run_program
from tests.support.engine_helpers import HOST, empty, made, plans_for, prepared_weights
from tests.support.forward_problems import OPERATORS
from tests.support.helpers import assert_same_bits
from tests.support.tiers import tiers

KINDS = {  # of problems: what a child has some of, and problems of a child of the quick tier and of the long one
    "gradients": (("scratch",), 5, 50),
    "data": (("strided", "accumulated", "with bias", *OPERATORS.values()), 4, 25),
    "tiles": (("strided", "scratch", "weights", "dst", "src"), 3, 25),
}
LONG = {"gradients": range(100, 200), "data": range(100, 160), "tiles": range(100, 160)}

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="protects pages as Linux does"),
    pytest.mark.skipif(not HOST, reason="no generated kernels run here"),
]


def children(seed: int, counts: dict[str, int]) -> dict[str, Counter[str]]:
    """Run so many problems of each kind in one other process; fail with the problem it died in."""
    isa = HOST[seed % len(HOST)]
    wanted = [f"{kind}:{count}" for kind, count in counts.items()]
    *_, last = run_program("tests.engines.guarded_problems", seed, *wanted, CONVGRAD_MAX_ISA=isa)
    return {kind: Counter(done) for kind, done in json.loads(last).items()}


def test_some_problems_among_guard_pages() -> None:
    counts = {kind: few for kind, (_, few, _) in KINDS.items()}
    found = children(0, counts)
    assert {kind: (done["problems"], done["placements"]) for kind, done in found.items()} == {
        kind: (count, 2 * count) for kind, count in counts.items()
    }


@pytest.mark.long
@pytest.mark.parametrize(("kind", "seed"), [(kind, seed) for kind in KINDS for seed in LONG[kind]])
def test_problems_among_guard_pages(kind: str, seed: int) -> None:
    there, _, count = KINDS[kind]
    done = children(seed, {kind: count})[kind]
    assert (done["problems"], done["placements"]) == (count, 2 * count)
    assert min(done[name] for name in there) > 0


@tiers("seed, isa", range(16), HOST, every=17)
def test_plans_of_weight_gradients(seed: int, isa: str) -> None:
    """Of one image at a time and of two, by caches of any size."""
    case, prepared = prepared_weights(seed)
    one = prepared.problem
    expected = evaluate_in_order(one, prepared.operands)
    for at_end in (False, True):
        placed = [Placed(a, a.strides, at_end) for a in (*prepared.operands, empty(one))]
        *operands, out = (each.array for each in placed)
        for plan in plans_for(one, operands, out, ISAS[isa], l2_bytes=1 << (10 + seed % 11))[::9]:
            for images in (1, 2):
                cut = replace(plan, parts=(*plan.parts[:-1], images))
                out[...] = np.nan
                run_guarded(cut, one, operands, out, at_end)
                assert_same_bits(np.ascontiguousarray(out), expected, (case, cut, at_end))
        assert placed[-1].intact()


@tiers("stride, kind, isa", (2, 3, 4), ("f32", "bf16", "f16"), HOST, every=7)
def test_weight_gradients_of_positions_with_a_stride(stride: int, kind: str, isa: str) -> None:
    """They are transposed in registers. No memory after the last position is read, nor before the first."""
    width = 16 * stride + 1
    one, operands = made(f"BWD_W {kind} NCX mb2ic19ih3iw{width}oc18oh3ow17kh1kw1sw{stride}ph0pw0")
    expected = evaluate_in_order(one, operands)
    for at_end in (False, True):
        placed = [Placed(a, a.strides, at_end) for a in (*operands, empty(one))]
        *given, out = (each.array for each in placed)
        for plan in plans_for(one, given, out, ISAS[isa])[::19]:
            assert "one by one" not in str(plan)
            out[...] = np.nan
            run_guarded(plan, one, given, out, at_end)
            assert_same_bits(np.ascontiguousarray(out), expected, (plan, at_end))
        assert placed[-1].intact()


def test_a_fault_is_told_with_its_problem() -> None:
    with pytest.raises(pytest.fail.Exception, match="SIGSEGV in an image too many"):
        children(0, {"beyond": 0})


@pytest.mark.parametrize("at_end", [True, False])
def test_a_byte_beside_an_array_is_seen(at_end: bool) -> None:
    placed = Placed(np.ones((3, 5), np.float16), (30, 4), at_end)
    assert placed.intact()
    gap = placed.memory.start + 2  # between two elements
    placed.memory.inside[gap] ^= 1
    assert not placed.intact()
    memory = Guarded(100, at_end, CACHE_LINE)
    assert memory.address % CACHE_LINE == 0
    assert memory.intact()
    memory.inside[memory.start + 100 if at_end else 100] ^= 1
    assert not memory.intact()
