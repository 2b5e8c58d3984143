"""Fitted numbers: each stands once, with the run that gave it."""

from __future__ import annotations

import ast
import importlib

from convgrad.plan.constants import BY_HAND, Count, Rate
from tests.support.places import BENCHMARKS, ROOT

PLAN = ROOT / "src" / "convgrad" / "plan"
DERIVED = {0.0, 0.5, 1.0, 1e6, 64.0}  # halves, nanoseconds of a millisecond, a made-up machine's multiply-adds


def fitted() -> dict[str, Rate | Count]:
    """Return all fitted numbers of the shared constants and of the rooms, by name."""
    rows: dict[str, Rate | Count] = {}
    for path in PLAN.rglob("constants.py"):
        module = importlib.import_module(".".join(path.relative_to(PLAN.parents[1]).with_suffix("").parts))
        own = {name: value for name, value in vars(module).items() if isinstance(value, Rate | Count)}
        assert rows.keys().isdisjoint(own), module
        rows |= own
    return rows


def test_every_fitted_number_says_where_it_is_from() -> None:
    rows = fitted()
    assert len(rows) > 100
    for name, row in rows.items():
        assert min(len(row.unit), len(row.about)) > 0, name
        assert row.run == BY_HAND or (BENCHMARKS / "results" / row.run).exists(), name


def test_plans_use_no_number_without_a_name() -> None:
    for path in PLAN.rglob("*.py"):
        if path.name != "constants.py":
            found = {n.value for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant)}
            assert {value for value in found if isinstance(value, float)} <= DERIVED, path
