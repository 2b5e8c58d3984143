"""Every family of kernels reads and writes operands, biases and old values of every format and stride, exactly."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import pytest

from convgrad.formats import BF16
from convgrad.plan.kernels import KERNELS
from convgrad.spec.geometry import Conv
from convgrad.spec.winograd.algorithms import algorithm_of
from convgrad.spec.winograd.filtering import FILTERINGS
from tests.engines.operand_table import (
    LAYOUTS,
    Case,
    Group,
    case_of,
    families,
    groups,
    isa_of,
    problem_of,
    rows,
    run_group,
    way_of,
    winograd_plan,
)
from tests.support.engine_helpers import HOST

pytestmark = pytest.mark.skipif(not HOST, reason="no generated kernels run here")

GROUPS = groups()
LONG = [[*some] for _, some in groupby(GROUPS, lambda group: (group.family.name, group.operand))]
QUICK = GROUPS[::331]
BIASED = [group for group in GROUPS if group.family.name == "Winograd 4x4 for dst" and group.output is group.operand]


def test_every_family_has_rows() -> None:
    """Each candidate of the planner, each size of Winograd's tiles, each way to divide its work, each GPU kernel."""
    wanted, met, seen = {family.kernel for family in families()}, set[str](), Counter[str]()
    tiles, ways = set(), set()
    for group in GROUPS:
        seen[group.family.name] += 1
        if seen[group.family.name] > len(LAYOUTS) and (group.family.kernel in met or group.operand is not BF16):
            continue
        if group.family.is_winograd:
            one = problem_of(group, met_by(group), False)
            assert isinstance(one.geometry, Conv)
            tiles |= set(algorithm_of(one.geometry, one.algorithm).axes)
            ways.add(way_of(one, winograd_plan(one, isa_of(group))))
        if group.family.kernel not in met and case_of(group, isa_of(group)):
            met.add(group.family.kernel)
    assert met == wanted > {kernel.name for kernels in KERNELS.values() for kernel in kernels}
    assert tiles == {one for one in FILTERINGS.values() if one.of_weights}
    assert ways == {"by rows", "by results", "at once", "by blocks", "by units"}


def met_by(group: Group) -> Case:
    case = case_of(group, isa_of(group))
    assert case, f"no case of the table is of the family: {group}"
    return case


@pytest.mark.every(5)
@pytest.mark.parametrize("group", QUICK, ids=str)
def test_a_sample_of_rows(group: Group) -> None:
    assert bool(run_group(group, rows(group)[-1:])) == bool(case_of(group, isa_of(group)))


@pytest.mark.parametrize("group", BIASED[1::2], ids=str)
def test_biases_of_winograd(group: Group) -> None:
    """In the format of the operands, with any stride."""
    plain = [row for row in rows(group) if not row.accumulate and not row.activation]
    assert len(plain) == 6
    assert sum(run_group(group, plain).values()) == len(plain)


@pytest.mark.long
@pytest.mark.parametrize("some", LONG, ids=lambda some: str(some[0]))
def test_all_rows(some: list[Group]) -> None:
    done = Counter[str]()
    for group in some:
        done += run_group(group)
    assert sum(done.values()) == sum(len(rows(group)) for group in some if case_of(group, isa_of(group)))
