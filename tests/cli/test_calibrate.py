"""convgrad calibrate: what it prints and keeps, and what it says without kernels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import convgrad
from convgrad.cli import calibrate as command
from convgrad.cli import main
from convgrad.engines.llvm import isas, speeds
from tests.support.engine_helpers import HOST


@pytest.mark.skipif(not HOST, reason="no generated kernels run here")
def test_speeds_are_printed_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ratios = [(1.0, 1.0), (1.6, 1.2), (0.5, 0.6)]
    monkeypatch.setattr(command, "calibrated", lambda machine, threads: (replace(machine, bytes_per_ns=33.0), ratios))
    with convgrad.kernel_cache(tmp_path / "kernels"):
        assert main(["calibrate", "--no-keep"]) == 0
        assert speeds.kept(isas.isa()) is None
        capsys.readouterr()
        assert main(["calibrate"]) == 0
        kept = speeds.kept(isas.isa())
        assert kept is not None
        assert kept["bytes_per_ns"] == 33.0
        assert main(["info"]) == 0
    printed = capsys.readouterr().out
    assert "bytes_per_ns             33  (before: " in printed
    assert "predictions within a factor of 1.5: 2 of 3 plans (before: 1)" in printed
    assert "calibrated on this machine" in printed


@pytest.mark.skipif(not HOST, reason="no generated kernels run here")
def test_without_a_cache(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "calibrated", lambda machine, threads: (machine, [(1.0, 1.0)]))
    with convgrad.kernel_cache(None):
        assert main(["calibrate"]) == 1
    assert "the speeds are not kept: there is no kernel cache" in capsys.readouterr().err


def test_without_kernels(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("CONVGRAD_MAX_ISA", "numpy")
    assert main(["calibrate"]) == 1
    assert "there are no kernels: CONVGRAD_MAX_ISA=numpy" in capsys.readouterr().err
