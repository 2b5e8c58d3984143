"""benchmarks/digits.py: one hash of what is learnt, the same losses as PyTorch's; never how fast anything is."""

from __future__ import annotations

import csv
import importlib
import os
import subprocess
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from convgrad import engines
from convgrad.engines.llvm import isas
from convgrad.host import staying_on
from tests.bench.problems import needs_torch
from tests.support.places import BENCHMARKS

SHORT = {"images": 48, "batch": 16, "epochs": 1, "seed": 0}
CALLS = {"Convolution": 3, "ConvTranspose": 1, "ConvolutionBackwardData": 2, "ConvTransposeBackwardData": 1}
CALLS |= {"ConvolutionBackwardWeights": 3, "ConvTransposeBackwardWeights": 1, "BiasAddBackward": 4}


@pytest.fixture
def digits(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    with staying_on(()):  # PyTorch may pin this thread
        yield importlib.import_module("digits")
    for name in ("digits", "digits_torch"):
        sys.modules.pop(name, None)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    words = [f"--{name}={value}" for name, value in SHORT.items()]
    environment = {name: value for name, value in os.environ.items() if name != "CONVGRAD_MAX_ISA"}
    command = [sys.executable, BENCHMARKS / "digits.py", *words, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.long
def test_one_hash_whatever_computes_it(digits: ModuleType) -> None:
    done = run("--hash")
    assert done.returncode == 0, done.stderr
    *lines, last = done.stdout.splitlines()
    usable = isas.host_isas()
    assert [line.split(maxsplit=1)[1] for line in lines] == [
        f"{isa.name}, threads {threads}" for isa in usable for threads in (1, 2, 3)
    ]
    assert last == f"one hash of {3 * len(usable)} trainings"
    options = Namespace(**SHORT)
    data = digits.training_data(options)
    assert {line.split()[0] for line in lines} == {digits.hash_of(*data, options, 2)}
    assert digits.hash_of(*data, Namespace(**SHORT | {"seed": 1}), 2) not in done.stdout


def test_two_hashes_are_told(
    digits: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(digits, "hashes", lambda *_: ["a  avx2, threads 1", "b  avx2, threads 2"])
    assert digits.print_hashes([], Namespace()) == 1
    assert capsys.readouterr().out.endswith("2 hashes of 2 trainings\n")


@pytest.mark.long
def test_every_call_runs_on_generated_kernels(digits: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    found: Counter[tuple[str, str]] = Counter()
    execute = engines.execute

    def watched(problem: Any, *arguments: Any) -> Any:
        choice = execute(problem, *arguments)
        found[problem.operator, choice.engine] += 1
        return choice

    monkeypatch.setattr(engines, "execute", watched)
    options = Namespace(**SHORT)
    digits.by_convgrad(*digits.training_data(options), options).idle()
    assert found == {(operator, "generated"): number for operator, number in CALLS.items()}


@pytest.mark.long
@needs_torch
def test_pytorch_trains_the_same_network(digits: ModuleType, tmp_path: Path) -> None:
    table = tmp_path / "digits.csv"
    done = run("--repeat", "1", "--epochs", "2", "-o", str(table))
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(table.read_text().splitlines()))
    names = ("convgrad", "torch nchw", "torch nhwc")
    assert [(row["epoch"], row["by"]) for row in rows] == [(epoch, name) for epoch in "12" for name in names]
    for ours, *others in (rows[:3], rows[3:]):
        for column in ("loss", "reconstruction"):
            np.testing.assert_allclose([float(row[column]) for row in others], float(ours[column]), rtol=1e-5)
    assert float(rows[0]["loss"]) > float(rows[3]["loss"])
    assert rows[0]["processor"]
    assert " an epoch\n" in done.stdout


def test_pytorch_is_asked_for(digits: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convgrad.cli.bench.peers.importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="torch is not installed: pip install torch"):
        digits.main([])
