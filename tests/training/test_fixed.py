"""Operators that never vary, and those of convgrad: equal bits for threads, forks, instruction sets and formats."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from convgrad.torch.training.fixed import FIXED
from convgrad.torch.training.groups import ROWS
from convgrad.torch.training.row import OF_OPERATOR
from tests.support.children import HANG_S
from tests.support.places import ROOT
from tests.support.tiers import tiers
from tests.training.digests import made
from tests.training.fixed_cases import CASES

SETTINGS: list[dict[str, str]] = [
    {},  # what the processor has
    {"ATEN_CPU_CAPABILITY": "default", "CONVGRAD_MAX_ISA": "avx2"},
    {"ATEN_CPU_CAPABILITY": "avx2"},
]


def test_each_operator_has_a_case() -> None:
    assert set(CASES) == FIXED


def _digests(setting: dict[str, str], which: str) -> dict[str, list[str]]:
    """Return the hashes of all cases in a new process, or in this one if the setting is that of the processor."""
    if not setting:
        return made(which)
    environment = {**os.environ, **setting}
    command = [sys.executable, "-m", "tests.training.digests", which]
    found = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=HANG_S
    )
    return json.loads(found.stdout)


@tiers("tier", ["quick"], long=["long"])
def test_bits_never_vary(tier: str) -> None:
    found: dict[str, set[str]] = {}
    settings = zip(SETTINGS[:2], "01", strict=True) if tier == "quick" else [(setting, "long") for setting in SETTINGS]
    for setting, which in settings:
        for case, digests in _digests(setting, which).items():
            found.setdefault(case, set()).update(digests)
    assert not sorted(case for case, digests in found.items() if len(digests) > 1)
    assert {f"places {case}" for case in ("repeated calls", "of several tasks")} <= set(found)


@pytest.mark.long
def test_numpy_has_the_bits_of_generated_code() -> None:
    """Products are convolutions, whose sums have another order in NumPy."""
    products = {f"rows {name} " for row in ROWS if row.order == OF_OPERATOR for name in row.names}
    products |= {f"rows {name} " for name in ("affine_grid_generator",)}
    generated, by_numpy = _digests({}, "0"), _digests({"CONVGRAD_MAX_ISA": "numpy"}, "0")
    cases = {case for case in generated if case.startswith("rows ") and not case.startswith(tuple(products))}
    assert len(cases) > 150
    assert not sorted(case for case in cases if generated[case] != by_numpy[case])
