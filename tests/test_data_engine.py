"""Forwards and data gradients give the bits of the specified order: of any kind, layout, type, plan and cut."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from convgrad.plan.data.recipe import DataPlan
from convgrad.plan.machine import ISAS
from data_problems import DEALT, LIES, MIXED, OPERATORS, PROBLEMS, ROLES, Small, recut, small, unlike
from engine_helpers import HOST, run_plan
from guarded import run_guarded
from helpers import assert_same_bits
from tiers import tiers

THREADS = (1, 2, 3, 8)
CASES = list(product(PROBLEMS, ROLES))
NUMBERED = {case: at % DEALT for at, case in enumerate(CASES)}  # few numbers, as each has kernels of its own

pytestmark = pytest.mark.skipif(not HOST, reason="no generated kernels run here")


def assert_plan(one: Small, plan: DataPlan, at_end: bool = True) -> None:
    """Assert the bits of one plan, whose scratch is NaN before and among guard pages."""
    out = one.fresh()
    run_guarded(plan, one.problem, one.operands, out, at_end)
    assert_same_bits(np.ascontiguousarray(out), np.ascontiguousarray(one.expected), (one.words, str(plan)))


def dealt(one: Small, number: int, threads: int = 1) -> DataPlan:
    """Return the plan that a number deals to a problem, instruction set by instruction set."""
    found = unlike(one.plans(ISAS[HOST[number // 3 % len(HOST)]], threads), number % 2)
    return found[number // 2 % len(found)]


@pytest.mark.parametrize(("name", "role"), CASES)
def test_every_kind_of_problem(name: str, role: str) -> None:
    """A plan of each, and that plan cut in other ways."""
    number = NUMBERED[name, role]
    one = small(name, role, number)
    plan = dealt(one, number)
    assert_plan(one, plan)
    for cut in recut(plan, one.view()):
        assert_plan(one, cut, at_end=False)


@pytest.mark.long
@pytest.mark.parametrize(("name", "role", "way"), list(product(PROBLEMS, ROLES, range(9))))
def test_every_plan(name: str, role: str, way: int) -> None:
    one = small(name, role, way * 5 + CASES.index((name, role)))
    for isa in HOST:
        for number, plan in enumerate(one.plans(ISAS[isa], l2_bytes=1 << 12 + 2 * way % 9)):
            assert_plan(one, plan)
            for cut in list(recut(plan, one.view()))[number % 12 :: 12]:
                assert_plan(one, cut)


@pytest.mark.usefixtures("eight_cores")
@tiers("name, role, threads", list(PROBLEMS), ROLES, THREADS, every=7)
def test_threads_change_nothing(name: str, role: str, threads: int) -> None:
    number = NUMBERED[name, role]
    one = small(name, role, number)
    plan = dealt(one, number, threads)
    for cut in (plan, *list(recut(plan, one.view(), threads))[1::3]):
        got = run_plan(cut, one.problem, one.operands, one.fresh())
        assert_same_bits(got, np.ascontiguousarray(one.expected), (one.words, str(cut)))


def test_the_table_is_wide() -> None:
    """Every mixture of types, every layout and operator is met, old values too; and all that kernels tell apart."""
    met = [small(*case, number) for case, number in NUMBERED.items()]
    assert {(one.problem.operand_format.name, one.problem.output_format.name) for one in met} == set(MIXED)
    assert {one.words.rsplit(", ", 1)[-1] for one in met} == set(LIES)
    assert {one.problem.operator for one in met} == set(OPERATORS.values())
    assert {one.problem.accumulate for one in met} == {True, False}
    specs = [dealt(one, number).spec for one, number in zip(met, NUMBERED.values(), strict=True)]
    for name in ("data", "weights", "out"):
        assert len({getattr(spec, name) for spec in specs}) >= 3, name
    for name in ("narrow", "in_place", "lanes_in_place", "exchanged", "pairs"):
        assert {getattr(spec, name) for spec in specs} == {True, False}, name
    assert {str(spec.isa) for spec in specs} == set(HOST)
