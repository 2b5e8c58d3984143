"""The gates: what each accepts and rejects, and the page's table, which is that of the committed run."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest

from campaigns.gates import GATES, LAYERS, Kernel
from campaigns.gates import main as measure
from tests.support.places import BENCHMARKS, DOCS
from tests.verify.gate_kernels import KERNELS
from tests.verify.gate_mutants import MUTANTS

NEEDED = {"assert_close": "torch", "gradcheck": "torch", "PyTorch": "torch", "JAX": "jax"}  # by gates and kernels
ROWS = list(csv.DictReader((BENCHMARKS / "results" / "gates.csv").read_text(encoding="utf-8").splitlines()))
PAGE = (
    (DOCS / "comparison.md")
    .read_text(encoding="utf-8")
    .partition("## Gates for kernels")[2]
    .partition("## Versions")[0]
)


@pytest.mark.parametrize("gate", GATES)
def test_page_has_the_counts_of_the_run(gate: str) -> None:
    counts = [sum(int(row[gate]) for row in ROWS if row["sort"] == sort) for sort in ("mutant", "right")]
    (line,) = re.findall(rf"(?m)^\| {re.escape(gate)} \|.*$", PAGE)
    assert [int(cell) for cell in line.strip("| ").split("|")[-2:]] == counts


def test_run_has_60_mutants_and_30_right_kernels() -> None:
    assert [row["kernel"] for row in ROWS] == [*MUTANTS, *KERNELS]
    assert (len(MUTANTS), len(KERNELS)) == (60, 30)


def skip_without_library(name: str) -> None:
    if name in NEEDED:
        pytest.importorskip(NEEDED[name])


def scaled(share: float) -> Kernel:
    return Kernel("scaled", lambda p: p.sums() * (1 + share))


@pytest.mark.every(3)
@pytest.mark.parametrize("gate", [gate for gate in GATES if gate != "PCC 0.99"])
def test_gate_accepts_exact_and_rejects_twice(gate: str, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without_library(gate)
    monkeypatch.setattr("campaigns.gates.LAYERS", LAYERS[3:4])
    assert not GATES[gate](scaled(0.0))
    assert GATES[gate](scaled(1.0))


@pytest.mark.parametrize(
    ("gate", "share"),
    [("allclose 1e-2", 3e-2), ("allclose 1e-3", 3e-3), ("allclose 1e-5", 3e-5), ("robust 1e-3", 1.5e-3),
     ("assert_close", 1e-5), pytest.param("gradcheck", 3e-3, marks=pytest.mark.long), ("4 ulp", 2.0**-20)],
)  # fmt: skip
def test_gate_has_its_tolerance(gate: str, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without_library(gate)
    monkeypatch.setattr("campaigns.gates.LAYERS", LAYERS[3:4])
    assert not GATES[gate](scaled(share / 16))
    assert GATES[gate](scaled(share))


def test_correlation_sees_no_scale() -> None:
    assert not GATES["PCC 0.99"](scaled(1.0))
    assert GATES["PCC 0.99"](Kernel("noise", lambda p: np.random.default_rng(0).standard_normal(p.sums().shape)))


def test_declared_winograd_may_err_by_2e_5_on_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("campaigns.gates.LAYERS", LAYERS[4:5])
    off, declared = scaled(1e-5), {"algorithm": "winograd:2,3"}
    assert GATES["benchdnn"](off)
    assert not GATES["benchdnn"](Kernel("off", off.compute, declared))
    assert GATES["benchdnn"](Kernel("off", scaled(4e-5).compute, declared))


@pytest.mark.every(5)
@pytest.mark.parametrize("name", KERNELS)
def test_right_kernel_is_near_the_exact_result(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without_library(name)
    monkeypatch.setattr("campaigns.gates.LAYERS", LAYERS[1:5])
    compute, declared = KERNELS[name]
    found = list(Kernel(name, compute, dict(declared)).results("normal"))
    assert found
    for got, exact, _ in found:
        assert np.abs(got - exact).max() <= (0.05 if "bf16" in name or "tf32" in name else 1e-5) * np.abs(exact).max()


@pytest.mark.every(3)
@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_differs_from_the_exact_result(name: str) -> None:
    compute, declared = MUTANTS[name]
    assert any((got != exact).any() for got, exact, _ in Kernel(name, compute, dict(declared)).results("normal"))


@pytest.mark.long
def test_program_has_a_row_per_kernel(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr("campaigns.gates.LAYERS", LAYERS[3:4])
    path = tmp_path / "gates.csv"
    assert measure(["--only", "all zeros", "f64", "-o", str(path)]) == 0
    (mutant, right) = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    assert {mutant[gate] for gate in GATES} == {"1"}
    assert right["verify says"] == "ok"
    assert "convgrad verify: 1 mutants caught, 0 right kernels rejected" in capsys.readouterr().out
