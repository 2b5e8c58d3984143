"""Programs of benchmarks/: what is compared computes the same, and a short run has all its rows."""

from __future__ import annotations

import csv
import importlib
import subprocess
import sys
from argparse import Namespace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convgrad import notation
from tests.support.engine_helpers import HOST
from tests.support.helpers import assert_same_bits
from tests.support.places import BENCHMARKS

SHORT = ("--calls", "2", "--rounds", "1")
# By program: what it needs, its arguments, the columns that tell rows apart, how many there are, columns above 0.
PROGRAMS = {
    "cuda_training": (
        ("torch",),
        ("--devices", "cpu,cpu", "--sizes", "32", "--images", "2", "--steps", "1"),
        ("module", "what"),
        490,
        ("elements",),
    ),
    "joint": (
        (),
        ("--suite", "--threads", "1", "0", "--rounds", "1", "--needs", "all", "weights"),
        ("needs", "threads"),
        4,
        ("ratio",),
    ),
    "small_calls": ((), ("--threads", "1", *SHORT), ("role", "form", "layout"), 24, ("us",)),
    "tensors": (("torch", "jax"), SHORT, ("library", "type", "call"), 21, ("numpy_us",)),
    "torch_overhead": (
        ("torch",),
        ("--threads", "1", *SHORT),
        ("form", "case"),
        6,
        ("ours_us", "torch_us", "kernels_us", "ratio"),
    ),
}


@pytest.mark.every(2)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * bool(row[0])) for name, row in PROGRAMS.items()]
)
def test_a_short_run_has_all_rows(name: str, tmp_path: Path) -> None:
    needed, arguments, keys, number, positive = PROGRAMS[name]
    for library in needed:
        pytest.importorskip(library)
    command = [sys.executable, BENCHMARKS / f"{name}.py", *arguments, "-o", tmp_path / "out.csv"]
    subprocess.run(command, check=True, capture_output=True)
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()))
    assert len({tuple(row[key] for key in keys) for row in rows}) == len(rows) == number
    assert all(float(row[column]) > 0 for row in rows for column in positive)


@pytest.mark.parametrize(
    "line",
    [
        "BWD_W bf16 NCX g2mb2ic4iw9oc6ow5kw3sw2pw1",
        "BWD_D f32 NXC:OIX mb1ic3ih5oc2oh5kh3ph1",
        "deconv BWD_W f32 NXC mb1ic2iw4oc3ow9kw3sw2",
    ],
)
def test_joint_and_single_gradients_are_the_same(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    together, each = importlib.import_module("joint").calls(notation.problem(line), ("src", "weights", "bias"), 1)
    outs = together()
    found = [out.copy() for out in outs]
    for out in outs:
        out.fill(float("nan"))
    each()
    for one, other in zip(found, outs, strict=True):
        assert_same_bits(one, other, line)


# -- tiles_training.py: networks learn, by tiles as by the direct sum --------------------------------------------------


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("tiles_training")


@pytest.mark.long
@pytest.mark.skipif(not HOST, reason="no generated kernels run here")
def test_a_few_steps_have_all_rows(training: Any) -> None:
    rng = np.random.default_rng(2)
    images, labels = rng.standard_normal((training.SPLIT + 3, 8, 8, 1)).astype(np.float32), rng.integers(0, 10, 1440)
    rows = list(training.train("digits", images, labels, Namespace(steps=3, batch=64)))
    assert [(row["step"], row["max_error"]) for row in rows] == list(product((1, 2, 3), (1, 8, 64)))
    losses = {most: [row["loss"] for row in rows if row["max_error"] == most] for most in (1, 8, 64)}
    assert 0 < rows[-1]["apart"] < 1e-3
    np.testing.assert_allclose(losses[64], losses[1], rtol=1e-2)
    assert rows[2]["tiles"] == "4x4 4x4 4x4"


@pytest.mark.every(2)
@pytest.mark.parametrize("name", ["digits", "resnet"])
def test_a_backward_is_the_derivative(name: str, training: Any) -> None:
    """Of the loss by arrays that are learned, against differences along the gradient itself."""
    rng = np.random.default_rng(3)
    images, labels = rng.standard_normal((4, 8, 8, 1)).astype(np.float32), np.array([1, 2, 3, 4])

    def loss(changed: int, by: float) -> float:
        one = training.network(name)
        one.learned[changed].value[...] += np.float32(by) * directions[changed]
        return training.step(one, images, labels, 0.0)

    network = training.network(name)
    assert_same_bits(network.learned[1].value, training.network(name).learned[1].value, "the first weights")
    training.step(network, images, labels, 0.0)
    lengths = [float(np.linalg.norm(each.gradient)) for each in network.learned]
    directions = [each.gradient / np.float32(length) for each, length in zip(network.learned, lengths, strict=True)]
    for number in (0, 1, len(lengths) - 1):
        assert (loss(number, 1e-2) - loss(number, -1e-2)) / 2e-2 == pytest.approx(lengths[number], rel=0.05)
