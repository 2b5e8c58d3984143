"""Fitted numbers: each stands once, with the run that gave it."""

from __future__ import annotations

import ast

from convgrad.plan.constants import BY_HAND, fitted
from tests.support.places import BENCHMARKS, ROOT

PLAN = ROOT / "src" / "convgrad" / "plan"
DERIVED = {0.0, 0.5, 1.0, 1e6, 64.0}  # halves, nanoseconds of a millisecond, a made-up machine's multiply-adds


def test_every_fitted_number_says_where_it_is_from() -> None:
    rows = fitted()
    assert len(rows) > 40
    for name, row in rows.items():
        assert min(len(row.unit), len(row.about)) > 0, name
        assert row.run == BY_HAND or (BENCHMARKS / "results" / row.run).exists(), name


def test_plans_use_no_number_without_a_name() -> None:
    for path in PLAN.rglob("*.py"):
        if path.name != "constants.py":
            found = {n.value for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant)}
            assert {value for value in found if isinstance(value, float)} <= DERIVED, path
