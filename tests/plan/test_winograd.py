"""The arguments of Winograd's stages."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from convgrad.plan.machine import ISAS, Machine
from convgrad.plan.passes import dense_strides, winograd_plan
from convgrad.plan.winograd.schedule import CALL, arguments, schedules
from convgrad.plan.winograd.spec import spec_of
from tests.support.winograd_problems import DIRECTIONS, posed

LINES = {"mb2ic32ih9oc33oh9kh3ph1": 1, "mb130ic32ih4oc32oh4kh3ph1": 2}  # and the stages of their weight gradients


@pytest.mark.parametrize(("line", "direction"), list(product(LINES, DIRECTIONS)))
def test_a_stage_has_all_arguments(line: str, direction: str) -> None:
    """Each number except the addresses of a call, exactly once."""
    one, isa = posed(line, "2x2", direction=direction), ISAS["avx2"]
    plan: Any = winograd_plan(one, Machine(isa), 2)
    given = dict(zip((*one.operands, "out"), map(plan.slices.strides, dense_strides(one)), strict=True))
    stages = schedules(spec_of(one, isa, given, plan), given, plan)
    assert len(stages) == (LINES[line] if direction == "BWD_W" else 2)
    for spec, made, _ in stages:
        record = arguments(spec)
        assert len(set(record.columns)) == len(record.columns)
        assert {*record.columns} - {*made.numbers} == {*CALL.columns}
        assert {*made.numbers} <= {*record.columns}
