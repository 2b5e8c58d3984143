"""benchmarks/joint.py: what is compared computes the same, and what is asked for has its rows."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from convgrad import notation
from tests.support.helpers import assert_same_bits
from tests.support.places import BENCHMARKS


def test_a_short_run_has_all_rows(tmp_path: Path) -> None:
    command = [sys.executable, BENCHMARKS / "joint.py", "--suite", "--threads", "1", "0", "--rounds", "1"]
    command += ["--needs", "all", "weights", "-o", tmp_path / "out.csv"]
    subprocess.run(command, check=True, capture_output=True)
    with (tmp_path / "out.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len({(row["needs"], row["threads"]) for row in rows}) == len(rows) == 4
    assert all(float(row["ratio"]) > 0 for row in rows)


@pytest.mark.parametrize(
    "line",
    [
        "BWD_W bf16 NCX g2mb2ic4iw9oc6ow5kw3sw2pw1",
        "BWD_D f32 NXC:OIX mb1ic3ih5oc2oh5kh3ph1",
        "deconv BWD_W f32 NXC mb1ic2iw4oc3ow9kw3sw2",
    ],
)
def test_both_ways_compute_the_same(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import joint  # noqa: PLC0415 - a program beside the package

    together, each = joint.calls(notation.problem(line), ("src", "weights", "bias"), 1)
    outs = together()
    found = [out.copy() for out in outs]
    for out in outs:
        out.fill(float("nan"))
    each()
    for one, other in zip(found, outs, strict=True):
        assert_same_bits(one, other, line)
