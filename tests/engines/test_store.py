"""Sums become output wherever it lies: by lanes, by rows, by taps or by none, and no byte beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from convgrad.engines.llvm import isas
from convgrad.formats import FORMATS
from convgrad.plan.machine import ISAS, Isa
from convgrad.plan.split_k.recipe import SplitKPlan
from convgrad.plan.stencils.spatial import SpatialStencilPlan
from convgrad.spec.ordered import evaluate_in_order
from convgrad.spec.problem import Problem
from tests.support.engine_helpers import HOST, Array, empty, made, plans_for, run_plan
from tests.support.forward_problems import plans_of
from tests.support.helpers import assert_same_bits
from tests.support.tiers import tiers

LINES = (
    "BWD_W f32 NXC mb2ic17ih5oc33oh5kh3ph1",
    "BWD_W f32 NCX mb2ic33ih4oc5oh4kh1ph0",
    "BWD_W f32 NXC mb1ic5ih9oc18oh4kh6ph0",  # more taps than lanes, no multiple
    "BWD_W f32 NCX mb2ic3ih4iw20oc20oh2ow20kh3kw5ph0pw2",  # tiles of several taps
    "BWD_W f32 NCX mb3ic2ih3iw24oc20oh2ow20kh2kw5ph0pw0",  # each of them writes a line
    "BWD_W f32 NCX g19mb2ic19ih5oc19oh5kh5ph2",  # groups in lanes, some taps beside others
    "BWD_W f32 NCX g18mb2ic36ih5oc54oh5kh3ph1",
    "BWD_W f32 NXC g3mb2ic9ih5oc51oh5kh2ph0",
)
OUTPUTS = (("f32", False), ("f32", True), ("bf16", False), ("f16", True))
ORDERS = {  # of output, channels and taps: what is next to what, innermost last
    "taps": lambda n: (0, 1, *range(2, n)),
    "source channels": lambda n: (0, *range(2, n), 1),
    "destination channels": lambda n: (*range(2, n), 1, 0),
    "taps, the other way": lambda n: (1, 0, *range(2, n)),
}


def output(one: Problem, order: tuple[int, ...], fill: Array, gap: int) -> tuple[Array, Array]:
    """Return memory full of NaN and a canonical view of some of it: the axes in an order, a gap between its items."""
    shape = fill.shape
    memory = np.full((*(shape[a] for a in order[:-1]), shape[order[-1]] * gap + 2), np.nan, fill.dtype)
    out = memory[..., 1:-1:gap].transpose(np.argsort(order))
    out[...] = fill
    return memory, out


def different(plans: list[SplitKPlan]) -> list[SplitKPlan]:
    """Return the cheapest plan of each way to go through the output."""
    return list(
        {
            (p.strategy, p.operands, p.spec.micro_tile.nr, p.spec.micro_tile.taps > 1): p for p in reversed(plans)
        }.values()
    )


@tiers("line, kind, isa", LINES, OUTPUTS, HOST, every=47)
def test_wherever_the_output_lies(line: str, kind: tuple[str, bool], isa: str) -> None:
    form, accumulate = kind
    one, operands = made(line)
    one = replace(one, output_format=FORMATS[form], accumulate=accumulate)
    old = np.ascontiguousarray(empty(one))
    if accumulate:
        old[...] = np.random.default_rng(len(line)).standard_normal(old.shape)
    expected = evaluate_in_order(one, operands, old)
    for name, order in ORDERS.items():
        for gap in (1, 3):
            memory, out = output(one, order(old.ndim), old, gap)
            for plan in different(plans_for(one, operands, out, ISAS[isa])):
                out[...] = old
                run_plan(plan, one, operands, out)
                assert_same_bits(np.ascontiguousarray(out), expected, (line, name, gap, str(plan)))
                out[...] = np.nan
                assert np.isnan(memory.astype(np.float32)).all(), (name, gap, str(plan))


@tiers("groups, layout, isa, first", (1, 40), ("NCX", "NXC"), isas.host_isas(), range(2), every=19)
def test_one_or_two_vectors_may_be_rounded_by_one_instruction(groups: int, layout: str, isa: Isa, first: int) -> None:
    """Instructions flush denormal numbers and keep the payloads of NaN, so neither may reach them.

    By every second kind of plans.
    """
    channels = max(2, groups)
    one, operands = made(f"FWD_D bf16 {layout} g{groups}mb1ic{channels}ih1iw70oc40oh1ow70kh1kw1ph0pw0")
    data, weights = operands
    weights[:, :-1], weights[:, -1:] = 0, 1  # every output is an input of the last channel of its group
    found: dict[tuple[Any, ...], Any] = {}
    for each in plans_of(one, operands, empty(one), isa)[1]:
        spec = each.spec
        kind = spec.k_per_add, each.operands, getattr(spec, "nr", 0), getattr(spec, "collects", False)
        found[type(each), *kind] = each
    assert len(found) >= 2
    if layout == "NCX":
        assert any(isinstance(each, SpatialStencilPlan) for each in found.values())
        assert groups > 1 or any(collects for *_, collects in found)
    for bits in (0x3F80, 0x7F80, 0xFFA1, 0x8001):  # 1, infinity, NaN, and a denormal number
        data.view(np.uint16)[0, channels - groups :, 0, 37] = bits
        expected = np.ascontiguousarray(evaluate_in_order(one, operands, empty(one)))
        for each in [*found.values()][first::2]:
            assert_same_bits(run_plan(each, one, operands, empty(one)), expected, (bits, str(each)))
