"""Operands that are read where they lie: the specified bits, and no byte beside what is given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from convgrad import engines
from convgrad.notation import problem
from convgrad.plan.backward_weights.recipe import Plan
from convgrad.plan.machine import Machine
from convgrad.spec.ordered import evaluate_in_order
from convgrad.spec.problem import Problem
from tests.engines.guarded import Placed, run_guarded
from tests.support.engine_helpers import HOST, ISAS, Array, empty, made, plans_for
from tests.support.helpers import assert_same_bits
from tests.support.tiers import tiers

LINES = (
    "BWD_W f32 NXC mb3ic1ih20oc32oh20kh5ph2",
    "BWD_W f32 NXC mb9ic3ih11oc64oh11kh3ph1",
    "BWD_W f32 NXC mb2ic3iw700oc16ow700kw7pw3",  # two blocks of a row
    "BWD_W f32 NXC mb5ic4ih23iw9oc48oh12ow9kh3kw3sh2ph1pw1",
    "BWD_W f32 NXC mb4ic2ih19iw40oc16oh19ow36kh3kw3dw1ph1pw0",
    "BWD_W f32 NXC g2mb3ic4ih9oc64oh9kh3ph1",
    "BWD_W f32 NXC mb4ic16ih20oc3oh20kh1ph0",  # one tap, one panel of rows
    "BWD_W f32 NXC mb4ic2ih20oc64oh20kh1ph0",
)


def in_place(one: Problem, operands: list[Array], isa: str, l2_bytes: int) -> list[Plan]:
    plans = plans_for(one, operands, empty(one), ISAS[isa], l2_bytes=l2_bytes)
    return [plan for plan in plans if plan.spec.b.in_place and not plan.spec.groups_in_lanes]


@tiers("line, isa", LINES, HOST, every=3)
def test_the_specified_bits_and_nothing_beside(line: str, isa: str) -> None:
    one, operands = made(line)
    expected = evaluate_in_order(one, operands)
    for at_end, turn, l2_bytes in ((True, 1, 1 << 12), (False, 1, 1 << 20), (True, -1, 1 << 20), (False, -1, 1 << 12)):
        turns = [(turn, 1, *(turn for _ in a.shape[2:])) for a in operands]
        strides = [tuple(np.multiply(a.strides, by).tolist()) for a, by in zip(operands, turns, strict=True)]
        out_at = Placed(empty(one), empty(one).strides, at_end)
        given = [Placed(a, s, at_end).array for a, s in zip(operands, strides, strict=True)]
        out = out_at.array
        plans = in_place(one, given, isa, l2_bytes)
        assert plans, "nothing is read in place"
        for plan, parts in ((plan, parts) for plan in plans[:6:2] for parts in (1, 2)):
            out[...] = np.nan
            cut = replace(plan, parts=(*plan.parts[:-1], parts), threads=parts)
            run_guarded(cut, one, given, out, at_end)
            assert_same_bits(np.ascontiguousarray(out), expected, (line, at_end, turn, str(cut)))
        assert out_at.intact()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    ("line", "there"),
    [
        (LINES[0], True),
        (LINES[0].replace("oc32", "oc33"), False),  # no whole vectors: the last would run over
        (LINES[0].replace("oc32", "oc128"), False),  # positions far apart,
        ("BWD_W f32 NXC g16mb8ic48ih56oc1024oh56kh3ph1", False),  # of all groups together
        (LINES[0].replace("f32", "bf16"), False),
    ],
)
def test_what_is_read_in_place(line: str, there: bool, isa: str) -> None:
    """As plans say for made-up machines."""
    assert engines.plan_of(problem(line), Machine(ISAS[isa], l2_bytes=1 << 20), 1).spec.b.in_place == there
