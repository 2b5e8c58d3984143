"""benchmarks/tiles_training.py: networks learn, by tiles as by the direct sum."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from engine_helpers import HOST
from helpers import assert_same_bits

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.skipif(not HOST, reason="no generated kernels run here")
def test_a_few_steps_have_all_rows(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    command = [sys.executable, BENCHMARKS / "tiles_training.py", "--steps", "4", "--networks", "digits"]
    subprocess.run([*command, "-o", tmp_path / "out.csv"], check=True, capture_output=True)
    with (tmp_path / "out.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["step"], row["max_error"]) for row in rows] == [
        (str(n), m) for n in range(1, 5) for m in ["1", "8", "64"]
    ]
    losses = {most: [float(row["loss"]) for row in rows if row["max_error"] == most] for most in ("1", "8", "64")}
    assert losses["64"] != losses["1"]
    np.testing.assert_allclose(losses["64"], losses["1"], rtol=1e-2)
    assert rows[2]["tiles"] == "4x4 4x4 4x4"


@pytest.mark.parametrize("name", ["digits", "resnet"])
def test_a_backward_is_the_derivative(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the loss by each array that is learned, against differences."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import tiles_training  # noqa: PLC0415 - a program beside the package

    rng = np.random.default_rng(3)
    images, labels = rng.standard_normal((4, 8, 8, 1)).astype(np.float32), np.array([1, 2, 3, 4])

    def loss(changed: int, by: float) -> float:
        one = tiles_training.network(name)
        one.learned[changed].value[...] += np.float32(by) * directions[changed]
        return tiles_training.step(one, images, labels, 0.0)

    network = tiles_training.network(name)
    assert_same_bits(network.learned[1].value, tiles_training.network(name).learned[1].value, "the first weights")
    directions = [rng.standard_normal(each.value.shape).astype(np.float32) for each in network.learned]
    tiles_training.step(network, images, labels, 0.0)
    for number in (0, 1, len(directions) - 1):
        slope = (loss(number, 1e-3) - loss(number, -1e-3)) / 2e-3
        assert slope == pytest.approx(float((network.learned[number].gradient * directions[number]).sum()), rel=0.05)
