"""The derivative that the specification gives of a problem is the row of docs/double_backward.md: the same bits."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from convgrad.functional.call import prepare, solve
from convgrad.notation import problem
from convgrad.spec.derivatives import COTANGENT, ZEROS, derivative
from convgrad.spec.operators import OPERATORS, Operator
from tests.spec.derivative_rows import Call, names_of
from tests.support.helpers import assert_same_bits, operands_of, random_case
from tests.support.tiers import tiers


@tiers(
    "op, seeds",
    [(op, range(number % 3, number % 3 + 1)) for number, op in enumerate(OPERATORS)],
    long=product(OPERATORS, [range(3), range(100, 130)]),
)
def test_each_derivative_is_its_row(op: Operator, seeds: range) -> None:
    for seed in seeds:
        rng = np.random.default_rng([23, seed, OPERATORS.index(op)])
        case = replace(random_case(rng, op, axes=1 + seed % 4), dtype=None)
        operands = tuple(map(np.asarray, operands_of(case, "normal", seed)))
        call = Call(op, operands, case.attributes)
        prepared = prepare(op.name, operands, case.attributes)
        taken = list(prepared.taken.values())
        v = rng.standard_normal(prepared.problem.output_shape).astype(case.format.dtype)
        for number, name in enumerate(prepared.taken):
            found = derivative(prepared.problem, number)
            known = {COTANGENT: v, ZEROS: np.zeros(taken[number].shape, v.dtype), **dict(enumerate(taken))}
            given = [known[operand] for operand in found.operands]
            got = given[0] if found.problem is None else solve(found.problem, given)
            row = names_of(op)[[port.name for port in op.operands].index(name)]
            assert_same_bits(got, call.derivative(row, v), (op.name, name, seed))


@pytest.mark.parametrize("direction", ["FWD_D", "FWD_B", "BWD_D", "BWD_W"])
def test_the_derivative_by_the_cotangent_is_the_operator_itself(direction: str) -> None:
    """But for a bias, which does not depend on it: what is linear in x, and its derivative in v, have one transpose."""
    one = problem(f"{direction} bf16 NXC g2mb2ic4iw9oc6ow5kw3sw2pw1")
    for number, tensor in enumerate(one.operands):
        found = derivative(one, number)
        assert found.problem is not None
        again = derivative(found.problem, found.operands.index(COTANGENT)).problem
        if tensor != "bias":
            plain = {t: layout for t, layout in zip(one.operands, one.layouts, strict=False) if t != "bias"}
            assert again == replace(one, operands=tuple(plain), layouts=(*plain.values(), one.layouts[-1]))
        else:
            assert again is not None
            assert again.solves_for == "bias_add"
