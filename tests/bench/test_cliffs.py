"""benchmarks/cliffs.py: its sweeps, its arithmetic and what it writes; never how fast anything is."""

from __future__ import annotations

import csv
import doctest
import importlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from convgrad.cli.bench.roofs import Level, Roofs
from convgrad.notation import problem
from convgrad.spec.geometry import Conv
from convgrad.spec.work import needed_flops
from tests.support.places import BENCHMARKS

sys.path.insert(0, str(BENCHMARKS))  # whose rows.py it imports
cliffs = importlib.import_module("cliffs")
ROOFS = Roofs(1, 100.0, (Level("memory", None, 20.0),))
TINY = cliffs.Sweep({8: "mb1ic8ih5oc8kh3ph1", 9: "mb1ic9ih5oc9kh3ph1"})


def test_docstring_examples() -> None:
    assert doctest.testmod(cliffs).failed == 0


def points_of(*costs: float) -> list:
    """Points of 1,000 multiply-adds each, with these times of one in ns."""
    return [cliffs.Point(n, f"problem {n}", "generated", 1000, cost / 1e3, 1e-3) for n, cost in enumerate(costs, 1)]


@pytest.mark.every(2)
@pytest.mark.parametrize("asked", [(), *(("--direction", role) for role in cliffs.ROLES[:-1])], ids=" ".join)
def test_a_sweep_runs_and_writes(
    asked: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    role = asked[-1] if asked else "BWD_W"
    monkeypatch.setitem(cliffs.SWEEPS, "tiny", TINY)
    monkeypatch.setattr(cliffs, "measure_roofs", lambda threads: ROOFS)
    table, picture = tmp_path / "cliffs.csv", tmp_path / "cliffs.png"
    arguments = ["--threads", "1", "--repeat", "2", "--only", "tiny", "-o", str(table), "--plot", str(picture), *asked]
    assert cliffs.main(arguments) in (0, 1)
    assert "tiny                    2 points  worst" in capsys.readouterr().out
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert tuple(rows[0])[: len(cliffs.COLUMNS)] == cliffs.COLUMNS
    assert [tuple(row[name] for name in ("sweep", "number", "direction", "type", "threads")) for row in rows] == [
        ("tiny", "8", role, "f32", "1"), ("tiny", "9", role, "f32", "1")
    ]  # fmt: skip
    assert [row["problem"] for row in rows] == [f"{role} f32 NXC {text}" for text in TINY.descriptors.values()]
    first, second = ({name: float(row[name]) for name in ("ms", "ns_per_multiply_add", "ratio")} for row in rows)
    assert float(rows[1]["multiply_adds"]) == 9 * 9 * 13 * 13  # three taps of an axis meet 4, 5 and 4 positions
    assert second["ns_per_multiply_add"] == pytest.approx(1e6 * second["ms"] / (9 * 9 * 13 * 13))
    assert first["ratio"] == 1
    assert second["ratio"] == pytest.approx(second["ns_per_multiply_add"] / first["ns_per_multiply_add"])
    assert picture.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SystemExit):  # a file that is there is not replaced, nor measured for
        cliffs.main(arguments)
    assert "give --force" in capsys.readouterr().err
    drawn = picture.read_bytes()
    assert cliffs.main(["--measured", str(table), "--plot", str(picture), "--force"]) == 0
    assert picture.read_bytes() == drawn
    with pytest.raises(SystemExit):
        cliffs.main(["--measured", str(table)])


@pytest.mark.parametrize(("costs", "flat", "words"), [
    ((1.0, 1.9, 1.1, 0.6), True, "worst 1.90 from 1 to 2, floor 1.00 max/min 3.17 limit 2.0 flat"),
    ((1.0, 1.1, 2.75, 2.5), False, "worst 2.50 from 2 to 3, floor 1.00 max/min 2.75 limit 2.0 CLIFFS: 1 of 3"),
    ((3.0, 1.0, 0.4), False, "worst 3.00 from 1 to 2, floor 1.00 max/min 7.50 limit 2.0 CLIFFS: 2 of 2"),
])  # fmt: skip
def test_a_cliff_between_neighbours_is_reported(costs: tuple[float, ...], flat: bool, words: str) -> None:
    """Up and down."""
    points = cliffs.compared(points_of(*costs), to_first=False)
    assert cliffs.is_flat(points, TINY) == flat
    assert cliffs.verdict("made up", points, TINY).split() == f"made up {len(costs)} points {words}".split()


def test_groups_are_compared_with_one_group() -> None:
    """A quarter of the work in a third of the time is fine, in 1.4 times the time a cliff."""
    sweep = replace(TINY, to_first=True)
    points = [replace(one, ms=ms) for one, ms in zip(points_of(1, 1, 1), (3.0, 1.0, 4.2), strict=True)]
    fine, cliff = (cliffs.compared(some, to_first=True) for some in (points[:2], points))
    assert [round(point.ratio, 3) for point in cliff] == [1, 0.333, 1.4]
    assert cliffs.is_flat(fine, sweep)
    assert not cliffs.is_flat(cliff, sweep)
    assert "worst  1.40 from 1 to 3, floor 1.00 " in cliffs.verdict("made up", cliff, sweep)
    assert cliffs.row("made up", cliff[2], sweep)["flat"] == "no"


@pytest.mark.parametrize("name", cliffs.SWEEPS)
def test_every_point_of_a_sweep_is_a_legal_problem(name: str) -> None:
    sweep = cliffs.SWEEPS[name]
    for descriptor in sweep.descriptors.values():
        geometries = {problem(f"{role} f32 NXC {descriptor}").geometry for role in cliffs.ROLES}
        (conv,) = geometries  # one convolution, whatever is solved for
        assert isinstance(conv, Conv)
        assert min(axis.dst for axis in conv.axes) >= 4
    first = 64 if name.endswith("_long_rows") else 16 if name == "channels" else 1
    assert (list(sweep.descriptors), min(sweep.descriptors)) == (sorted(sweep.descriptors), first)


@pytest.mark.parametrize("role", cliffs.ROLES)
def test_a_run_of_a_direction_is_short(role: str) -> None:
    """At 100 GFLOP/s, less than half of what a core does: a first call, a warm one, and two a round."""
    lines = [f"{role} f32 NXC {text}" for sweep in cliffs.SWEEPS.values() for text in sweep.descriptors.values()]
    seconds = sum(needed_flops(problem(line).geometry) for line in lines) / 100e9
    assert len(lines) * cliffs.WARM_S + seconds * (2 + 2 * 3) < 60


def test_sweeps_meet_depthwise_layers_groups_and_long_rows() -> None:
    """From one channel a group to all in one, to 31 x 31 taps of a plane, and from 1 to 4,096 taps of a row."""
    swept = {name: list(sweep.descriptors) for name, sweep in cliffs.SWEEPS.items()}
    assert set(swept["groups_of_128"]) == {1 << power for power in range(8)}
    assert swept["depthwise_channels"] == list(range(1, 71))
    assert swept["depthwise_kernels"] == list(range(1, 32))
    for name in cliffs.FAMILIES:
        rows = {*swept[f"{name}_rows"], *swept[f"{name}_long_rows"]}
        assert rows >= {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, *(1 << power for power in range(6, 13))}
